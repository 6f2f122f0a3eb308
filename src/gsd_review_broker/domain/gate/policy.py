"""What the gate guards, and how strictly: the user's values and the project's, of which the stricter count."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, cast

from gsd_review_broker.domain.gate.patterns import Patterns

DEFAULT_EXEMPT = (".planning/", "!*-PLAN.md")
_LISTS = ("branches", "exempt_paths", "human_paths")
_PLAN_FIRST = "plan_first"
_KNOWN = frozenset({"mode", "override", _PLAN_FIRST, *_LISTS})


class Mode(StrEnum):
    OFF = "off"
    WARN = "warn"
    BLOCK = "block"


class Override(StrEnum):
    HUMAN = "human"
    NOBODY = "nobody"


_STRICTNESS = (Mode.OFF, Mode.WARN, Mode.BLOCK)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatePolicy:
    mode: Mode = Mode.WARN
    # Empty means every local branch.
    branches: tuple[str, ...] = ()
    # A path is exempt if each of these lists names it.
    exempt: tuple[Patterns, ...] = (Patterns(DEFAULT_EXEMPT),)
    human: tuple[Patterns, ...] = ()
    override: Override = Override.HUMAN
    # Code waits until GSD's active plans are approved.
    plan_first: bool = False
    # Why the strictest policy counts instead of what is written.
    problem: str | None = None

    def guards(self, branch: str) -> bool:
        return not self.branches or any(fnmatchcase(branch, glob) for glob in self.branches)

    def is_exempt(self, path: bytes) -> bool:
        return bool(self.exempt) and all(patterns.match(path) for patterns in self.exempt)

    def needs_person(self, path: bytes) -> bool:
        return any(patterns.match(path) for patterns in self.human)


def strictest(modes: Iterable[Mode]) -> Mode:
    """The default if there are none."""
    return max(modes, key=_STRICTNESS.index, default=Mode.WARN)


def unreadable(problem: str) -> GatePolicy:
    """Configuration that cannot be read counts as block, and nothing is exempt."""
    return GatePolicy(mode=Mode.BLOCK, exempt=(), problem=problem)


def stricter(*sections: dict[str, Any]) -> GatePolicy:
    """The sections `gate` of the user's and the project's file together. A value counts where it is written; the
    default counts where nobody wrote one. Raises ValueError with the key that is wrong."""
    for section in sections:
        _check(section)
    modes = [Mode(section["mode"]) for section in sections if "mode" in section]
    exempt = _lists(sections, "exempt_paths")
    overrides = {section["override"] for section in sections if "override" in section}
    return GatePolicy(
        mode=strictest(modes),
        branches=tuple(glob for globs in _lists(sections, "branches") for glob in globs),
        exempt=tuple(Patterns(lines) for lines in exempt) or (Patterns(DEFAULT_EXEMPT),),
        human=tuple(Patterns(lines) for lines in _lists(sections, "human_paths")),
        override=Override.NOBODY if Override.NOBODY in overrides else Override.HUMAN,
        plan_first=any(section.get(_PLAN_FIRST) for section in sections),
    )


def _lists(sections: tuple[dict[str, Any], ...], name: str) -> list[list[str]]:
    return [section[name] for section in sections if name in section]


def _check(section: dict[str, Any]) -> None:
    for name in sorted(section.keys() - _KNOWN):
        raise ValueError(f"gate.{name}: unknown setting; allowed are {', '.join(sorted(_KNOWN))}")
    for name, allowed in (("mode", list(Mode)), ("override", list(Override))):
        if name in section and section[name] not in allowed:
            raise ValueError(f"gate.{name}: {section[name]!r} is not one of {', '.join(allowed)}")
    if section.get(_PLAN_FIRST, False) not in (True, False):
        raise ValueError(f"gate.{_PLAN_FIRST}: {section[_PLAN_FIRST]!r} is neither true nor false")
    for name in _LISTS:
        values = section.get(name, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in cast("list[Any]", values)):
            raise ValueError(f"gate.{name}: a list of texts is needed")
