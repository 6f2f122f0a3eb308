"""JSON as people write it (comments, trailing commas, any layout), read with the place of every value.

Clients keep their configuration in it, and we change one entry without touching another byte. Therefore the parser
returns positions as well as values.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from gsd_review_broker.integrations.formats.entries import BYTE_ORDER_MARK, line_and_column

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_GAP = re.compile(rf"(?:[ \t\r\n]+|{_COMMENT.pattern})*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_DEEPEST = 150

Kind = Literal["object", "array", "scalar"]


class NotJsonError(ValueError):
    """The text is not JSON, with or without comments; the message says where."""


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
    """The comments in a range that otherwise contains only white space."""
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

    def wrong(self, what: str) -> NotJsonError:
        return NotJsonError(f"{what} at {line_and_column(self._text, self.offset)}")

    def skip(self) -> None:
        """White space and comments."""
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
