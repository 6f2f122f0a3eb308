"""Cuts a Markdown text into blocks: paragraphs, headings, tables, and lines that are shown as they are.

Each line is in exactly one block. A line that the parser leaves out, or whose content it changes, is shown as it is.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from markdown_it import MarkdownIt
from markdown_it.token import Token

# Below this depth the parser drops content, which is then shown as it is.
_DEEPEST = 20
DEEPEST_SHOWN = 6
# Marks of lists, quotes, headings and rules, which may stand before and after a line's own text.
_AROUND = re.compile(r"[\s>*+\-=#_\d.)]*")
_FRONT_MATTER = "---"
_MOST_FRONT_LINES = 200
_LEAVES = {"paragraph_open", "heading_open", "fence", "code_block", "html_block", "hr", "table_open"}
_CONTAINERS = {
    **dict.fromkeys(("bullet_list_open", "ordered_list_open", "blockquote_open"), 1),
    **dict.fromkeys(("bullet_list_close", "ordered_list_close", "blockquote_close"), -1),
}


class Kind(StrEnum):
    TEXT = "text"
    HEADING = "heading"
    TABLE = "table"
    # Line by line, as they are.
    CODE = "code"
    HTML = "html"
    COMMENT = "comment"
    FRONT_MATTER = "front"
    MARKS = "marks"


@dataclass(frozen=True, slots=True)
class Block:
    """Lines from `start` to `stop`. `bodies` are the texts of the lines without the marks around them."""

    kind: Kind
    start: int
    stop: int
    depth: int = 0
    level: int = 0
    bodies: tuple[str, ...] = ()


def blocks_of(lines: Sequence[str], *, is_beginning: bool) -> list[Block]:
    """`is_beginning`: the first line is the file's first line, so there may be front matter."""
    first = _front_matter(lines) if is_beginning else 0
    blocks = [Block(Kind.FRONT_MATTER, 0, first)] if first else []
    at = first
    for block in _leaves(lines, first):
        if block.start < at or block.stop > len(lines):
            continue
        blocks += _between(lines, at, block.start)
        blocks.append(block)
        at = block.stop
    return [*blocks, *_between(lines, at, len(lines))]


def _front_matter(lines: Sequence[str]) -> int:
    if not lines or lines[0].rstrip() != _FRONT_MATTER:
        return 0
    ends = (number for number, line in enumerate(lines[1:_MOST_FRONT_LINES], 2) if line.rstrip() == _FRONT_MATTER)
    return next(ends, 0)


def _leaves(lines: Sequence[str], first: int) -> Iterator[Block]:
    # The parser counts lines by line feeds alone; carriage returns are not its concern.
    text = "\n".join(line.replace("\r", " ") for line in lines[first:])
    tokens: list[Token] = []
    _PARSER.block.parse(text, _PARSER, {}, tokens)
    depth = 0
    for index, token in enumerate(tokens):
        depth += _CONTAINERS.get(token.type, 0)
        if token.type in _LEAVES and token.map is not None:
            start, stop = token.map[0] + first, min(token.map[1] + first, len(lines))
            yield _block(token, tokens[index + 1 : index + 2], lines[start:stop], Block(Kind.CODE, start, stop, depth))


def _block(token: Token, following: Sequence[Token], lines: Sequence[str], plain: Block) -> Block:
    match token.type:
        case "paragraph_open" | "heading_open":
            bodies = _bodies(lines, following[0].content.split("\n"))
            if bodies is None:
                return plain
            if token.type == "paragraph_open":
                return replace(plain, kind=Kind.TEXT, bodies=bodies)
            return replace(plain, kind=Kind.HEADING, level=int(token.tag[1:]), bodies=bodies)
        case "table_open":
            return replace(plain, kind=Kind.TABLE)
        case "hr":
            return replace(plain, kind=Kind.MARKS)
        case "html_block":
            is_comment = token.content.lstrip().startswith("<!--")
            return replace(plain, kind=Kind.COMMENT if is_comment else Kind.HTML)
        case _:
            return plain


def _bodies(lines: Sequence[str], contents: Sequence[str]) -> tuple[str, ...] | None:
    """The part of each line that the parser calls its content; None if anything but marks is around it."""
    bodies: list[str] = []
    for number, line in enumerate(lines):
        body = contents[number].strip() if number < len(contents) else ""
        before, found, after = line.rpartition(body) if body else (line, "", "")
        if found != body or not (_AROUND.fullmatch(before) and _AROUND.fullmatch(after)):
            return None
        bodies.append(body)
    return tuple(bodies)


def _between(lines: Sequence[str], start: int, stop: int) -> Iterator[Block]:
    """Lines that the parser made nothing of: blank ones, marks without text, and what is nested too deeply."""
    for number in range(start, stop):
        is_marks = _AROUND.fullmatch(lines[number]) is not None
        yield Block(Kind.MARKS if is_marks else Kind.CODE, number, number + 1)


def _make() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": _DEEPEST}).enable("table")
    # A definition of a link is a paragraph, so that it is seen.
    parser.block.ruler.disable("reference")
    return parser


_PARSER = _make()
