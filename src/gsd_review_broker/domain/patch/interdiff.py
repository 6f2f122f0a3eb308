"""What the author changed between two versions of a diff, without what changed in the base.

Lines of the base are matched first. They are matched by number where both versions have the same base (their index
lines name the same blob, or their lines agree), and by text where the base moved. A line that one version keeps and the
other removes, and lines added between matched lines, are the author's changes.

The outcome reads like a unified diff from the old result to the new one. It is meant to be read, not applied.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby

from gsd_review_broker.domain.patch.places import PatchLine, lines_of
from gsd_review_broker.domain.patch.reading import FilePatch, UnreadableDiffError, read

_CONTEXT = 3
# Matching is quadratic at worst. Above this, a differing block is shown as replaced completely.
_LARGEST_MATCH = 4_000_000
_NO_LINE_FEED = "\n\\ No newline at end of file"
_UNTOLD = (
    "(No line that the author changed was found, but the two revisions differ: their hunks are at other lines, "
    "or their base has moved. The whole diff follows.)\n"
)


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line of the outcome, with its number in the old and in the new result."""

    kind: str
    text: str
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A file that the author treats differently now: its hunks, and notes on what the lines do not show."""

    path: str
    notes: str
    hunks: list[list[ShownLine]]


def interdiff(old: bytes | None, new: bytes | None, *, path: str | None = None) -> str:
    """Write the author's changes as text: of all files, or of one by its old or its new name."""
    try:
        return "".join(map(_as_text, compared(old, new, path=path)))
    except UnreadableDiffError:
        # One of the two diffs cannot be read, so the whole new diff is returned.
        return "" if old == new else (new or b"").decode("utf-8")


def shown_interdiff(old: bytes | None, new: bytes | None, *, path: str | None = None) -> str:
    """Write what a reviewer reads: without a line of the author's, the whole diff with a note."""
    text = interdiff(old, new, path=path)
    if text or old == new or interdiff(old, new):
        return text
    return _UNTOLD + (new or b"").decode("utf-8")


def compared(old: bytes | None, new: bytes | None, *, path: str | None = None) -> list[ComparedFile]:
    """Return the author's changes of each file. Raises UnreadableDiffError."""
    before, after = _by_path(old), _by_path(new)
    keys = [*after, *(key for key in before if key not in after)]
    if path is not None:
        keys = [key for key in keys if path in _names(before.get(key), after.get(key))]
    files = (_file(key, old or b"", before.get(key), new or b"", after.get(key)) for key in keys)
    return [file for file in files if file.hunks or file.notes]


def _names(before: FilePatch | None, after: FilePatch | None) -> set[str | None]:
    return {name for file in (before, after) if file for name in (file.path, file.old_path)}


_Key = tuple[str, int]


def _by_path(diff: bytes | None) -> dict[_Key, FilePatch]:
    """Number a path's sections: a file that becomes a link is removed and then created."""
    files: dict[_Key, FilePatch] = {}
    for file in read(diff) if diff else ():
        files[file.path, sum(file.path == path for path, _ in files)] = file
    return files


def _file(key: _Key, old: bytes, before: FilePatch | None, new: bytes, after: FilePatch | None) -> ComparedFile:
    before_lines = list(_lines(old, before)) if before else []
    after_lines = list(_lines(new, after)) if after else []
    agree = _same_blob(before, after) or _bases_agree(before_lines, after_lines)
    hunks = _hunks(list(_compared(before_lines, after_lines, same_base=agree)))
    return ComparedFile(key[0], _notes(old, before, new, after), hunks)


def _lines(diff: bytes, file: FilePatch) -> Iterator[PatchLine]:
    """Keep a line without a line feed apart from the same text with one."""
    for line in lines_of(diff, file):
        yield line if line.is_ended else replace(line, text=line.text + _NO_LINE_FEED)


def _same_blob(before: FilePatch | None, after: FilePatch | None) -> bool:
    """Check whether both name the same blob as their base. Either may abbreviate it."""
    one, other = before.base_id if before else None, after.base_id if after else None
    return one is not None and other is not None and (one.startswith(other) or other.startswith(one))


