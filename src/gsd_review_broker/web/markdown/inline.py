"""The marks inside a paragraph. The parser only says where something begins and ends: the text is always the source."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, autolink, backtick, emphasis, escape, html_inline, image, link
from markdown_it.rules_inline import newline as line_break
from markdown_it.rules_inline import strikethrough as strike
from markdown_it.token import Token

MARKS = re.compile(r"[\[\]()!*_`~|<>&\\]")
_LINKS = ("http://", "https://", "mailto:")
_AT, _END = "at", "end"
_DEEPEST = 20

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
    """All characters of the text in their order, in runs, with tags between them that are properly nested."""
    whole: list[Part] = [Run(0, len(text))]
    if not effort.allows(text):
        return whole
    parts = list(_parts(text, _PARSER.inline.parse(text, _PARSER, {}, [])))
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
    """Only an address that stands in the link's own text as it is: what is opened is what is read."""
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
    """Notes on each token of the rule where its characters are. The parser itself keeps only what they mean."""

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


def _make() -> MarkdownIt:
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


_PARSER = _make()
