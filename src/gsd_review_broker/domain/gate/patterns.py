"""Paths named in gitignore syntax. The last pattern that matches decides; unlike in a .gitignore, `!` can also take a
file back out of a folder that an earlier pattern names."""

import re
from collections.abc import Iterable
from functools import lru_cache


class Patterns:
    """A list of patterns; does it name this path?"""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        self._compiled = [rule for line in self.lines if (rule := _rule(line)) is not None]

    def match(self, path: bytes) -> bool:
        name = path.decode("utf-8", "surrogateescape")
        for expression, is_named in reversed(self._compiled):
            if expression.match(name):
                return is_named
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Patterns) and self.lines == other.lines

    def __hash__(self) -> int:
        return hash(self.lines)


@lru_cache(256)
def _rule(line: str) -> tuple[re.Pattern[str], bool] | None:
    pattern = _without_trailing_spaces(line)
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
    """The expression for what stands at this place, and where the next begins."""
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
        case "\\" if at + 1 < len(pattern):
            return re.escape(pattern[at + 1]), at + 2
        case character:
            return re.escape(character), at + 1


def _class(pattern: str, at: int) -> tuple[str, int]:
    """A bracket expression; one that never ends is a bracket."""
    end = pattern.find("]", at + 2)
    if pattern[at + 1 : at + 2] in {"!", "^"} and end == at + 2:
        end = pattern.find("]", at + 3)
    if end < 0:
        return re.escape("["), at + 1
    inside = pattern[at + 1 : end]
    negated = inside[:1] in {"!", "^"}
    members = re.sub(r"([\\\[\]&~|^])", r"\\\1", inside[1:] if negated else inside)
    expression = f"[{'^/' if negated else ''}{members}]"
    try:
        re.compile(expression)
    except re.error:
        return "(?!)", end + 1
    return expression, end + 1
