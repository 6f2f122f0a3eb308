"""A diff in pieces that can be shown one by one: files, hunks, rows."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gsd_review_broker.domain.patch import interdiff, reading
from gsd_review_broker.domain.patch.interdiff import ComparedFile
from gsd_review_broker.domain.patch.reading import FilePatch

_NO_NEWLINE = "\\"
_NUMBERS = re.compile(r"@@ -[\d,]+ \+[\d,]+ @@")


@dataclass(frozen=True, slots=True)
class Row:
    """`kind` is a space, + or -, or a backslash for the note that the file's last line has no line feed."""

    kind: str
    text: str
    old: int | None
    new: int | None


@dataclass(frozen=True, slots=True)
class ShownHunk:
    heading: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownFile:
    index: int
    path: str
    operation: str
    added: int
    removed: int
    lines: int
    old_path: str | None = None
    binary: bool = False
    old_mode: str | None = None
    new_mode: str | None = None
    notes: str = ""


class DiffDocument:
    """`key` names its content permanently: a revision never changes."""

    def __init__(self, key: str, files: tuple[ShownFile, ...], source: "_PatchSource | _ComparedSource | None") -> None:
        self.key = key
        self.files = files
        self._source = source
        self.lines = sum(file.lines for file in files)
        self.size = source.size if source else 0

    def hunks(self, index: int) -> list[ShownHunk]:
        return self._source.hunks(index) if self._source else []

    def patch(self, index: int) -> tuple[bytes, FilePatch] | None:
        """Return the diff and the file's part of it; None if this is not a diff against a base."""
        return self._source.patch(index) if self._source else None


class _PatchSource:
    def __init__(self, diff: bytes, patches: Sequence[FilePatch]) -> None:
        self._diff = diff
        self._patches = patches
        self.size = len(diff)

    def patch(self, index: int) -> tuple[bytes, FilePatch] | None:
        return (self._diff, self._patches[index]) if index < len(self._patches) else None

    def hunks(self, index: int) -> list[ShownHunk]:
        return [
            ShownHunk(
                _heading(self._diff[hunk.start : hunk.body].decode("utf-8", "replace").rstrip("\n")),
                tuple(_rows(self._diff[hunk.body : hunk.end], hunk.old_start, hunk.new_start)),
            )
            for hunk in self._patches[index].hunks
        ]


class _ComparedSource:
    def __init__(self, compared: Sequence[ComparedFile]) -> None:
        self._compared = compared
        self.size = sum(len(line.text) for file in compared for hunk in file.hunks for line in hunk)

    def patch(self, _index: int) -> None:
        return None

    def hunks(self, index: int) -> list[ShownHunk]:
        return [
            ShownHunk(
                f"@@ -{lines[0].old} +{lines[0].new} @@",
                tuple(
                    Row(
                        line.kind,
                        line.text,
                        line.old if line.kind != "+" else None,
                        line.new if line.kind != "-" else None,
                    )
                    for line in lines
                ),
            )
            for lines in self._compared[index].hunks
        ]


def _heading(line: str) -> str:
    """Mark the text after the numbers as the author's: nothing compares it with the file."""
    match = _NUMBERS.match(line)
    text = line[match.end() :].strip() if match else ""
    return f"{match.group()} (heading by the author: {text})" if match and text else line


def from_diff(key: str, diff: bytes) -> DiffDocument | None:
    """Return the document; None for a diff that cannot be read."""
    try:
        patches = reading.read(diff)
    except reading.UnreadableDiffError:
        return None
    files = tuple(_shown(index, one) for index, one in enumerate(patches))
    return DiffDocument(key, files, _PatchSource(diff, patches))


def from_two(key: str, old: bytes | None, new: bytes | None) -> DiffDocument | None:
    """Return what the author changed from one revision to another."""
    try:
        compared = interdiff.compared(old, new)
    except reading.UnreadableDiffError:
        return None
    if not compared and old != new and new:
        return _whole(key, new)
    files = tuple(
        ShownFile(
            index=index,
            path=file.path,
            operation="modify",
            added=sum(line.kind == "+" for hunk in file.hunks for line in hunk),
            removed=sum(line.kind == "-" for hunk in file.hunks for line in hunk),
            lines=sum(map(len, file.hunks)),
            notes=file.notes.strip(),
        )
        for index, file in enumerate(compared)
    )
    return DiffDocument(key, files, _ComparedSource(compared))


def _whole(key: str, new: bytes) -> DiffDocument:
    """No line is the author's change, but the two diffs differ."""
    patches = reading.read(new)
    note = "No changed line was found, but hunks are at other lines or the base has changed: this is the whole diff."
    files = tuple(replace(_shown(index, one), notes=note) for index, one in enumerate(patches))
    return DiffDocument(key, files, _PatchSource(new, patches))


def _shown(index: int, one: FilePatch) -> ShownFile:
    return ShownFile(
        index=index,
        path=one.path,
        operation=one.operation.value,
        added=sum(hunk.added for hunk in one.hunks),
        removed=sum(hunk.removed for hunk in one.hunks),
        lines=sum(hunk.old_count + hunk.added for hunk in one.hunks),
        old_path=one.old_path if one.renamed or one.copied else None,
        binary=one.binary,
        old_mode=one.old_mode,
        new_mode=one.new_mode,
    )


def _rows(body: bytes, old: int, new: int) -> Iterator[Row]:
    for raw in body.removesuffix(b"\n").split(b"\n"):
        kind, text = chr(raw[0]) if raw else " ", raw[1:].decode("utf-8", "replace")
        match kind:
            case "+":
                yield Row("+", text, None, new)
                new += 1
            case "-":
                yield Row("-", text, old, None)
                old += 1
            case " ":
                yield Row(" ", text, old, new)
                old, new = old + 1, new + 1
            case _:
                yield Row(_NO_NEWLINE, text.strip(), None, None)
