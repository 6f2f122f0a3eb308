"""Edits one entry of ours in a JSON file with comments; all other content keeps every byte.

JSON as people write it has comments, trailing commas and any layout. The parser returns the place of every value.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

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
    line_and_column,
    newline_of,
)

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_GAP = re.compile(rf"(?:[ \t\r\n]+|{_COMMENT.pattern})*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_DEEPEST = 150

Kind = Literal["object", "array", "scalar"]


@dataclass(frozen=True, slots=True)
class Node:
    kind: Kind
    start: int
    end: int
    items: "tuple[Item, ...]" = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A member of an object (with its key) or an element of an array, and the comma after it if there is one."""

    key: str | None
    start: int
    node: Node
    comma: int | None


@dataclass(frozen=True, slots=True)
class JsoncText:
    text: str
    root: Node | None
    """None if there is nothing but white space and comments."""

    def value(self, node: Node) -> Any:
        match node.kind:
            case "object":
                return {item.key: self.value(item.node) for item in node.items}
            case "array":
                return [self.value(item.node) for item in node.items]
            case "scalar":
                return json.loads(self.text[node.start : node.end])


@lru_cache(maxsize=4)
def parse(text: str) -> JsoncText:
    """Cached: a file of some megabytes (Claude Code's own grows to that) is parsed for several questions."""
    reader = _JsonParser(text)
    reader.skip()
    if reader.offset == len(text):
        return JsoncText(text, None)
    root = reader.value(0)
    reader.skip()
    if reader.offset != len(text):
        raise reader.wrong("there is more after the end")
    return JsoncText(text, root)


