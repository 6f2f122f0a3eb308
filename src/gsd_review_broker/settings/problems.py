"""Mistakes in one feature's settings: the feature is off, the broker still starts, and users are told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

POOL = "reviewer_pool"
GATE = "gate"
# What GSD's agents do about reviews. The broker itself has no use for these.
REVIEW = frozenset({"review", "review_granularity", "execution_mode"})
PROJECT_FILE = "project file"


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    # What does not work because of it: a setting's name, or the file as a whole.
    feature: str
    message: str
    # What to do about it: a command, or a sentence.
    fix: str


# Looked for when they are shown: some appear while the broker runs.
Problems = Callable[[], Sequence[Problem]]
