"""What the author changed between two versions of a diff, and not what moved under it.

Both diffs are read as lines that are in the result (context and added) or are not (removed). Lines that only
one of them shows as context come from the base, or from a wider view, and are nobody's change. The outcome
reads like a unified diff from the old result to the new one; it is to be read, not applied.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from gsd_review_broker.patch.lines import Line, lines_of
from gsd_review_broker.patch.reading import FilePatch, UnreadableDiffError, read

_CONTEXT = 3
# Matching is quadratic at worst; past this, a differing block is shown as replaced whole.
_LARGEST_MATCH = 4_000_000


@dataclass(frozen=True, slots=True)
class _Shown:
    """A line of the outcome, with its number in the old and in the new result."""

    kind: str
    text: str
    old: int
    new: int


def interdiff(old: bytes | None, new: bytes | None) -> str:
    """Empty if the author changed nothing."""
    try:
        before = _by_path(old)
        after = _by_path(new)
    except UnreadableDiffError:
        # One of them is no diff that can be read: the whole new one is what there is to look at.
        return "" if old == new else (new or b"").decode("utf-8")
    paths = [*after, *(path for path in before if path not in after)]
    return "".join(_file(old or b"", before.get(path), new or b"", after.get(path)) for path in paths)


def _by_path(diff: bytes | None) -> dict[str, FilePatch]:
    return {file.path: file for file in read(diff)} if diff else {}


def _file(old: bytes, before: FilePatch | None, new: bytes, after: FilePatch | None) -> str:
    before_lines = list(lines_of(old, before)) if before else []
    after_lines = list(lines_of(new, after)) if after else []
    hunks = _hunks(list(_compared(before_lines, after_lines)))
    notes = _notes(old, before, new, after)
    if not hunks and not notes:
        return ""
    path = after.path if after else before.path if before else ""
    return f"diff --git a/{path} b/{path}\n{notes}--- a/{path}\n+++ b/{path}\n{hunks}"


def _notes(old: bytes, before: FilePatch | None, new: bytes, after: FilePatch | None) -> str:
    """What is not in the lines: files that come and go, renames, modes, binary content."""
    if after is None:
        return "(no longer touched)\n"
    if before is None:
        return f"(newly touched: {after.operation.value})\n"
    notes: list[str] = []
    if (before.operation, before.old_path) != (after.operation, after.old_path):
        notes.append(f"({before.operation.value} became {after.operation.value}, from {after.old_path})\n")
    if before.new_mode != after.new_mode:
        notes.append(f"(mode {before.new_mode} became {after.new_mode})\n")
    if (before.binary or after.binary) and old[before.start : before.end] != new[after.start : after.end]:
        notes.append("(binary content changed)\n")
    return "".join(notes)


def _is_there(line: Line) -> bool:
    return line.kind != "-"


def _compared(before: list[Line], after: list[Line]) -> Iterator[_Shown]:
    """Every line worth showing, in the order of the new diff."""
    old_at = new_at = 0
    for tag, b_start, b_end, a_start, a_end in _blocks(before, after):
        if tag == "equal":
            for one, other in zip(before[b_start:b_end], after[a_start:a_end], strict=True):
                if _is_there(other):
                    old_at, new_at = one.new or old_at, other.new or new_at
                    yield _Shown(" ", other.text, old_at, new_at)
            continue
        for shown in _changed(before[b_start:b_end], after[a_start:a_end]):
            if shown.kind != "+":
                old_at = shown.number_before or old_at + 1
            if shown.kind != "-":
                new_at = shown.number_after or new_at + 1
            yield _Shown(shown.kind, shown.text, old_at, new_at)


@dataclass(frozen=True, slots=True)
class _Change:
    kind: str
    text: str
    number_before: int | None
    number_after: int | None


def _changed(before: list[Line], after: list[Line]) -> Iterator[_Change]:
    """A block that differs. Restored: removed before, context now. Dropped: added before, gone now."""
    removed_before = {line.text for line in before if line.kind == "-"}
    for line in before:
        if line.kind == "+":
            yield _Change("-", line.text, line.new, None)
        elif line.kind == "-" and not after:
            # The whole block is gone from the diff, so what it removed is back.
            yield _Change("+", line.text, None, None)
    for line in after:
        if line.kind == "-":
            yield _Change("-", line.text, None, None)
        elif line.kind == "+" or line.text in removed_before:
            yield _Change("+", line.text, None, line.new)


def _blocks(before: list[Line], after: list[Line]) -> Iterator[tuple[str, int, int, int, int]]:
    one = [(_is_there(line), line.text) for line in before]
    other = [(_is_there(line), line.text) for line in after]
    head = 0
    while head < min(len(one), len(other)) and one[head] == other[head]:
        head += 1
    tail = 0
    while tail < min(len(one), len(other)) - head and one[-1 - tail] == other[-1 - tail]:
        tail += 1
    end, other_end = len(one) - tail, len(other) - tail
    yield "equal", 0, head, 0, head
    if (end - head) * (other_end - head) > _LARGEST_MATCH:
        yield "replace", head, end, head, other_end
    else:
        matcher = SequenceMatcher(None, one[head:end], other[head:other_end], autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            yield tag, head + i1, head + i2, head + j1, head + j2
    yield "equal", end, len(one), other_end, len(other)


def _hunks(shown: list[_Shown]) -> str:
    """The changed lines with a little context, under headers that say where."""
    changed = [index for index, line in enumerate(shown) if line.kind != " "]
    if not changed:
        return ""
    ranges: list[tuple[int, int]] = []
    for index in changed:
        start, end = max(0, index - _CONTEXT), min(len(shown), index + _CONTEXT + 1)
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((start, end))
    return "".join(_hunk(shown[start:end]) for start, end in ranges)


def _hunk(lines: list[_Shown]) -> str:
    old = [line for line in lines if line.kind != "+"]
    new = [line for line in lines if line.kind != "-"]
    old_start = old[0].old if old else lines[0].old
    new_start = new[0].new if new else lines[0].new
    body = "".join(f"{line.kind}{line.text}\n" for line in lines)
    return f"@@ -{old_start},{len(old)} +{new_start},{len(new)} @@\n{body}"
