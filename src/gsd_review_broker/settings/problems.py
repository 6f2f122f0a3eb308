"""Mistakes in one feature's settings: the feature is off, the broker still starts, and users are told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.settings import locations

POOL = "reviewer_pool"
GATE = "gate"
# What GSD's agents do about reviews. The broker itself has no use for these.
REVIEW = frozenset({"review", "review_granularity", "execution_mode"})
PROJECT_FILE = "project file"
SETTINGS = "settings"
# The gate reads its part for each question, and `tandem gsd` its own.
_READ_LATER = frozenset({"gate", *REVIEW})


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    # What does not work because of it: a setting's name, or the file as a whole.
    feature: str
    message: str
    # What to do about it: a command, or a sentence.
    fix: str


# Looked for when they are shown: some appear while the broker runs.
Problems = Callable[[], Sequence[Problem]]


class SettingsWatch:
    """The files as they were when the broker started."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._at_start = _content(root)

    def problems(self) -> list[Problem]:
        if _content(self._root) == self._at_start:
            return []
        return [
            Problem(
                feature=SETTINGS,
                message="the configuration was changed after the broker started, which does not use the changes yet",
                fix="Restart it: `tandem down; tandem up`.",
            )
        ]


def _content(root: Path | None) -> list[Any]:
    users = _read(lambda: locations.read_settings_file(locations.user_file(), must_exist=False))
    return [users] if root is None else [users, _read(lambda: locations.read_project_file(root))]


def _read(read: Callable[[], dict[str, Any]]) -> Any:
    try:
        return {name: value for name, value in read().items() if name not in _READ_LATER}
    except locations.UnreadableSettingsError as error:
        return str(error)
