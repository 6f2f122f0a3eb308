"""Markdown as HTML: a file of a diff as a page to read, and the prose of messages and descriptions.

A file has a row for each paragraph, with its line's number and its remarks. The rows have the same names as those of
the diff, so that links, remarks and keys work alike in both.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from threading import Lock

from markupsafe import Markup

from gsd_review_broker.domain.words import Operation
from gsd_review_broker.web.addresses import RENDERED, LineName, ReviewAddress
from gsd_review_broker.web.diff.document import Row, ShownFile, ShownHunk
from gsd_review_broker.web.diff.markdown import (
    DEEPEST_SHOWN,
    Block,
    Close,
    Effort,
    Kind,
    Open,
    Part,
    Run,
    blocks_of,
    parts_of,
)
from gsd_review_broker.web.diff.rendering import Below, View
from gsd_review_broker.web.text import visible

_ENDINGS = (".md", ".markdown")
_PLANNING = ".planning/"
_REGULAR = {None, "100644", "100755"}
# A longer file is shown as a diff, which comes in parts.
MOST_LINES = 3_000
MOST_CHARACTERS = 150_000
_LARGEST_ARIA_LEVEL = 6
# Characters of prose and of its HTML that are kept, for all texts together.
_MOST_KEPT = 4_000_000
_PIPE = re.compile(r"(?<!\\)\|")
_HTML_TAG = re.compile(r"<[^<>]*>")
# The mark at which a line begins: an element without text that carries the line's name.
LineStart = Callable[[int], str]


def can_be_rendered(file: ShownFile) -> bool:
    """Say whether this is a Markdown file with a new side. A symbolic link's content is a path, whatever its name."""
    is_text = not file.binary and file.new_mode in _REGULAR and file.operation != Operation.DELETE
    return is_text and file.lines > 0 and file.path.lower().endswith(_ENDINGS)


def is_rendered(file: ShownFile, address: ReviewAddress) -> bool:
    """Say whether the file is shown rendered: a plan is, unless revisions are compared."""
    if not can_be_rendered(file) or address.form:
        return can_be_rendered(file) and address.form == RENDERED
    is_comparison = address.since is not None or address.patch is not None
    return not is_comparison and (address.is_plan or f"/{file.path}".find(f"/{_PLANNING}") >= 0)


def is_too_large(hunks: Sequence[ShownHunk]) -> bool:
    sizes = [len(row.text) for hunk in hunks for row in hunk.rows]
    return len(sizes) > MOST_LINES or sum(sizes) > MOST_CHARACTERS


def page(file: ShownFile, hunks: Sequence[ShownHunk], view: View, below: Below, *, is_complete: bool) -> Markup:
    """`is_complete`: the hunks hold the whole file."""
    sheet = _Sheet(file, view, below)
    rows: list[str] = []
    if _has_windows_lines(hunks):
        hunks = [replace(hunk, rows=tuple(map(_without_return, hunk.rows))) for hunk in hunks]
        rows.append('<tr class="h"><td colspan="4">Each line ends with a carriage return and a line feed.')
    for hunk in hunks:
        news = [row.new for row in hunk.rows if row.new is not None]
        if not is_complete:
            lines = f"Lines {min(news)} to {max(news)}" if news else "Removed"
            rows.append(f'<tr class="h"><td colspan="4">{lines} {view.more}')
        rows.extend(sheet.rows_of(hunk))
    caption = f'<caption class="vh">{visible(file.path)}</caption>'
    return Markup(f'<table class="diff read">{caption}<tbody>{"".join(rows)}</table>')  # noqa: S704 - of visible() text


def prose(text: str) -> Markup:
    """Render a message or a description. Slow: call it in a thread."""
    return _RENDERED.get(text)


def _has_windows_lines(hunks: Sequence[ShownHunk]) -> bool:
    """Say whether all lines end as Windows ends them. Where only some do, each of these is marked."""
    texts = [row.text for hunk in hunks for row in hunk.rows if row.kind in "+- "]
    return bool(texts) and all(text.endswith("\r") for text in texts)


def _without_return(row: Row) -> Row:
    return replace(row, text=row.text.removesuffix("\r"))


