"""Cuts a Markdown text into blocks, and a paragraph into runs of marked characters.

Each line is in exactly one block. A line that the parser leaves out, or whose content it changes, is shown as it is.
The parser only says where something begins and ends: the text is always the source.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, autolink, backtick, emphasis, escape, html_inline, image, link
from markdown_it.rules_inline import newline as line_break
from markdown_it.rules_inline import strikethrough as strike
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
    # For the parser only a line feed ends a line.
    text = "\n".join(line.replace("\r", " ") for line in lines[first:])
    tokens: list[Token] = []
    _BLOCK_PARSER.block.parse(text, _BLOCK_PARSER, {}, tokens)
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
    """Return the part of each line that the parser calls its content; None if anything but marks is around it."""
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


def _block_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": _DEEPEST}).enable("table")
    # A definition of a link is a paragraph, so that it is seen.
    parser.block.ruler.disable("reference")
    return parser


_BLOCK_PARSER = _block_parser()


MARKS = re.compile(r"[\[\]()!*_`~|<>&\\]")
_LINKS = ("http://", "https://", "mailto:")
_AT, _END = "at", "end"

Rule = Callable[[StateInline, bool], bool]


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of the source, from `start` to `stop`. `kind` is a class of the style sheet; "" is plain text."""

    start: int
    stop: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    tag: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class Close:
    tag: str


Part = Run | Open | Close


class Effort:
    """How much work one page may cost: the parser takes time that grows with the square of the marks in a text."""

    def __init__(self, squares: int = 2_000_000, most_marks: int = 600) -> None:
        self._left = squares
        self._most_marks = most_marks

    def allows(self, text: str) -> bool:
        marks = sum(1 for _ in MARKS.finditer(text))
        if marks > self._most_marks or marks * marks > self._left:
            return False
        self._left -= marks * marks
        return True


def parts_of(text: str, effort: Effort) -> list[Part]:
    """Return all characters of the text in their order, in runs, with properly nested tags between them."""
    whole: list[Part] = [Run(0, len(text))]
    if not effort.allows(text):
        return whole
    parts = list(_parts(text, _INLINE_PARSER.inline.parse(text, _INLINE_PARSER, {}, [])))
    return parts if _is_whole(parts, len(text)) else whole


def _parts(text: str, tokens: Sequence[Token]) -> Iterator[Part]:
    at = 0
    for token in tokens:
        if _AT not in token.meta:
            continue
        start, stop = token.meta[_AT]
        if start != at:
            yield Run(at, start)
        yield from _of_token(text, token, start, stop)
        at = stop
    if at < len(text):
        yield Run(at, len(text))


def _of_token(text: str, token: Token, start: int, stop: int) -> Iterator[Part]:
    match token.type:
        case "em_open" | "strong_open" | "s_open":
            yield Open(token.tag)
            yield Run(start, stop, "m")
        case "em_close" | "strong_close" | "s_close":
            yield Run(start, stop, "m")
            yield Close(token.tag)
        case "link_open":
            yield Open("a", _target(text[start : token.meta[_END]], token))
        case "link_close":
            yield Close("a")
        case "code_inline":
            size = len(token.markup)
            yield Open("code")
            yield from (Run(start, start + size, "m"), Run(start + size, stop - size), Run(stop - size, stop, "m"))
            yield Close("code")
        case "html_inline":
            yield Run(start, stop, "raw")
        case "image":
            yield Run(start, stop, "to")
        case "softbreak":
            yield Run(start, stop)
        case "hardbreak":
            yield Run(start, stop, "br")
        case _:
            # One of two asterisks has no content any more; one that is not a mark has.
            yield Run(start, stop, "" if token.content else "m")


def _target(text: str, token: Token) -> str:
    """Return an address that stands literally in the link's own text: the reader sees what the link opens."""
    href = str(token.attrGet("href") or "")
    return href if href.lower().startswith(_LINKS) and href in text else ""


def _is_whole(parts: Sequence[Part], size: int) -> bool:
    at = 0
    opened: list[str] = []
    for part in parts:
        match part:
            case Run():
                if part.start != at or part.stop < at:
                    return False
                at = part.stop
            case Open():
                opened.append(part.tag)
            case Close():
                if not opened or opened.pop() != part.tag:
                    return False
    return at == size and not opened


def _tracked(rule: Rule) -> Rule:
    """Note on each token of the rule where its characters are. The parser itself keeps only what they mean."""

    def run(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.tokens) + bool(state.pending)
        if not rule(state, silent):
            return False
        made = [] if silent else state.tokens[known:]
        if made and made[0].type == "link_open":
            made[0].meta = {_AT: (start, start), _END: state.pos}
            made[-1].meta = {_AT: (state.pos, state.pos)}
        elif len(made) == 1:
            made[0].meta = {_AT: (start, state.pos)}
        else:
            for token in made:
                token.meta = {_AT: (start, start + len(token.content))}
                start += len(token.content)
        return True

    return run


def _inline_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": _DEEPEST}).enable("strikethrough")
    rules: dict[str, Rule] = {
        "newline": line_break,
        "escape": escape,
        "backticks": backtick,
        "strikethrough": strike.tokenize,
        "emphasis": emphasis.tokenize,
        "link": link,
        "image": image,
        "autolink": autolink,
        "html_inline": html_inline,
    }
    for name, rule in rules.items():
        parser.inline.ruler.at(name, _tracked(rule))
    # It would join marks with the text before them.
    parser.inline.ruler2.disable("fragments_join")
    return parser


_INLINE_PARSER = _inline_parser()
