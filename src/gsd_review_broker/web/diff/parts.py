"""Cuts a large file into parts: one answer has a bounded number of lines and characters, and says where the rest
begins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gsd_review_broker.web.diff.document import Row, ShownHunk
from gsd_review_broker.web.diff.highlighting import Pieces

PART_LINES = 5_000
# A hidden character takes up to sixty bytes of HTML.
PART_CHARACTERS = 250_000
# A longer line is cut when it is shown, so it costs no more than this.
LONGEST_LINE = 5_000


@dataclass(frozen=True, slots=True)
class Part:
    hunks: tuple[ShownHunk, ...]
    pieces: tuple[Sequence[Pieces], ...]
    # Lines of the file that come after this part.
    left: int


def part_of(hunks: Sequence[ShownHunk], pieces: Sequence[Sequence[Pieces]], number: int) -> Part | None:
    """None if the file has fewer parts."""
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
    """The part that shows this line; the first part if none does."""
    at = 0
    for hunk in hunks:
        for row in hunk.rows:
            if (row.old if side == "o" else row.new) == line:
                return next(number for number, (start, stop) in enumerate(_bounds(hunks)) if start <= at < stop)
            at += 1
    return 0


def _bounds(hunks: Sequence[ShownHunk]) -> Iterator[tuple[int, int]]:
    """Where each part begins and ends, counted in lines of the whole file."""
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
