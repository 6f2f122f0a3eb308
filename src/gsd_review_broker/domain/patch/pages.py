"""Cuts a large diff into pages that fit what agents' clients show their model. The joined pages are the diff."""

from bisect import bisect_right
from dataclasses import dataclass

from gsd_review_broker.domain.patch.reading import FilePatch, readable_part

PAGE_CHARACTERS = 30_000
PAGE_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Page:
    text: str
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class _Room:
    """What is left of a page."""

    characters: int = PAGE_CHARACTERS
    lines: int = PAGE_LINES

    def after(self, text: str) -> "_Room":
        return _Room(self.characters - len(text), self.lines - text.count("\n"))


def page_of(diff: bytes, offset: int, *, path: str | None = None) -> Page:
    """The page that begins at this byte of a UTF-8 diff. `path` narrows to the one file (to nothing, if it
    is not touched)."""
    begin = _start_of_character(diff, offset)
    if path is None and _limit(diff, begin, len(diff), _Room()) == len(diff):
        return Page(diff[begin:].decode("utf-8"), None)
    files = readable_part(diff)
    spans = [(0, len(diff))] if path is None else _spans(files, path)
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


def _spans(files: tuple[FilePatch, ...], path: str) -> list[tuple[int, int]]:
    return [(file.start, file.end) for file in files if path in {file.new_path, file.old_path}]


def _borders(files: tuple[FilePatch, ...]) -> list[int]:
    """Between files and between hunks; a header stays with its first hunk."""
    return [start for file in files for start in (file.start, *(hunk.start for hunk in file.hunks[1:]))]


def _fitting(diff: bytes, begin: int, end: int, room: _Room, borders: list[int], *, must_move: bool) -> int:
    """Where the page ends: at a file's or hunk's border, else at the end of a line, else inside the line."""
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
    """The last byte that fits, never inside a character."""
    window = diff[begin : min(end, begin + 4 * room.characters)].decode("utf-8", "ignore")[: room.characters]
    position = -1
    for _ in range(room.lines):
        position = window.find("\n", position + 1)
        if position < 0:
            return begin + len(window.encode("utf-8"))
    return begin + len(window[: position + 1].encode("utf-8"))
