"""Our table in a TOML file: added at the end, found and removed by its lines; everything else stays.

A table can be added to any TOML file without touching its content, as long as its parents are not inline tables. The
standard library's parser reads the text before and after, and so checks the result.
"""

import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gsd_review_broker.integrations.formats import (
    BYTE_ORDER_MARK,
    MISSING,
    ConfigEntry,
    Edit,
    InvalidConfigError,
    PlacedEntry,
    UnfitError,
    applied,
    is_still_ours,
    newline_of,
)

# Longest first: three quotes are not one. A string that runs over lines ends at its first closing three (and the
# quotes that may stand right before them), one on a line at its quote.
_STRINGS = re.compile(
    r'"""(?:[^\\]|\\.)*?"""+|' r"'''.*?'''+|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'",
    re.DOTALL,
)
_COMMENT = re.compile(r"#[^\n]*")


class TomlFormat:
    def check(self, text: str) -> None:
        _parsed(text)

    def find(self, text: str, path: Sequence[str]) -> Any:
        return _at(_parsed(text), path)

    def put(self, text: str, entry: ConfigEntry) -> PlacedEntry:
        data = _parsed(text)
        there = _at(data, entry.path)
        existing = _depth(data, entry.path)
        if there == entry.value or (entry.is_default and there is not MISSING):
            return PlacedEntry(entry=entry, existing=existing)
        if there is MISSING:
            edit = _added(text, entry) if isinstance(entry.value, dict) else _added_line(text, entry)
            placed = PlacedEntry(entry=entry, edits=(edit,), existing=existing)
        else:
            placed = _replaced(text, entry, existing)
        _verify(text, applied(text, placed.edits), entry)
        return placed

    def take(self, text: str, placed: PlacedEntry) -> tuple[Edit, ...]:
        entry = placed.entry
        there = _at(_parsed(text), entry.path)
        if there is MISSING or not is_still_ours(there, entry.value):
            return ()
        if not isinstance(entry.value, dict):
            return _line_of(text, entry)
        ours = _sections(text, entry.path)
        edits = tuple(Edit(_blank_before(text, one.start), _line_end(text, one.end), "") for one in ours)
        if placed.prior is not None and ours:
            edits = (Edit(ours[0].start, ours[0].end, placed.prior), *edits[1:])
        _verify_gone(text, applied(text, edits), entry, restored=placed.prior is not None)
        return edits

    def is_blank(self, text: str) -> bool:
        return not text.replace(BYTE_ORDER_MARK, "").strip()


def _parsed(text: str) -> dict[str, Any]:
    try:
        # Numbers stay as they are written: nothing is lost, and not-a-number equals itself.
        return tomllib.loads(text.removeprefix(BYTE_ORDER_MARK), parse_float=str)
    except (ValueError, RecursionError) as error:
        raise InvalidConfigError(f"not valid TOML: {error}") from error


def _at(data: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return MISSING
        data = cast("dict[str, Any]", data)[key]
    return data


def _depth(data: dict[str, Any], path: Sequence[str]) -> int:
    return next(depth for depth in range(len(path), -1, -1) if _at(data, path[:depth]) is not MISSING)


def _table(entry: ConfigEntry, newline: str) -> str:
    lines = [f"[{'.'.join(entry.path)}]"]
    # JSON's strings, integers and booleans are valid TOML.
    lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.value.items()]
    return newline.join(lines)


def _added(text: str, entry: ConfigEntry) -> Edit:
    newline = newline_of(text)
    if text in ("", BYTE_ORDER_MARK):
        apart = ""
    elif not text.endswith("\n"):
        apart = newline * 2
    else:
        apart = "" if text.endswith(("\n\n", "\n\r\n")) else newline
    return Edit(len(text), len(text), apart + _table(entry, newline) + newline)


def _added_line(text: str, entry: ConfigEntry) -> Edit:
    """Add a setting of the whole file, which has to stand above the first table."""
    newline = newline_of(text)
    line = f"{entry.path[-1]} = {json.dumps(entry.value)}{newline}"
    above = [end for _, end in _top_statements(text)]
    if not above:
        start = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
        return Edit(start, start, line + (newline if text[start:].strip() else ""))
    at = _line_end(text, above[-1])
    return Edit(at, at, line if text[:at].endswith("\n") else newline + line)


def _line_of(text: str, entry: ConfigEntry) -> tuple[Edit, ...]:
    lines = [(s, e) for s, e in _top_statements(text) if entry.path[-1] in tomllib.loads(text[s:e])]
    return tuple(Edit(start, _line_end(text, end), "") for start, end in lines)