def comments(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Find the comments in a range that otherwise contains only white space."""
    offset = start
    while offset < end:
        offset = _after_space(text, offset)
        match = _COMMENT.match(text, offset)
        if match is None or offset >= end:
            return
        yield match.span()
        offset = match.end()


def _after_space(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


class _JsonParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self.offset = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0

    def wrong(self, what: str) -> InvalidConfigError:
        return InvalidConfigError(f"{what} at {line_and_column(self._text, self.offset)}")

    def skip(self) -> None:
        """Skip white space and comments."""
        match = _GAP.match(self._text, self.offset)
        self.offset = match.end() if match else self.offset

    def value(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self.wrong(f"nested deeper than {_DEEPEST}")
        match self._peek():
            case "{":
                return self._container("object", "}", depth)
            case "[":
                return self._container("array", "]", depth)
            case _:
                match = _STRING.match(self._text, self.offset) or _PLAIN.match(self._text, self.offset)
                if match is None:
                    raise self.wrong("a value is expected")
                self._check_string(match[0])
                self.offset = match.end()
                return Node("scalar", match.start(), match.end())

    def _check_string(self, token: str) -> None:
        if token.startswith('"') and "\\" in token:
            try:
                json.loads(token)
            except ValueError:
                raise self.wrong("a string has an invalid escape") from None

    def _container(self, kind: Kind, closing: str, depth: int) -> Node:
        start = self.offset
        self.offset += 1
        items: list[Item] = []
        self.skip()
        while self._peek() != closing:
            if items and items[-1].comma is None:
                raise self.wrong(f"a comma or {closing} is expected")
            items.append(self._item(kind, depth))
            self.skip()
        self.offset += 1
        return Node(kind, start, self.offset, tuple(items))

    def _item(self, kind: Kind, depth: int) -> Item:
        start = self.offset
        key = self._key() if kind == "object" else None
        node = self.value(depth + 1)
        self.skip()
        comma = None
        if self._peek() == ",":
            comma = self.offset
            self.offset += 1
        else:
            # White space and comments after the last value belong to the container, not to the item.
            self.offset = node.end
        return Item(key, start, node, comma)

    def _key(self) -> str:
        match = _STRING.match(self._text, self.offset)
        if match is None:
            raise self.wrong("a key in double quotes is expected")
        self._check_string(match[0])
        self.offset = match.end()
        self.skip()
        if self._peek() != ":":
            raise self.wrong("a colon is expected")
        self.offset += 1
        self.skip()
        return str(json.loads(match[0]))

    def _peek(self) -> str:
        return self._text[self.offset : self.offset + 1]


_INDENT = "  "


class JsonFormat:
    def check(self, text: str) -> None:
        _parsed(text)

    def find(self, text: str, path: Sequence[str]) -> Any:
        document = _parsed(text)
        route = _route(document, path)
        return document.value(route[-1].node) if len(route) == len(path) else MISSING

    def put(self, text: str, entry: ConfigEntry) -> PlacedEntry:
        document = _parsed(text)
        route = _route(document, entry.path)
        existing = len(route)
        if document.root is None:
            return PlacedEntry(entry=entry, edits=(_whole(text, entry),))
        if existing < len(entry.path):
            container = route[-1].node if route else document.root
            name, value = _name(entry.path[existing]), _nested(entry, existing + 1)
            return PlacedEntry(entry=entry, edits=_inserted(document, container, name, value), existing=existing)
        if entry.is_default:
            return PlacedEntry(entry=entry, existing=existing)
        node = route[-1].node
        if entry.in_list:
            return PlacedEntry(entry=entry, edits=_appended(document, node, entry), existing=existing)
        if document.value(node) == entry.value:
            return PlacedEntry(entry=entry, existing=existing)
        value = _Layout.of(document).block(entry.value, _line_indent(text, node.start))
        edit = Edit(node.start, node.end, value)
        return PlacedEntry(entry=entry, edits=(edit,), prior=text[node.start : node.end], existing=existing)

    def take(self, text: str, placed: PlacedEntry) -> tuple[Edit, ...]:
        document = _parsed(text)
        entry = placed.entry
        route = _route(document, entry.path)
        if len(route) < len(entry.path):
            return ()
        node = route[-1].node
        if entry.in_list:
            index = _index(document, node, entry.value)
            if index is None:
                return ()
            return _cleared(document, route, placed) or _cut(text, node, index)
        if not is_still_ours(document.value(node), entry.value):
            return ()
        if placed.prior is not None:
            return (Edit(node.start, node.end, placed.prior),)
        return _cleared(document, route, placed) or _cut_last(document, route)

    def is_blank(self, text: str) -> bool:
        return "".join(text.replace(BYTE_ORDER_MARK, "").split()) in {"", "{}"}


def _parsed(text: str) -> JsoncText:
    document = parse(text)
    if document.root is not None and document.root.kind != "object":
        raise InvalidConfigError("the whole file must be one JSON object")
    return document


def _route(document: JsoncText, path: Sequence[str]) -> list[Item]:
    """Return the members along a path, as far as they exist."""
    route: list[Item] = []
    node = document.root
    for depth, key in enumerate(path):
        if node is None:
            break
        if node.kind != "object":
            raise UnfitError(f"{'.'.join(path[:depth])} is not an object")
        members = [item for item in node.items if item.key == key]
        if len(members) > 1:
            raise UnfitError(f"{'.'.join(path[: depth + 1])} is there twice")
        if not members:
            break
        route.append(members[0])
        node = members[0].node
    return route


def _name(key: str) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: "


def _nested(entry: ConfigEntry, depth: int) -> Any:
    value = [entry.value] if entry.in_list else entry.value
    for key in reversed(entry.path[depth:]):
        value = {key: value}
    return value


@dataclass(frozen=True, slots=True)
class _Layout:
    newline: str
    indent: str

    @classmethod
    def of(cls, document: JsoncText) -> "_Layout":
        newline = newline_of(document.text)
        for item in document.root.items if document.root else ():
            if _on_own_line(document.text, item) and (indent := _line_indent(document.text, item.start)):
                return cls(newline, indent)
        return cls(newline, _INDENT)

    def block(self, value: Any, indent: str) -> str:
        written = json.dumps(value, ensure_ascii=False, indent=self.indent)
        return written.replace("\n", self.newline + indent)


def _whole(text: str, entry: ConfigEntry) -> Edit:
    """Write a file that has no content yet."""
    style = _Layout(newline_of(text), _INDENT)
    written = style.block(_nested(entry, 0), "") + style.newline
    apart = "" if text in ("", BYTE_ORDER_MARK) or text.endswith("\n") else style.newline
    return Edit(len(text), len(text), apart + written)


def _appended(document: JsoncText, node: Node, entry: ConfigEntry) -> tuple[Edit, ...]:
    if node.kind != "array":
        raise UnfitError(f"{'.'.join(entry.path)} is not a list")
    if _index(document, node, entry.value) is not None:
        return ()
    return _inserted(document, node, "", entry.value)


def _index(document: JsoncText, node: Node, value: Any) -> int | None:
    if node.kind != "array":
        return None
    return next((i for i, item in enumerate(node.items) if document.value(item.node) == value), None)


def _inserted(document: JsoncText, container: Node, name: str, value: Any) -> tuple[Edit, ...]:
    """Insert the container's last item, in the layout that it has."""
    if not container.items:
        return (_first(document, container, name, value),)
    text = document.text
    last = container.items[-1]
    style = _Layout.of(document)
    # If a comma ends the list, ours ends with one too, so that removing it needs no knowledge of the list.
    closing = "," if last.comma is not None else ""
    opening = "" if last.comma is not None else ","
    end = last.node.end if last.comma is None else last.comma + 1
    if not _on_own_line(text, last):
        written = f" {name}{json.dumps(value, ensure_ascii=False)}"
        return (Edit(end, end, opening + written + closing),)
    indent = _line_indent(text, last.start)
    written = f"{style.newline}{indent}{name}{style.block(value, indent)}{closing}"
    place = _after_remarks(text, end, container.end - 1)
    if place == end or not opening:
        return (Edit(place, place, opening + written),)
    return (Edit(end, end, opening), Edit(place, place, written))


def _first(document: JsoncText, container: Node, name: str, value: Any) -> Edit:
    text = document.text
    place = container.start + 1
    for _, end in comments(text, place, container.end - 1):
        place = end
    rest = text[place : container.end - 1]
    if _is_inline(document, container):
        return Edit(place, place, f"{name}{json.dumps(value, ensure_ascii=False)}")
    style = _Layout.of(document)
    outer = _line_indent(text, container.start)
    inner = outer + style.indent
    tail = "" if "\n" in rest else style.newline + outer
    return Edit(place, place, f"{style.newline}{inner}{name}{style.block(value, inner)}{tail}")


def _is_inline(document: JsoncText, container: Node) -> bool:
    """Return whether an empty container, which has no layout, follows its line."""
    root = document.root
    if root is None or container is root:
        return False
    if any(True for _ in comments(document.text, container.start + 1, container.end - 1)):
        return False
    return not any(
        item.start <= container.start < item.node.end and _on_own_line(document.text, item) for item in root.items
    )


def _after_remarks(text: str, start: int, end: int) -> int:
    """Skip the comments on the same line: they are about what stands before them."""
    place = start
    for begin, finish in comments(text, start, end):
        if "\n" in text[place:begin]:
            break
        place = finish
    return place


def _on_own_line(text: str, item: Item) -> bool:
    return not text[text.rfind("\n", 0, item.start) + 1 : item.start].strip() and "\n" in text[: item.start]


def _line_indent(text: str, offset: int) -> str:
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _cleared(document: JsoncText, route: list[Item], placed: PlacedEntry) -> tuple[Edit, ...]:
    """Remove the outermost container that we made, if there is nothing else in it."""
    for depth in range(placed.existing, len(route) - (0 if placed.entry.in_list else 1)):
        alone = all(len(item.node.items) == 1 for item in route[depth : len(route) - 1])
        if alone and (not placed.entry.in_list or len(route[-1].node.items) == 1):
            return _cut_last(document, route[: depth + 1])
    return ()


def _cut_last(document: JsoncText, route: list[Item]) -> tuple[Edit, ...]:
    parent = route[-2].node if len(route) > 1 else document.root
    if parent is None:
        return ()
    return _cut(document.text, parent, parent.items.index(route[-1]))


def _cut(text: str, container: Node, index: int) -> tuple[Edit, ...]:
    """Remove one item, with the white space before it and one comma."""
    item = container.items[index]
    start = len(text[: item.start].rstrip(" \t\r\n"))
    cut = Edit(start, item.node.end, "")
    if item.comma is not None:
        cuts = (cut, Edit(item.comma, item.comma + 1, ""))
    elif index and (comma := container.items[index - 1].comma) is not None:
        cuts = (Edit(comma, comma + 1, ""), cut)
    else:
        cuts = (cut,)
    if len(container.items) > 1:
        return cuts
    left = applied(
        text[container.start : container.end],
        [Edit(one.start - container.start, one.end - container.start, "") for one in cuts],
    )
    return (Edit(container.start, container.end, left[0] + left[-1]),) if not left[1:-1].strip() else cuts
