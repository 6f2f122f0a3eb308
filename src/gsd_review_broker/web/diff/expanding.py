"""More of a file than its diff shows: lines around each hunk, or the whole file with the change in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gsd_review_broker.web.diff.document import Row, ShownHunk


@dataclass(frozen=True, slots=True)
class Span:
    """The lines of the base that a hunk replaces, counted from 0, and by how much later lines move."""

    start: int
    stop: int
    grows: int
    rows: tuple[Row, ...]


def expanded(spans: Sequence[Span], base: Sequence[str], around: int | None) -> list[ShownHunk]:
    """Hunks with `around` lines on both sides, all lines if it is None. Hunks that meet become one."""
    hunks: list[ShownHunk] = []
    rows: list[Row] = []
    at = moved = 0
    for number, span in enumerate(spans, 1):
        first = at if around is None else max(at, span.start - around)
        if rows and first > at:
            hunks.append(_hunk(rows))
            rows = []
        rows += _unchanged(base, first, span.start, moved)
        rows += span.rows
        moved += span.grows
        at = span.stop
        following = spans[number].start if number < len(spans) else len(base)
        last = min(following, len(base) if around is None else at + around)
        rows += _unchanged(base, at, last, moved)
        at = last
    return [*hunks, _hunk(rows)] if rows else hunks


def _unchanged(base: Sequence[str], start: int, stop: int, moved: int) -> Iterator[Row]:
    return (Row(" ", base[index], index + 1, index + 1 + moved) for index in range(start, stop))


def _hunk(rows: list[Row]) -> ShownHunk:
    olds = [row.old for row in rows if row.old is not None]
    news = [row.new for row in rows if row.new is not None]
    old, new = min(olds, default=0), min(news, default=0)
    return ShownHunk(f"@@ -{old},{len(olds)} +{new},{len(news)} @@", tuple(rows))