def _top_statements(text: str) -> Iterator[tuple[int, int]]:
    """Return the statements above the first table."""
    return itertools.takewhile(lambda place: text[place[0]] != "[", _statements(text))


def _replaced(text: str, entry: ConfigEntry, existing: int) -> PlacedEntry:
    """Replace a foreign table of our name; it is kept, and restored when ours is removed."""
    theirs = _sections(text, entry.path)
    name = ".".join(entry.path)
    if not theirs or theirs[0].path != entry.path:
        raise UnfitError(f"{name} is there, but not as a table of its own ([{name}])")
    first, *others = theirs
    edits = (
        Edit(first.start, first.end, _table(entry, newline_of(text))),
        *(Edit(one.start, _line_end(text, one.end), "") for one in others),
    )
    prior = newline_of(text).join(text[one.start : one.end] for one in theirs)
    return PlacedEntry(entry=entry, edits=edits, prior=prior, existing=existing)


def _verify(before: str, after: str, entry: ConfigEntry) -> None:
    """Refuse an edit after which our table is not there, or anything else has changed."""
    try:
        data = _parsed(after)
    except InvalidConfigError as error:
        raise UnfitError(f"{entry.path[0]} is not an open table ({error})") from error
    if _at(data, entry.path) != entry.value or _without(data, entry.path) != _without(_parsed(before), entry.path):
        raise UnfitError(f"{'.'.join(entry.path)} cannot be set without changing something else")


def _verify_gone(before: str, after: str, entry: ConfigEntry, *, restored: bool) -> None:
    data = _parsed(after)
    gone = restored or _at(data, entry.path) is MISSING
    if not gone or _without(data, entry.path) != _without(_parsed(before), entry.path):
        raise UnfitError(f"{'.'.join(entry.path)} cannot be cut out without changing something else")


def _without(data: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return everything except what is at the path; empty containers are left out too."""
    key, *rest = path
    left = {name: value for name, value in data.items() if name != key}
    inner = data.get(key)
    if rest and isinstance(inner, dict) and (kept := _without(cast("dict[str, Any]", inner), rest)):
        left[key] = kept
    return left


@dataclass(frozen=True, slots=True)
class _TomlTable:
    path: tuple[str, ...]
    start: int
    end: int
    """Ends after its last line with content, without the line's end."""


def _sections(text: str, path: Sequence[str]) -> list[_TomlTable]:
    """Return the tables at and below a path, in the order of the file."""
    return [section for section in _all_sections(text) if section.path[: len(path)] == tuple(path)]


def _all_sections(text: str) -> Iterator[_TomlTable]:
    current: _TomlTable | None = None
    for start, end in _statements(text):
        if text[start] == "[":
            if current is not None:
                yield current
            current = _TomlTable(_header(text[start:end]), start, end)
        elif current is not None:
            current = _TomlTable(current.path, current.start, end)
    if current is not None:
        yield current


def _header(line: str) -> tuple[str, ...]:
    """Return the path of a header: the parser handles quoted and dotted keys."""
    node: Any = tomllib.loads(line)
    path: list[str] = []
    while node:
        if isinstance(node, list):
            node = cast("list[Any]", node)[0]
            continue
        key, node = next(iter(cast("dict[str, Any]", node).items()))
        path.append(key)
    return tuple(path)


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Headers and assignments, each with the comment on its line; an assignment may run over many lines."""
    offset = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
    while offset < len(text):
        if text[offset] in " \t\r\n":
            offset += 1
        elif match := _COMMENT.match(text, offset):
            offset = match.end()
        else:
            end = _statement_end(text, offset)
            yield offset, offset + len(text[offset:end].rstrip())
            offset = end


def _statement_end(text: str, offset: int) -> int:
    depth = 0
    while offset < len(text):
        character = text[offset]
        if character == "\n" and depth == 0:
            return offset
        if match := _STRINGS.match(text, offset) or _COMMENT.match(text, offset):
            offset = match.end()
            continue
        depth += (character in "[{") - (character in "]}")
        offset += 1
    return offset


def _line_end(text: str, offset: int) -> int:
    after = text.find("\n", offset)
    return len(text) if after < 0 else after + 1


def _blank_before(text: str, start: int) -> int:
    """Include one empty line above, which is part of what we added."""
    for blank in ("\r\n", "\n"):
        if text[:start].endswith(blank * 2):
            return start - len(blank)
    return start
