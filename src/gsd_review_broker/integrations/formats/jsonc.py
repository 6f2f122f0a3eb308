"""JSON as people write it (comments, trailing commas, any layout), read with the place of every value.

Clients keep their configuration in it, and we change one entry without touching another byte: so this reads where
things stand, not only what they are.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from gsd_review_broker.integrations.formats.edits import BYTE_ORDER_MARK, line_and_column

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_GAP = re.compile(rf"(?:[ \t\r\n]+|{_COMMENT.pattern})*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_DEEPEST = 150

Kind = Literal["object", "array", "scalar"]


class NotJsonError(ValueError):
    """The text is no JSON, with comments or without; says where."""


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
    """Kept for a while: a file of some megabytes (Claude Code's own grows so) is looked at from several sides."""
    reader = _Reader(text)
    reader.skip()
    if reader.offset == len(text):
        return JsoncText(text, None)
    root = reader.value(0)
    reader.skip()
    if reader.offset != len(text):
        raise reader.wrong("there is more after the end")
    return JsoncText(text, root)


def comments(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The comments in a stretch that holds nothing else but white space."""
    offset = start
    while offset < end:
        offset = _after_space(text, offset)
        found = _COMMENT.match(text, offset)
        if found is None or offset >= end:
            return
        yield found.span()
        offset = found.end()


def _after_space(text: str, offset: int) -> int:
    found = _SPACE.match(text, offset)
    return found.end() if found else offset


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.offset = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0

    def wrong(self, what: str) -> NotJsonError:
        return NotJsonError(f"{what} at {line_and_column(self._text, self.offset)}")

    def skip(self) -> None:
        """White space and comments."""
        found = _GAP.match(self._text, self.offset)
        self.offset = found.end() if found else self.offset

    def value(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self.wrong(f"nested deeper than {_DEEPEST}")
        match self._peek():
            case "{":
                return self._container("object", "}", depth)
            case "[":
                return self._container("array", "]", depth)
            case _:
                found = _STRING.match(self._text, self.offset) or _PLAIN.match(self._text, self.offset)
                if found is None:
                    raise self.wrong("a value is expected")
                self._check_string(found[0])
                self.offset = found.end()
                return Node("scalar", found.start(), found.end())

    def _check_string(self, token: str) -> None:
        if token.startswith('"') and "\\" in token:
            try:
                json.loads(token)
            except ValueError:
                raise self.wrong("a string holds an escape that is none") from None

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
            # White space and comments after the last value are the container's, not the item's.
            self.offset = node.end
        return Item(key, start, node, comma)

    def _key(self) -> str:
        found = _STRING.match(self._text, self.offset)
        if found is None:
            raise self.wrong("a key in double quotes is expected")
        self._check_string(found[0])
        self.offset = found.end()
        self.skip()
        if self._peek() != ":":
            raise self.wrong("a colon is expected")
        self.offset += 1
        self.skip()
        return str(json.loads(found[0]))

    def _peek(self) -> str:
        return self._text[self.offset : self.offset + 1]
