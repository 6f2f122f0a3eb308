"""From rows to HTML. All text from a diff passes through `visible`; no other function makes markup of it.

Optional HTML tags are left out: a large diff is mostly tags. A large file is cut into parts: one answer has a bounded
number of lines and characters, and says where the rest begins.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from markupsafe import Markup

from gsd_review_broker.web.addresses import LineName
from gsd_review_broker.web.diff.document import Row, ShownFile, ShownHunk
from gsd_review_broker.web.diff.highlighting import Pieces
from gsd_review_broker.web.text import visible

PART_LINES = 5_000
# A hidden character takes up to sixty bytes of HTML.
PART_CHARACTERS = 250_000
# A longer line is cut when it is shown, so it costs no more than this.
LONGEST_LINE = 5_000
_CLASSES = {"+": "a", "-": "d", " ": "x", "\\": "z"}
# Comparing words is quadratic. After this time, the remaining lines are shown without marks.
_MARKING_SECONDS = 1.0
# What stands below a line: threads and the form, by side ("o" or "n") and number.
Below = Callable[[str, int], Markup]
Marks = tuple[tuple[int, int], ...]
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
# Matching is quadratic. A line with more words than this is shown as changed completely.
_MOST_WORDS = 250
# Two lines less alike than this are not versions of each other.
_ALIKE = 0.4


@dataclass(frozen=True, slots=True)
class Part:
    hunks: tuple[ShownHunk, ...]
    pieces: tuple[Sequence[Pieces], ...]
    # Lines of the file that come after this part.
    left: int


def part_of(hunks: Sequence[ShownHunk], pieces: Sequence[Sequence[Pieces]], number: int) -> Part | None:
    """Return the part with this number; None if the file has fewer parts."""
    bounds = list(_bounds(hunks))
    if not 0 <= number < max(1, len(bounds)):
        return None
    start, stop = bounds[number] if bounds else (0, 0)
    shown: list[ShownHunk] = []
    colours: list[Sequence[Pieces]] = []
    at = 0
    for hunk, of_hunk in zip(hunks, pieces, strict=True):
        first, last = max(start - at, 0), min(stop - at, len(hunk.rows))
        if first < last:
            shown.append(replace(hunk, rows=hunk.rows[first:last]))
            colours.append(of_hunk[first:last])
        at += len(hunk.rows)
    return Part(tuple(shown), tuple(colours), at - stop)


def part_with(hunks: Sequence[ShownHunk], side: str, line: int) -> int:
    """Find the part that shows this line; the first part if none does."""
    at = 0
    for hunk in hunks:
        for row in hunk.rows:
            if (row.old if side == "o" else row.new) == line:
                return next(number for number, (start, stop) in enumerate(_bounds(hunks)) if start <= at < stop)
            at += 1
    return 0


def _bounds(hunks: Sequence[ShownHunk]) -> Iterator[tuple[int, int]]:
    """Yield where each part begins and ends, in lines of the whole file."""
    start = at = characters = 0
    for row in _rows(hunks):
        size = min(len(row.text), LONGEST_LINE)
        if at > start and (at - start == PART_LINES or characters + size > PART_CHARACTERS):
            yield start, at
            start, characters = at, 0
        characters += size
        at += 1
    if at > start:
        yield start, at


def _rows(hunks: Sequence[ShownHunk]) -> Iterator[Row]:
    for hunk in hunks:
        yield from hunk.rows


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    split: bool = False
    ignore_space: bool = False
    # The target of a click on a line's number; the line's name is appended. Empty: comments are not possible here.
    comment_link: str = ""
    # In the heading of each hunk.
    more: Markup | str = ""


@dataclass(frozen=True, slots=True)
class _RowHtml:
    row: Row
    html: str


def file_table(
    file: ShownFile, hunks: Sequence[ShownHunk], pieces: Sequence[Sequence[Pieces]], view: View, below: Below
) -> Markup:
    show = _split if view.split else _unified
    marks_until = time.monotonic() + _MARKING_SECONDS
    rows: list[str] = []
    for hunk, colours in zip(hunks, pieces, strict=True):
        rows.append(f'<tr class="h"><td colspan="4">{visible(hunk.heading)} {view.more}')
        rows.extend(show(file, _lines(hunk, colours, view, marks_until), view, below))
    kind = "split" if view.split else "unified"
    columns = '<colgroup><col class="n"><col><col class="n"><col></colgroup>' if view.split else ""
    caption = f'<caption class="vh">{visible(file.path)}</caption>'
    return Markup(f'<table class="diff {kind}">{caption}{columns}<tbody>{"".join(rows)}</table>')  # noqa: S704 - of visible() text


def _lines(hunk: ShownHunk, colours: Sequence[Pieces], view: View, marks_until: float) -> list[_RowHtml]:
    """Make the markup of each row; in a block of changes, mark the words that changed."""
    lines: list[_RowHtml] = []
    for block in _blocks(list(zip(hunk.rows, colours, strict=True))):
        removed = [pair for pair in block if pair[0].kind == "-"]
        added = [pair for pair in block if pair[0].kind == "+"]
        if view.ignore_space and _is_space_only(removed, added):
            for (old, _), (new, shown) in zip(removed, added, strict=True):
                lines.append(_RowHtml(Row(" ", new.text, old.old, new.new), _code(shown, ())))
            continue
        marks: dict[int, Marks] = {}
        for (old, _), (new, _) in zip(removed, added, strict=False):
            if time.monotonic() > marks_until:
                break
            marks[id(old)], marks[id(new)] = changed_words(old.text, new.text)
        lines += [_RowHtml(row, _code(shown, marks.get(id(row), ()))) for row, shown in block]
    return lines


def _blocks(pairs: list[tuple[Row, Pieces]]) -> Iterator[list[tuple[Row, Pieces]]]:
    """Yield runs of changed rows, and every other row alone."""
    block: list[tuple[Row, Pieces]] = []
    for pair in pairs:
        if pair[0].kind in "+-":
            # Removals after additions begin another block.
            if block and pair[0].kind == "-" and block[-1][0].kind == "+":
                yield block
                block = []
            block.append(pair)
            continue
        if block and pair[0].kind != "\\":
            yield block
            block = []
        if pair[0].kind == "\\" and block:
            block.append(pair)
        else:
            yield [pair]
    if block:
        yield block


def _is_space_only(removed: list[tuple[Row, Pieces]], added: list[tuple[Row, Pieces]]) -> bool:
    if not removed or len(removed) != len(added):
        return False
    return all(
        "".join(o.text.split()) == "".join(n.text.split()) for (o, _), (n, _) in zip(removed, added, strict=True)
    )


def _code(pieces: Pieces, marks: Marks) -> str:
    """Cut the pieces where a mark begins or ends."""
    out: list[str] = []
    at = 0
    for kind, text in pieces:
        if at >= LONGEST_LINE:
            out.append('<span class="hid">…</span>')
            break
        kept = text[: LONGEST_LINE - at]
        for part, is_marked in _cut(kept, at, marks):
            shown = f"<b>{visible(part)}</b>" if is_marked else visible(part)
            out.append(f'<span class="{kind}">{shown}</span>' if kind else str(shown))
        at += len(kept)
    return "".join(out)


def _cut(text: str, at: int, marks: Marks) -> Iterator[tuple[str, bool]]:
    end = at + len(text)
    place = at
    for start, stop in marks:
        if stop <= place or start >= end:
            continue
        if start > place:
            yield text[place - at : start - at], False
        yield text[max(start, place) - at : min(stop, end) - at], True
        place = min(stop, end)
    if place < end:
        yield text[place - at :], False


# One table row for each line.


def _unified(file: ShownFile, lines: list[_RowHtml], view: View, below: Below) -> Iterator[str]:
    for line in lines:
        row = line.row
        side, number = ("o", row.old) if row.kind == "-" else ("n", row.new)
        name = str(LineName(file.index, side, number)) if number is not None else ""
        old = _number(row.old, name if row.kind == "-" else "", view)
        new = _number(row.new, name if row.kind != "-" else "", view)
        mark = row.kind if row.kind in "+-" else " "
        anchor = f' id="{name}"' if name else ""
        yield f'<tr class="{_CLASSES[row.kind]}"{anchor}><td>{old}<td>{new}<td>{mark}<td>{line.html}'
        yield from _threads(row, below)


def _threads(row: Row, below: Below) -> Iterator[str]:
    for side, number in (("o", row.old), ("n", row.new)):
        shown = below(side, number) if number is not None else ""
        if shown:
            yield f'<tr class="t"><td colspan="4">{shown}'


def _number(number: int | None, name: str, view: View) -> str:
    if number is None:
        return ""
    if not name or not view.comment_link:
        return str(number)
    return f'<a href="{view.comment_link}{name}#{name}">{number}</a>'


def _split(file: ShownFile, lines: list[_RowHtml], view: View, below: Below) -> Iterator[str]:
    left: list[_RowHtml] = []
    right: list[_RowHtml] = []
    for line in lines:
        match line.row.kind:
            case "-":
                if right:
                    yield from _side_by_side(file, left, right, view, below)
                    left, right = [], []
                left.append(line)
            case "+":
                right.append(line)
            case _:
                yield from _side_by_side(file, left, right, view, below)
                left, right = [], []
                yield from _side_by_side(file, [line], [line], view, below)
    yield from _side_by_side(file, left, right, view, below)


def _side_by_side(
    file: ShownFile, left: list[_RowHtml], right: list[_RowHtml], view: View, below: Below
) -> Iterator[str]:
    for index in range(max(len(left), len(right))):
        old = left[index] if index < len(left) else None
        new = right[index] if index < len(right) else None
        anchor = f' id="{LineName(file.index, "n", new.row.new)}"' if new and new.row.new is not None else ""
        yield f"<tr{anchor}>{_half(file, old, 'o', view)}{_half(file, new, 'n', view)}"
        if old is not None and old is new:
            yield from _threads(old.row, below)
            continue
        for line in (old, new):
            if line is not None:
                yield from _threads(line.row, below)


def _half(file: ShownFile, line: _RowHtml | None, side: str, view: View) -> str:
    if line is None:
        return '<td class="e"><td class="e">'
    number = line.row.old if side == "o" else line.row.new
    is_own = line.row.kind == "-" if side == "o" else line.row.kind != "-"
    name = str(LineName(file.index, side, number)) if number is not None and is_own else ""
    kind = _CLASSES[line.row.kind]
    anchor = f' id="{name}"' if name and side == "o" else ""
    return f'<td class="{kind}"{anchor}>{_number(number, name, view)}<td class="{kind}">{line.html}'


def changed_words(old: str, new: str) -> tuple[Marks, Marks]:
    """Find the ranges of characters that differ; empty if the lines have too little in common."""
    before, after = _words(old), _words(new)
    if not before or not after:
        return (), ()
    matcher = SequenceMatcher(None, [word for _, word in before], [word for _, word in after], autojunk=False)
    if matcher.ratio() < _ALIKE:
        return (), ()
    olds: list[tuple[int, int]] = []
    news: list[tuple[int, int]] = []
    for tag, a_start, a_end, b_start, b_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        _add(olds, before[a_start:a_end])
        _add(news, after[b_start:b_end])
    return tuple(olds), tuple(news)


def _words(text: str) -> list[tuple[int, str]]:
    words = [(match.start(), match.group()) for match in _WORD.finditer(text)]
    return words if len(words) <= _MOST_WORDS else []


def _add(ranges: list[tuple[int, int]], words: list[tuple[int, str]]) -> None:
    if words:
        last, word = words[-1]
        ranges.append((words[0][0], last + len(word)))
