"""The content that a diff makes of a file, with every hunk exactly at the line that its header names.

git also finds a hunk's place by its context, some lines further up or down. This module does not: what it returns is
what a reader of the diff expects, and a claim compares git's result with it.
"""

from gsd_review_broker.domain.patch.reading import FilePatch, Hunk


def applied(diff: bytes, file: FilePatch, base: bytes, *, reverse: bool = False) -> bytes | None:
    """The file's content after its hunks; None if one of them does not match at its own line."""
    lines = lines_with_ends(base)
    result: list[bytes] = []
    position = 0
    for hunk in file.hunks:
        old, new = _sides(diff, hunk)
        start, target = _first(hunk.old_start, hunk.old_count), _first(hunk.new_start, hunk.new_count)
        if reverse:
            old, new, start, target = new, old, target, start
        if start < position or lines[start : start + len(old)] != old:
            return None
        result += lines[position:start]
        if len(result) != target:
            return None
        result += new
        position = start + len(old)
    result += lines[position:]
    # Only the last line of a file may be without a line feed.
    if any(not line.endswith(b"\n") for line in result[:-1]):
        return None
    return b"".join(result)


def lines_with_ends(content: bytes) -> list[bytes]:
    """Each line with its line feed; the last one may lack it."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _first(start: int, count: int) -> int:
    """The index of a hunk's first line. A side without lines names the line before it."""
    return start - 1 if count else start


def _sides(diff: bytes, hunk: Hunk) -> tuple[list[bytes], list[bytes]]:
    old: list[bytes] = []
    new: list[bytes] = []
    last: tuple[list[bytes], ...] = ()
    for line in lines_with_ends(diff[hunk.body : hunk.end]):
        kind = line[:1]
        if kind == b"\\":
            for side in last:
                side[-1] = side[-1].removesuffix(b"\n")
            continue
        last = {b"-": (old,), b"+": (new,)}.get(kind, (old, new))
        # Some programs drop the space of an empty context line.
        text = line if kind == b"\n" else line[1:]
        for side in last:
            side.append(text)
    return old, new
