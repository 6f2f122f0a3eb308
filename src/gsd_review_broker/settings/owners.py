"""Who may set a setting: the user always, and a project's file as its declaration says (schema.py)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from gsd_review_broker.settings.locations import user_file


class ProjectValue(NamedTuple):
    """A value that a project's file asks for. The file may have come with the repository if git tracks it."""

    value: Any
    # What applies without the project's file.
    usual: Any
    root: Path | None
    is_tracked: bool
    # The models that the user allows to the agent that this setting is about.
    allowed_models: list[str] | None


@dataclass(frozen=True, slots=True)
class WhoMaySet:
    """Who decides a setting besides the user, and one line about it for the documentation."""

    about: str
    # In the documentation, where the default needs words.
    default: str = ""

    who: ClassVar[str]
    is_tightening: ClassVar[bool] = False

    def objection(self, wanted: ProjectValue) -> str | None:
        """Say why a project's file may not set this value."""
        return None


class Shared(WhoMaySet):
    who = "you, project"


class Merged(WhoMaySet):
    """For the gate, which takes the strictest of all sources (settings/gate.py)."""

    who = "you, project: the strictest"


class UsersOwn(WhoMaySet):
    who = "you"

    def objection(self, wanted: ProjectValue) -> str | None:
        return f"applies only in the user's file, {user_file()}: a repository must not decide it"


class Inside(WhoMaySet):
    """A path: the project's must lie inside the repository."""

    who = "you; project: inside the repository"

    def objection(self, wanted: ProjectValue) -> str | None:
        if wanted.value is None or is_inside(str(wanted.value), wanted.root):
            return None
        return (
            f"{wanted.value!r} lies outside the repository {wanted.root or ''}".rstrip()
            + f"; such a path applies only in the user's file, {user_file()}"
        )


class InsideUntracked(Inside):
    """Text that reviewers follow: a file that came with the repository must not choose it."""

    who = "you; project: inside the repository, unless git tracks its file"
    is_tightening = True

    def objection(self, wanted: ProjectValue) -> str | None:
        outside = Inside.objection(self, wanted)
        return outside or ("is not taken from this file" if wanted.is_tracked else None)


class AllowedModel(WhoMaySet):
    who = "you; project: one of your `allowed_models`"

    def objection(self, wanted: ProjectValue) -> str | None:
        allowed = wanted.allowed_models
        if wanted.value is None or allowed is None or wanted.value in allowed:
            return None
        return (
            f"{wanted.value!r} is not allowed in a project's file; allowed are {', '.join(allowed) or 'none'} "
            f"(reviewer_pool.allowed_models in the user's file, {user_file()})"
        )


class Tightening(WhoMaySet):
    """A project's file that git tracks may make the value stricter only."""

    is_tightening = True
    # How a value that is refused compares with the usual one.
    looser: ClassVar[str]

    def objection(self, wanted: ProjectValue) -> str | None:
        if not wanted.is_tracked or self.is_as_strict(wanted.value, wanted.usual):
            return None
        return f"{_shown(wanted.value)} is {self.looser} {_shown(wanted.usual)}, which applies for you"

    def is_as_strict(self, value: Any, usual: Any) -> bool:
        raise NotImplementedError


class AtMost(Tightening):
    who = "you; project: lower"
    looser = "more than"

    def is_as_strict(self, value: Any, usual: Any) -> bool:
        """Compare two limits; None means that there is none."""
        return usual is None or (value is not None and value <= usual)


class AtLeast(Tightening):
    who = "you; project: higher"
    looser = "less than"

    def is_as_strict(self, value: Any, usual: Any) -> bool:
        return value >= usual


@dataclass(frozen=True, slots=True)
class Strict(Tightening):
    """One value is the strictest."""

    strictest: Any = None

    who = "you; project: stricter"
    looser = "less strict than"

    def is_as_strict(self, value: Any, usual: Any) -> bool:
        return value in (usual, self.strictest)


def is_inside(path: str, root: Path | None) -> bool:
    """Tell whether the path lies in the repository, to which a relative path is relative."""
    try:
        return root is not None and (root / Path(path).expanduser()).resolve().is_relative_to(root.resolve())
    except (ValueError, OSError, RuntimeError):
        return False


def _shown(value: Any) -> str:
    match value:
        case None:
            return "no limit"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)