@dataclass(slots=True)
class _Sheet:
    file: ShownFile
    view: View
    below: Below
    effort: Effort = field(default_factory=Effort)

    def rows_of(self, hunk: ShownHunk) -> Iterator[str]:
        shown: list[Row] = []
        removed: dict[int, list[Row]] = {}
        for row in hunk.rows:
            if row.kind in " +":
                shown.append(row)
            else:
                removed.setdefault(len(shown), []).append(row)
        lines = [row.text for row in shown]
        for block in blocks_of(lines, is_beginning=bool(shown) and shown[0].new == 1):
            for index in range(block.start, block.stop):
                for row in removed.pop(index, ()):
                    yield from self._line(row, Kind.CODE)
            yield from self._block(block, shown[block.start : block.stop])
        for rows in removed.values():
            for row in rows:
                yield from self._line(row, Kind.CODE)

    def _block(self, block: Block, rows: Sequence[Row]) -> Iterator[str]:
        match block.kind:
            case Kind.TEXT | Kind.HEADING:
                yield from self._text(block, rows)
            case Kind.TABLE:
                yield from self._table(rows)
            case kind:
                for row in rows:
                    yield from self._line(row, kind)

    def _line(self, row: Row, kind: Kind) -> Iterator[str]:
        if kind is Kind.MARKS and not row.text.strip(" \t"):
            # A blank line is a space between paragraphs; it has a name, for there may be a remark on it.
            yield f'<tr class="{self._change(row.kind)} blank"><td colspan="4">{self._anchor(row)}'
        else:
            yield self._row(row, kind.value, literal(row.text, kind))
        yield from self._threads([row])

    def _text(self, block: Block, rows: Sequence[Row]) -> Iterator[str]:
        texts = [row.text for row in rows]
        html = _shown_text(block, texts, self.effort, lambda number: self._anchor(rows[number]))
        changed = next((row for row in rows if row.kind == "+"), rows[0])
        yield self._row(rows[0], f"{block.kind.value}{_depth(block)}", html, changed.kind)
        yield from self._threads(rows)

    def _table(self, rows: Sequence[Row]) -> Iterator[str]:
        """Render a table within the cell: its own rows have the names and the remarks."""
        yield '<tr class="x"><td class="n"><td class="c"><table class="cells"><tbody>'
        for number, row in enumerate(rows):
            cells = cells_of(row.text, number, self.effort)
            yield f'<tr{self._name(row)} class="{self._change(row.kind)}"><td class="n">{self._number(row)}{cells}'
            yield from self._threads([row])
        yield "</table>"

    def _row(self, row: Row, kind: str, html: str, change: str = "") -> str:
        change = self._change(change or row.kind)
        mark = {"a": " +", "d": " -"}.get(change, "")
        cells = f'<td class="n">{self._number(row)}{mark}<td class="c">{html or "<br>"}'
        return f'<tr{self._name(row)} class="{change} {kind}">{cells}'

    def _change(self, kind: str) -> str:
        """Return the class of a change. In a new file everything is new, so its lines are not marked."""
        if self.file.operation == Operation.CREATE and kind == "+":
            return "x"
        return {"+": "a", "-": "d", " ": "x"}.get(kind, "z")

    def _key(self, row: Row) -> str:
        side, number = ("o", row.old) if row.kind == "-" else ("n", row.new)
        return str(LineName(self.file.index, side, number)) if number is not None else ""

    def _name(self, row: Row) -> str:
        key = self._key(row)
        return f' id="{key}"' if key else ""

    def _anchor(self, row: Row) -> str:
        return f"<span{self._name(row)}></span>"

    def _number(self, row: Row) -> str:
        key = self._key(row)
        number = row.old if row.kind == "-" else row.new
        if not key or not self.view.comment_link:
            return str(number or "")
        return f'<a href="{self.view.comment_link}{key}#{key}">{number}</a>'

    def _threads(self, rows: Sequence[Row]) -> Iterator[str]:
        for row in rows:
            for side, number in (("o", row.old), ("n", row.new)):
                shown = self.below(side, number) if number is not None else ""
                if shown:
                    yield f'<tr class="t"><td colspan="4">{shown}'


