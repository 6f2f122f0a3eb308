"""A large diff in pages that fit what agents' clients show their model. Joined, the pages are the diff."""

from dataclasses import dataclass

from gsd_review_broker.patch.reading import UnreadableDiffError, read

PAGE_CHARACTERS = 30_000
PAGE_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Page:
    text: str
    next_offset: int | None


def page_of(diff: bytes, offset: int, *, path: str | None = None) -> Page:
    """The page that begins at this byte. `path` narrows to the one file (nothing, if it is not touched)."""
    spans = _spans(diff, path)
    taken: list[bytes] = []
    left = PAGE_CHARACTERS, PAGE_LINES
    for start, end in spans:
        if end <= offset:
            continue
        begin = max(start, offset)
        stop = _fitting(diff, begin, end, left, must_move=not taken)
        taken.append(diff[begin:stop])
        if stop < end:
            return Page(_text(taken), stop)
        piece = taken[-1].decode("utf-8", "replace")
        left = left[0] - len(piece), left[1] - piece.count("\n")
    return Page(_text(taken), None)


def _text(pieces: list[bytes]) -> str:
    return b"".join(pieces).decode("utf-8")


def _spans(diff: bytes, path: str | None) -> list[tuple[int, int]]:
    if path is None:
        return [(0, len(diff))]
    try:
        files = read(diff)
    except UnreadableDiffError:
        return []
    return [(file.start, file.end) for file in files if path in {file.new_path, file.old_path}]


def _borders(diff: bytes) -> set[int]:
    try:
        files = read(diff)
    except UnreadableDiffError:
        return set()
    return {file.start for file in files} | {hunk.start for file in files for hunk in file.hunks}


def _fitting(diff: bytes, begin: int, end: int, left: tuple[int, int], *, must_move: bool) -> int:
    """As far as the page goes: to a file's or hunk's border, else to a line's, else inside the line."""
    limit = _limit(diff, begin, end, *left)
    if limit >= end:
        return end
    border = max((cut for cut in _borders(diff) if begin < cut <= limit), default=begin)
    if border > begin:
        return border
    if not must_move:
        return begin
    line = diff.rfind(b"\n", begin, limit) + 1
    return line if line > begin else limit


def _limit(diff: bytes, begin: int, end: int, characters: int, lines: int) -> int:
    """The last byte that fits, never inside a character."""
    window = diff[begin : min(end, begin + 4 * characters)].decode("utf-8", "ignore")[:characters]
    position = -1
    for _ in range(lines):
        position = window.find("\n", position + 1)
        if position < 0:
            return begin + len(window.encode("utf-8"))
    return begin + len(window[: position + 1].encode("utf-8"))
