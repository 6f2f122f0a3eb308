"""Places in a diff: the lines that it shows of each file, and the pages that it is cut into."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from gsd_review_broker.domain.patch.reading import FilePatch, UnreadableDiffError, read, readable_part
from gsd_review_broker.domain.words import Anchor, Side


@dataclass(frozen=True, slots=True)
class PatchLine:
    """`kind` is a space, + or -. The number is None on a side that does not have the line."""

    kind: str
    text: str
    old: int | None
    new: int | None
    # Only the last line of a file may be without a line feed.
    is_ended: bool = True

    def number(self, side: Side) -> int | None:
        return self.new if side is Side.NEW else self.old


def lines_of(diff: bytes, file: FilePatch) -> Iterator[PatchLine]:
    for hunk in file.hunks:
        old, new = hunk.old_start, hunk.new_start
        raw_lines = diff[hunk.body : hunk.end].removesuffix(b"\n").split(b"\n")
        for raw, following in zip_longest(raw_lines, raw_lines[1:], fillvalue=b""):
            kind, text = chr(raw[0]) if raw else " ", raw[1:].decode("utf-8", "replace")
            is_ended = not following.startswith(b"\\")
            match kind:
                case "+":
                    yield PatchLine("+", text, None, new, is_ended)
                    new += 1
                case "-":
                    yield PatchLine("-", text, old, None, is_ended)
                    old += 1
                case " ":
                    yield PatchLine(" ", text, old, new, is_ended)
                    old, new = old + 1, new + 1
                case _:
                    # "\ No newline at end of file" is about the line above; it is not a line itself.
                    continue


# A block in another file must have this much text to count as a match: a lone brace is everywhere.
_TELLING_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class LinePlace:
    path: str | None
    line_start: int | None
    line_end: int | None
    side: Side
    anchor: Anchor
    text: str | None


class ShownLines:
    """The lines that a diff shows, indexed once for all findings."""

    def __init__(self, diff: bytes | None) -> None:
        self._diff = diff or b""
        try:
            self._files = read(self._diff) if diff else ()
        except UnreadableDiffError:
            self._files = ()
        self._cache: dict[tuple[int, Side], list[tuple[int, str]]] = {}

    def _shown(self, file: FilePatch, side: Side) -> list[tuple[int, str]]:
        key = file.start, side
        if key not in self._cache:
            numbered = ((line.number(side), line.text) for line in lines_of(self._diff, file))
            self._cache[key] = [(number, text) for number, text in numbered if number is not None]
        return self._cache[key]

    def place(self, path: str | None, line_start: int | None, line_end: int | None, side: Side) -> LinePlace:
        """Place a range. It is anchored if the diff shows both ends on that side."""
        end = line_end if line_end is not None else line_start
        nowhere = LinePlace(path, line_start, end, side, Anchor.UNANCHORED, None)
        if path is None or line_start is None or end is None or end < line_start:
            return nowhere
        for file in self._files:
            if path not in {file.new_path, file.old_path}:
                continue
            shown = dict(self._shown(file, side))
            if line_start in shown and end in shown:
                text = "\n".join(shown[number] for number in range(line_start, end + 1) if number in shown)
                return LinePlace(path, line_start, end, side, Anchor.ANCHORED, text)
        return nowhere

    def find_again(self, place: LinePlace) -> LinePlace:
        """Find the same text in this diff: in its file, under the file's new name, or moved to another file.

        A place that is not found again is kept and marked outdated. A finding without a place stays without.
        """
        if place.text is None:
            return place
        wanted = place.text.split("\n")
        near = place.line_start or 1
        own = [file for file in self._files if place.path in {file.new_path, file.old_path}]
        match = self._nearest(own, wanted, place.side, near)
        if match is None and len(place.text.strip()) >= _TELLING_CHARACTERS:
            others = [file for file in self._files if file not in own]
            match = self._nearest(others, wanted, place.side, near)
        if match is None:
            return LinePlace(place.path, place.line_start, place.line_end, place.side, Anchor.OUTDATED, place.text)
        path, start, end = match
        return LinePlace(path, start, end, place.side, Anchor.ANCHORED, place.text)

    def _nearest(self, files: list[FilePatch], wanted: list[str], side: Side, near: int) -> tuple[str, int, int] | None:
        best: tuple[str, int, int] | None = None
        for file in files:
            shown = self._shown(file, side)
            texts = [text for _, text in shown]
            for index in _occurrences(texts, wanted):
                start, end = shown[index][0], shown[index + len(wanted) - 1][0]
                if best is None or abs(start - near) < abs(best[1] - near):
                    best = file.path, start, end
        return best


def _occurrences(texts: list[str], wanted: list[str]) -> list[int]:
    size = len(wanted)
    return [
        index
        for index in range(len(texts) - size + 1)
        if texts[index] == wanted[0] and texts[index : index + size] == wanted
    ]


PAGE_CHARACTERS = 30_000
PAGE_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Page:
    text: str
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class _Room:
    """The room that is left on a page."""

    characters: int = PAGE_CHARACTERS
    lines: int = PAGE_LINES

    def after(self, text: str) -> "_Room":
        return _Room(self.characters - len(text), self.lines - text.count("\n"))


def page_of(diff: bytes, offset: int, *, path: str | None = None) -> Page:
    """Cut the page that begins at this byte of a UTF-8 diff; with `path`, of one file alone."""
    begin = _start_of_character(diff, offset)
    if path is None and _limit(diff, begin, len(diff), _Room()) == len(diff):
        return Page(diff[begin:].decode("utf-8"), None)
    files = readable_part(diff)
    if path is None:
        spans = [(0, len(diff))]
    else:
        spans = [(file.start, file.end) for file in files if path in {file.new_path, file.old_path}]
    return _page(diff, [(max(start, begin), end) for start, end in spans if end > begin], _borders(files))


def _page(diff: bytes, spans: list[tuple[int, int]], borders: list[int]) -> Page:
    text, room = "", _Room()
    for begin, end in spans:
        stop = _fitting(diff, begin, end, room, borders, must_move=not text)
        piece = diff[begin:stop].decode("utf-8")
        text, room = text + piece, room.after(piece)
        if stop < end:
            return Page(text, stop)
    return Page(text, None)


def _start_of_character(diff: bytes, offset: int) -> int:
    offset = max(0, offset)
    while offset < len(diff) and diff[offset] & 0xC0 == 0x80:  # noqa: PLR2004 - UTF-8's continuation bytes
        offset += 1
    return offset


def _borders(files: tuple[FilePatch, ...]) -> list[int]:
    """Find the borders of files and hunks; a header stays with its first hunk."""
    return [start for file in files for start in (file.start, *(hunk.start for hunk in file.hunks[1:]))]


def _fitting(diff: bytes, begin: int, end: int, room: _Room, borders: list[int], *, must_move: bool) -> int:
    """End the page at a file's or hunk's border, else at the end of a line, else inside the line."""
    limit = _limit(diff, begin, end, room)
    if limit == end:
        return end
    border = bisect_right(borders, limit) - 1
    if border >= 0 and borders[border] > begin:
        return borders[border]
    if not must_move:
        return begin
    line = diff.rfind(b"\n", begin, limit) + 1
    return line or limit


def _limit(diff: bytes, begin: int, end: int, room: _Room) -> int:
    """Find the last byte that fits, never inside a character."""
    window = diff[begin : min(end, begin + 4 * room.characters)].decode("utf-8", "ignore")[: room.characters]
    position = -1
    for _ in range(room.lines):
        position = window.find("\n", position + 1)
        if position < 0:
            return begin + len(window.encode("utf-8"))
    return begin + len(window[: position + 1].encode("utf-8"))