def _as_text(file: ComparedFile) -> str:
    path, notes, hunks = file.path, file.notes, "".join(map(_hunk, file.hunks))
    return f"diff --git a/{path} b/{path}\n{notes}--- a/{path}\n+++ b/{path}\n{hunks}"


def _notes(old: bytes, before: FilePatch | None, new: bytes, after: FilePatch | None) -> str:
    """Describe what the lines do not show: files that come and go, renames, modes, binary content."""
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


def _compared(before: list[PatchLine], after: list[PatchLine], *, same_base: bool) -> Iterator[ShownLine]:
    """Number the lines of the outcome in both results. A step has the numbers that the diffs show."""
    old_at = new_at = 0
    steps = _same_base(before, after) if same_base else _moved_base(before, after)
    for step in _removals_first(steps):
        if step.kind != "+":
            old_at = step.old or old_at + 1
        if step.kind != "-":
            new_at = step.new or new_at + 1
        yield ShownLine(step.kind, step.text, old_at, new_at)


def _removals_first(steps: Iterator[PatchLine]) -> Iterator[PatchLine]:
    """Put removals before additions in each run of changed lines, as readers expect."""
    for _, run in groupby(steps, key=lambda step: step.kind == " "):
        yield from sorted(run, key=lambda step: step.kind == "+")


def _bases_agree(before: list[PatchLine], after: list[PatchLine]) -> bool:
    """Compare the lines that both show. Without a common line, they agree unless one shows lines of the other."""
    one = {line.old: line.text for line in before if line.old is not None}
    other = {line.old: line.text for line in after if line.old is not None}
    common = one.keys() & other.keys()
    if common:
        return all(one[number] == other[number] for number in common)
    return not any(text.strip() for text in set(one.values()) & set(other.values()))


@dataclass(slots=True)
class _Slot:
    """The lines before a line of the base, and that line itself if a diff shows it."""

    added: list[PatchLine]
    line: PatchLine | None = None


def _slots(lines: list[PatchLine]) -> dict[int, _Slot]:
    """Group the lines by base line. A replacement stands before the first of the lines that it removes."""
    slots: dict[int, _Slot] = {}
    place = 1
    in_run = False
    for line in lines:
        if line.old is None:
            slots.setdefault(place, _Slot([])).added.append(line)
            in_run = True
            continue
        slots.setdefault(line.old, _Slot([])).line = line
        if line.kind == " ":
            place, in_run = line.old + 1, False
        elif not in_run:
            place, in_run = line.old, True
    return slots


def _same_base(before: list[PatchLine], after: list[PatchLine]) -> Iterator[PatchLine]:
    """Match by number: a diff keeps the lines that it does not show."""
    olds, news = _slots(before), _slots(after)
    for number in sorted(olds.keys() | news.keys()):
        old, new = olds.get(number, _Slot([])), news.get(number, _Slot([]))
        yield from _additions(old.added, new.added)
        text = (new.line or old.line or _NOTHING).text
        removed_before = old.line is not None and old.line.kind == "-"
        removed_after = new.line is not None and new.line.kind == "-"
        if removed_after and not removed_before:
            yield PatchLine("-", text, old.line.new if old.line else None, None)
        elif removed_before and not removed_after:
            yield PatchLine("+", text, None, new.line.new if new.line else None)
        elif not removed_after and (old.line or new.line):
            yield PatchLine(" ", text, old.line.new if old.line else None, new.line.new if new.line else None)


_NOTHING = PatchLine(" ", "", None, None)


def _additions(before: list[PatchLine], after: list[PatchLine]) -> Iterator[PatchLine]:
    for tag, b_start, b_end, a_start, a_end in _matched(before, after):
        if tag == "equal":
            for one, other in zip(before[b_start:b_end], after[a_start:a_end], strict=True):
                yield PatchLine(" ", other.text, one.new, other.new)
            continue
        for line in before[b_start:b_end]:
            yield PatchLine("-", line.text, line.new, None)
        for line in after[a_start:a_end]:
            yield PatchLine("+", line.text, None, line.new)