class _RenderedProse:
    """A cache: the same conversation is rendered again with each view of its page."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Markup] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def get(self, text: str) -> Markup:
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text]
        rendered = _prose(text)
        with self._lock:
            if text not in self._kept:
                self._kept[text] = rendered
                self._size += len(text) + len(rendered)
            while self._size > _MOST_KEPT:
                oldest, html_of_it = self._kept.popitem(last=False)
                self._size -= len(oldest) + len(html_of_it)
        return rendered


def _prose(text: str) -> Markup:
    lines = text.split("\n")
    if len(text) > MOST_CHARACTERS or len(lines) > MOST_LINES:
        return Markup('<pre class="as-written">{}</pre>').format(visible(text))
    effort = Effort()
    html: list[str] = []
    for kind, blocks in groupby(blocks_of(lines, is_beginning=False), lambda block: block.kind):
        if kind in {Kind.TEXT, Kind.HEADING, Kind.TABLE}:
            html += [_prose_block(block, lines[block.start : block.stop], effort) for block in blocks]
            continue
        literals = [line for block in blocks for line in lines[block.start : block.stop]]
        if any(line.strip(" \t") for line in literals):
            shown = "\n".join(literal(line, kind) for line in literals)
            html.append(f'<pre class="{kind.value}">{shown}</pre>')
    return Markup("".join(html))  # noqa: S704 - of visible() text


def _prose_block(block: Block, lines: Sequence[str], effort: Effort) -> str:
    if block.kind is Kind.TABLE:
        rows = "".join(f"<tr>{cells_of(line, number, effort)}" for number, line in enumerate(lines))
        return f"<table><tbody>{rows}</table>"
    return f'<div class="text{_depth(block)}">{_shown_text(block, lines, effort, lambda _: "")}</div>'


def _shown_text(block: Block, lines: Sequence[str], effort: Effort, start_of: LineStart) -> str:
    html = text_of(block, lines, effort, start_of)
    if block.kind is not Kind.HEADING:
        return html
    level = min(block.level + 2, _LARGEST_ARIA_LEVEL)
    return f'<div role="heading" aria-level="{level}" class="h{block.level}">{html}</div>'


def _depth(block: Block) -> str:
    return f" d{min(block.depth, DEEPEST_SHOWN)}" if block.depth else ""


def text_of(block: Block, lines: Sequence[str], effort: Effort, start_of: LineStart) -> str:
    """Render a paragraph or heading. Marks at the edges of its lines, such as those of lists and quotes, are dim."""
    around = [line.rpartition(body) if body else (line, "", "") for line, body in zip(lines, block.bodies, strict=True)]
    body = "\n".join(block.bodies)
    html = [_mark(around[0][0])]
    number = 0
    for part in parts_of(body, effort):
        if not isinstance(part, Run):
            html.append(_tag(part))
            continue
        first, *others = body[part.start : part.stop].split("\n")
        html.append(_styled(first, part.kind))
        for text in others:
            html.append(_mark(around[number][2]))
            number += 1
            before = around[number][0]
            html.append("<br>" if before.strip() or part.kind == "br" else "\n")
            html += [start_of(number), _mark(before), _styled(text, part.kind)]
    html.append(_mark(around[-1][2]))
    return "".join(html)


def cells_of(line: str, number: int, effort: Effort) -> str:
    """Render one line of a table. The second line holds only dashes, which are marks."""
    html: list[str] = []
    cells = list(_cells(line))
    for index, (pipe, text) in enumerate(cells):
        shown = _mark(text) if number == 1 else "".join(_part(text, part) for part in parts_of(text, effort))
        is_last_pipe = 0 < index == len(cells) - 1 and not text.strip()
        html.append("" if is_last_pipe else "<td>" if number else "<th>")
        html.append(_mark(pipe) + shown)
    return "".join(html)


def _cells(line: str) -> Iterator[tuple[str, str]]:
    """Yield each cell with the pipe before it; no cell is left out."""
    start = 0
    pipe = ""
    for match in _PIPE.finditer(line):
        text = line[start : match.start()]
        if pipe or text.strip():
            yield pipe, text
            text = ""
        pipe, start = text + "|", match.end()
    yield pipe, line[start:]


def literal(line: str, kind: Kind) -> Markup:
    """Render a line literally. Comments and HTML tags are marked, since other viewers hide them."""
    match kind:
        case Kind.MARKS:
            html = _mark(line)
        case Kind.COMMENT:
            html = _styled(line, "raw")
        case Kind.HTML:
            html = _with_tags(line)
        case _:
            html = visible(line)
    return Markup(html)  # noqa: S704 - of visible() text


def _with_tags(line: str) -> str:
    html: list[str] = []
    at = 0
    for match in _HTML_TAG.finditer(line):
        html += [visible(line[at : match.start()]), _styled(match.group(), "raw")]
        at = match.end()
    return "".join([*html, visible(line[at:])])


def _part(text: str, part: Part) -> str:
    return _styled(text[part.start : part.stop], part.kind) if isinstance(part, Run) else _tag(part)


def _tag(part: Open | Close) -> str:
    if isinstance(part, Close):
        return f"</{part.tag}>"
    if part.tag != "a":
        return f"<{part.tag}>"
    href = f' href="{visible(part.href)}" rel="noopener noreferrer nofollow"' if part.href else ""
    return f"<a{href}>"


def _mark(text: str) -> str:
    return _styled(text, "m")


def _styled(text: str, kind: str) -> str:
    shown = visible(text)
    return f'<span class="{kind}">{shown}</span>' if kind not in {"", "br"} and text.strip() else str(shown)


_RENDERED = _RenderedProse()
