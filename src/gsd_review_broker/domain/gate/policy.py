"""What the gate guards, and how strictly: the strictest values of all sources apply."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, cast

from gsd_review_broker.domain.gate.patterns import Patterns

DEFAULT_EXEMPT = (".planning/", "!*-PLAN.md")
LISTS = ("branches", "exempt_paths", "human_paths")
PLAN_FIRST = "plan_first"
_KNOWN = frozenset({"mode", "override", PLAN_FIRST, *LISTS})
# In a section that a caller sends: why it could not read what it should have sent.
PROBLEM = "problem"


class Mode(StrEnum):
    OFF = "off"
    WARN = "warn"
    BLOCK = "block"


class Override(StrEnum):
    HUMAN = "human"
    NOBODY = "nobody"


DEFAULT_MODE = Mode.WARN
_STRICTNESS = (Mode.OFF, Mode.WARN, Mode.BLOCK)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatePolicy:
    """Made by `stricter`, which has the defaults."""

    mode: Mode
    # Empty means every local branch.
    branches: tuple[str, ...]
    # A path is exempt if each of these lists names it.
    exempt: tuple[Patterns, ...]
    human: tuple[Patterns, ...]
    override: Override
    # Code waits until GSD's active plans are approved.
    plan_first: bool
    # Why the strictest policy applies instead of what is written.
    problem: str | None = None

    def guards(self, branch: str) -> bool:
        return not self.branches or any(fnmatchcase(branch, glob) for glob in self.branches)

    def is_exempt(self, path: bytes) -> bool:
        return bool(self.exempt) and all(patterns.match(path) for patterns in self.exempt)

    def needs_person(self, path: bytes) -> bool:
        return any(patterns.match(path) for patterns in self.human)


def strictest(modes: Iterable[Mode]) -> Mode:
    """The default if there are none."""
    return max(modes, key=_STRICTNESS.index, default=DEFAULT_MODE)


def unreadable(problem: str) -> GatePolicy:
    """Block, with nothing exempt, since the configuration cannot be read."""
    return replace(stricter(), mode=Mode.BLOCK, exempt=(), problem=problem)


def stricter(*sections: dict[str, Any]) -> GatePolicy:
    """Join the sections `gate` of the user's and the project's file. The default applies where neither has a value.
    Raises ValueError with the key that is wrong."""
    for section in sections:
        check_section(section)
    modes = [Mode(section["mode"]) for section in sections if "mode" in section]
    exempt = _lists(sections, "exempt_paths")
    overrides = {section["override"] for section in sections if "override" in section}
    return GatePolicy(
        mode=strictest(modes),
        branches=tuple(glob for globs in _lists(sections, "branches") for glob in globs),
        exempt=tuple(Patterns(lines) for lines in exempt) or (Patterns(DEFAULT_EXEMPT),),
        human=tuple(Patterns(lines) for lines in _lists(sections, "human_paths")),
        override=Override.NOBODY if Override.NOBODY in overrides else Override.HUMAN,
        plan_first=any(section.get(PLAN_FIRST) for section in sections),
    )


def tightened(policy: GatePolicy, section: dict[str, Any]) -> GatePolicy:
    """Add what a caller demands. The policy can only get stricter: the caller may be the program that commits. Raises
    ValueError with the key that is wrong."""
    if PROBLEM in section:
        return unreadable(str(section[PROBLEM]))
    check_section(section)
    exempt = section.get("exempt_paths")
    human = section.get("human_paths")
    return replace(
        policy,
        mode=strictest([policy.mode, Mode(section.get("mode", policy.mode))]),
        # Without any, every branch is guarded already, and without any exempt path, nothing is exempt.
        branches=(*policy.branches, *section.get("branches", ())) if policy.branches else (),
        exempt=(*policy.exempt, Patterns(exempt)) if policy.exempt and exempt is not None else policy.exempt,
        human=policy.human if human is None else (*policy.human, Patterns(human)),
        override=Override.NOBODY if section.get("override") == Override.NOBODY else policy.override,
        plan_first=policy.plan_first or bool(section.get(PLAN_FIRST)),
    )


def _lists(sections: tuple[dict[str, Any], ...], name: str) -> list[list[str]]:
    return [section[name] for section in sections if name in section]


def check_section(section: dict[str, Any]) -> None:
    for name in sorted(section.keys() - _KNOWN):
        raise ValueError(f"gate.{name}: unknown setting; allowed are {', '.join(sorted(_KNOWN))}")
    for name, allowed in (("mode", list(Mode)), ("override", list(Override))):
        if name in section and section[name] not in allowed:
            raise ValueError(f"gate.{name}: {section[name]!r} is not one of {', '.join(allowed)}")
    if section.get(PLAN_FIRST, False) not in (True, False):
        raise ValueError(f"gate.{PLAN_FIRST}: {section[PLAN_FIRST]!r} is neither true nor false")
    for name in LISTS:
        values = section.get(name, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in cast("list[Any]", values)):
            raise ValueError(f"gate.{name}: a list of texts is needed")
