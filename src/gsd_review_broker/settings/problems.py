"""What is wrong with one feature's settings: it is off, the broker starts all the same, and everybody is told."""

from dataclasses import dataclass

POOL = "reviewer_pool"
PROJECT_FILE = "project file"


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    # What does not work because of it: a setting's name, or the file as a whole.
    feature: str
    message: str
    # What to do about it: a command, or a sentence.
    fix: str
