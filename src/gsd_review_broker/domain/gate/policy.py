"""What the gate guards, and how strictly: the strictest values of all sources apply."""

import re
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple, cast

DEFAULT_EXEMPT = (".planning/", "!*-PLAN.md")
# What `[:name:]` stands for in a bracket expression.
_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \\t-\\r", "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_NAMED_CLASS = re.compile(r"\[:([^\]]*):\]")
LISTS = ("branches", "exempt_paths", "human_paths")
PLAN_FIRST = "plan_first"
_KNOWN = frozenset({"mode", "override", PLAN_FIRST, *LISTS})
# In a section that a caller sends: why it could not read what it should have sent.
PROBLEM = "problem"


@lru_cache(256)
def _rule(line: str) -> tuple[re.Pattern[str], bool] | None:
    # git compares bytes: one sign for each.
    pattern = _without_trailing_spaces(line).encode("utf-8", "surrogateescape").decode("latin-1")
    if not pattern or pattern.startswith("#"):
        return None
    is_named = not pattern.startswith("!")
    pattern = pattern if is_named else pattern[1:]
    folder_only = pattern.endswith("/")
    pattern = pattern.rstrip("/") if folder_only else pattern
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    prefix = "" if anchored else "(?:.*/)?"
    # A pattern that names a folder names everything in it.
    below = "/.*" if folder_only else "(?:/.*)?"
    return re.compile(f"{prefix}{_expression(pattern)}{below}\\Z", re.DOTALL), is_named


def _without_trailing_spaces(line: str) -> str:
    kept = line.rstrip(" ")
    return kept + " " if kept.endswith("\\") and len(kept) < len(line) else kept


def _expression(pattern: str) -> str:
    pieces: list[str] = []
    position = 0
    while position < len(pattern):
        piece, position = _piece(pattern, position)
        pieces.append(piece)
    return "".join(pieces)


def _piece(pattern: str, at: int) -> tuple[str, int]:
    """Return the expression for what stands at this place, and where the next begins."""
    if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
        return "(?:.*/)?", at + 3
    if pattern.startswith("**", at) and at + 2 == len(pattern) and (at == 0 or pattern[at - 1] == "/"):
        return ".+", at + 2
    match pattern[at]:
        case "*":
            return "[^/]*", at + 1
        case "?":
            return "[^/]", at + 1
        case "[":
            return _class(pattern, at)
        case "\\":
            # One that ends a pattern matches nothing.
            return (re.escape(pattern[at + 1]), at + 2) if at + 1 < len(pattern) else ("(?!)", at + 1)
        case character:
            return re.escape(character), at + 1


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Translate a bracket expression, as git reads it. One that never ends matches nothing."""
    nothing = "(?!)", len(pattern)
    place = at + 1
    is_negated = pattern[place : place + 1] in {"!", "^"}
    place += is_negated
    members: list[str] = []
    low = ""
    while place < len(pattern) and (pattern[place] != "]" or not members):
        name = _NAMED_CLASS.match(pattern, place)
        if name is not None:
            if name[1] not in _CLASSES:
                return nothing
            members.append(_CLASSES[name[1]])
            low, place = "", name.end()
            continue
        is_range = bool(low) and pattern[place] == "-" and pattern[place + 1 : place + 2] not in {"", "]"}
        place += is_range
        place += pattern[place] == "\\"
        if place >= len(pattern):
            return nothing
        high = pattern[place]
        members.append(_span(low if is_range else high, high))
        low, place = "" if is_range else high, place + 1
    if place >= len(pattern):
        return nothing
    inside = "".join(members)
    return (f"(?!/)[^{inside}]" if is_negated else f"(?!/)[{inside}]"), place + 1


def _span(low: str, high: str) -> str:
    """Translate one character, or a range. A range that goes backwards is empty: no path has NUL."""
    return f"{re.escape(low)}-{re.escape(high)}" if low <= high else "\\0"


class Patterns:
    """Paths named in gitignore syntax. The last pattern that matches decides; unlike in a .gitignore, `!` can also take
    a file back out of a folder that an earlier pattern names."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        self._compiled = [rule for line in self.lines if (rule := _rule(line)) is not None]

    def match(self, path: bytes) -> bool:
        name = path.decode("latin-1")
        for expression, is_named in reversed(self._compiled):
            if expression.match(name):
                return is_named
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Patterns) and self.lines == other.lines

    def __hash__(self) -> int:
        return hash(self.lines)


class Mode(StrEnum):
    OFF = "off"
    WARN = "warn"
    BLOCK = "block"


class Override(StrEnum):
    HUMAN = "human"
    NOBODY = "nobody"


DEFAULT_MODE = Mode.WARN
_STRICTNESS = (Mode.OFF, Mode.WARN, Mode.BLOCK)


class GatePolicy(NamedTuple):
    """Made by `stricter`, which has the defaults. Not a dataclass: the hook would import twice as much."""

    mode: Mode
    # The user's or the project's file says so; else it is the default, or what the environment demands.
    names_mode: bool
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

    def at_least(self, mode: Mode) -> "GatePolicy":
        return self._replace(mode=strictest([self.mode, mode]))

    def guards(self, branch: str) -> bool:
        return not self.branches or any(fnmatchcase(branch, glob) for glob in self.branches)

    def is_exempt(self, path: bytes) -> bool:
        return bool(self.exempt) and all(patterns.match(path) for patterns in self.exempt)

    def needs_person(self, path: bytes) -> bool:
        return any(patterns.match(path) for patterns in self.human)


def strictest(modes: Iterable[Mode]) -> Mode:
    """Return the strictest mode; the default if there are none."""
    return max(modes, key=_STRICTNESS.index, default=DEFAULT_MODE)


def unreadable(problem: str) -> GatePolicy:
    """Block, with nothing exempt, since the configuration cannot be read."""
    return stricter()._replace(mode=Mode.BLOCK, names_mode=True, exempt=(), problem=problem)


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
        names_mode=bool(modes),
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
    return policy.at_least(Mode(section.get("mode", policy.mode)))._replace(
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