def _moved_base(before: list[PatchLine], after: list[PatchLine]) -> Iterator[PatchLine]:
    """Match lines of the base by text. Between two matches stand the lines that only one side shows."""
    old_base = [index for index, line in enumerate(before) if line.old is not None]
    new_base = [index for index, line in enumerate(after) if line.old is not None]
    matches = [
        (old_base[i], new_base[j])
        for tag, i_start, i_end, j_start, _ in _matched(
            [before[index] for index in old_base], [after[index] for index in new_base]
        )
        if tag == "equal"
        for i, j in ((i_start + offset, j_start + offset) for offset in range(i_end - i_start))
    ]
    old_at = new_at = 0
    for old_index, new_index in [*matches, (len(before), len(after))]:
        yield from _gap(before[old_at:old_index], after[new_at:new_index])
        if old_index < len(before):
            yield from _base_line(before[old_index], after[new_index])
        old_at, new_at = old_index + 1, new_index + 1


def _base_line(one: PatchLine, other: PatchLine) -> Iterator[PatchLine]:
    if one.kind == " " and other.kind == "-":
        yield PatchLine("-", other.text, one.new, None)
    elif one.kind == "-" and other.kind == " ":
        yield PatchLine("+", other.text, None, other.new)
    elif other.kind == " ":
        yield PatchLine(" ", other.text, one.new, other.new)


def _gap(before: list[PatchLine], after: list[PatchLine]) -> Iterator[PatchLine]:
    """Leave out what only the base changed: context that one side shows, and lines that both sides remove."""
    removed_before = [line for line in before if line.kind == "-"]
    removed_after = [line for line in after if line.kind == "-"]
    if not removed_before:
        yield from (PatchLine("-", line.text, None, None) for line in removed_after)
    there_before = [line for line in before if line.kind != "-"]
    there_after = [line for line in after if line.kind != "-"]
    from_base = {line.text for line in (*there_before, *there_after) if line.kind == " "}
    for step in _additions(there_before, there_after):
        if step.kind == " " or step.text not in from_base:
            yield step
    if not removed_after:
        yield from (PatchLine("+", line.text, None, None) for line in removed_before)


def _matched(before: list[PatchLine], after: list[PatchLine]) -> Iterator[tuple[str, int, int, int, int]]:
    """Return difflib's opcodes over the texts. The common lines at both ends are taken off first."""
    one, other = [line.text for line in before], [line.text for line in after]
    shorter = min(len(one), len(other))
    head = next((index for index in range(shorter) if one[index] != other[index]), shorter)
    rest = shorter - head
    tail = next((index for index in range(rest) if one[-1 - index] != other[-1 - index]), rest)
    end, other_end = len(one) - tail, len(other) - tail
    if head:
        yield "equal", 0, head, 0, head
    if (end - head) * (other_end - head) > _LARGEST_MATCH:
        yield "replace", head, end, head, other_end
    else:
        matcher = SequenceMatcher(None, one[head:end], other[head:other_end], autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            yield tag, head + i1, head + i2, head + j1, head + j2
    if tail:
        yield "equal", end, len(one), other_end, len(other)


def _hunks(shown: list[ShownLine]) -> list[list[ShownLine]]:
    """Return the changed lines with a little context."""
    changed = [index for index, line in enumerate(shown) if line.kind != " "]
    ranges: list[tuple[int, int]] = []
    for index in changed:
        start, end = max(0, index - _CONTEXT), min(len(shown), index + _CONTEXT + 1)
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((start, end))
    return [shown[start:end] for start, end in ranges]


def _hunk(lines: list[ShownLine]) -> str:
    old = [line for line in lines if line.kind != "+"]
    new = [line for line in lines if line.kind != "-"]
    old_start = old[0].old if old else lines[0].old
    new_start = new[0].new if new else lines[0].new
    body = "".join(f"{line.kind}{line.text}\n" for line in lines)
    return f"@@ -{old_start},{len(old)} +{new_start},{len(new)} @@\n{body}"
