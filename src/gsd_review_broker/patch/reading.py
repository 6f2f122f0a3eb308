"""From bytes to files and hunks, by the grammar that `git apply -p1` reads."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gsd_review_broker.model import AffectedFile, Operation
from gsd_review_broker.patch import names

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_BINARY_SUMMARY = re.compile(rb"(Binary files|Files) .* differ$")
_BINARY_DATA = re.compile(rb"(literal|delta) (\d+)$")
_LONGEST_COUNT = 10  # digits; git refuses counts that overflow, and no file has that many lines


class UnreadableDiffError(ValueError):
    """Not a diff that git would read. The text says where."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """Where it stands in the diff (bytes), which lines it is about, and where its body begins."""

    start: int
    body: int
    end: int
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    added: int
    removed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePatch:
    start: int
    end: int
    old_path: str | None
    new_path: str | None
    old_mode: str | None = None
    new_mode: str | None = None
    renamed: bool = False
    copied: bool = False
    binary: bool = False
    hunks: tuple[Hunk, ...] = ()
    # The two sides as the diff writes them, before git strips the first component.
    written: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return self.new_path or self.old_path or ""

    @property
    def operation(self) -> Operation:
        if self.old_path is None or self.copied:
            return Operation.CREATE
        if self.new_path is None:
            return Operation.DELETE
        return Operation.RENAME if self.renamed else Operation.MODIFY


@dataclass(slots=True)
class _Header:
    """What a file's header lines have said so far."""

    default_name: str | None = None
    old_name: str | None = None
    new_name: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    created: bool = False
    deleted: bool = False
    renamed: bool = False
    copied: bool = False
    written: list[str] = field(default_factory=list[str])

    def patch(self, start: int) -> FilePatch:
        old = None if self.created else (self.old_name or self.default_name)
        new = None if self.deleted else (self.new_name or self.default_name)
        if old is None and new is None:
            raise UnreadableDiffError(f"no file name in the header at byte {start}")
        return FilePatch(
            start=start,
            end=start,
            old_path=old,
            new_path=new,
            old_mode=None if self.created else self.old_mode,
            new_mode=None if self.deleted else self.new_mode,
            renamed=self.renamed,
            copied=self.copied,
            written=tuple(self.written),
        )

    def side(self, rest: bytes) -> str | None:
        name = names.raw_name(rest, to_tab=True)
        if name:
            self.written.append(names.text(name))
        return names.stripped(rest, to_tab=True)


class _Lines:
    """A place in the diff, and the line that begins there."""

    def __init__(self, diff: bytes) -> None:
        self._diff = diff
        self.at = 0

    @property
    def more(self) -> bool:
        return self.at < len(self._diff)

    def _end(self) -> int:
        found = self._diff.find(b"\n", self.at)
        return len(self._diff) if found < 0 else found

    @property
    def line(self) -> bytes:
        """Without its line feed. Looking at a megabyte costs a megabyte: peek with starts() first."""
        return self._diff[self.at : self._end()]

    def starts(self, prefix: bytes) -> bool:
        return self._diff.startswith(prefix, self.at)

    @property
    def first(self) -> bytes:
        return self._diff[self.at : self.at + 1]

    def next(self) -> None:
        self.at = min(self._end() + 1, len(self._diff))

    def following(self, prefix: bytes) -> bool:
        """Does the next line start so?"""
        return self._diff.startswith(prefix, self._end() + 1)


def read(diff: bytes) -> tuple[FilePatch, ...]:
    """Every file that the diff touches, in its order; text between them is ignored, as git does."""
    lines = _Lines(diff)
    files: list[FilePatch] = []
    for patch in _files(lines):
        if files:
            files[-1] = replace(files[-1], end=patch.start)
        files.append(replace(patch, end=len(diff)))
    if not files:
        raise UnreadableDiffError("no file header in it")
    return tuple(files)


def _files(lines: _Lines) -> Iterator[FilePatch]:
    while lines.more:
        start = lines.at
        if lines.starts(b"diff --git "):
            header = _git_header(lines)
            yield _with_content(lines, header, start)
        elif lines.starts(b"--- ") and lines.following(b"+++ "):
            before = lines.at
            header = _plain_header(lines)
            if header is None:
                lines.at = before
                lines.next()
            else:
                yield _with_content(lines, header, start)
        elif lines.starts(b"@@ -") and _HUNK.match(lines.line):
            raise UnreadableDiffError(f"a hunk without a file header at byte {start}")
        else:
            lines.next()


def _git_header(lines: _Lines) -> _Header:
    header = _Header(default_name=names.common_name(lines.line[len(b"diff --git ") :]))
    lines.next()
    while lines.more and not lines.starts(b"@@ -"):
        if not _extended(header, lines.line):
            break
        lines.next()
    return header


def _extended(header: _Header, line: bytes) -> bool:
    """Take in one header line; False when the header is over."""
    for prefix, take in _EXTENDED.items():
        if line.startswith(prefix):
            take(header, line[len(prefix) :])
            return True
    return False


def _old_side(header: _Header, rest: bytes) -> None:
    if names.is_nothing(rest):
        header.created = True
    else:
        header.old_name = header.side(rest)


def _new_side(header: _Header, rest: bytes) -> None:
    if names.is_nothing(rest):
        header.deleted = True
    else:
        header.new_name = header.side(rest)


def _old_mode(header: _Header, rest: bytes) -> None:
    header.old_mode = names.mode(rest)


def _new_mode(header: _Header, rest: bytes) -> None:
    header.new_mode = names.mode(rest)


def _created(header: _Header, rest: bytes) -> None:
    header.created, header.new_mode = True, names.mode(rest)


def _deleted(header: _Header, rest: bytes) -> None:
    header.deleted, header.old_mode = True, names.mode(rest)


def _renamed_from(header: _Header, rest: bytes) -> None:
    header.renamed, header.old_name = True, names.whole(rest)


def _renamed_to(header: _Header, rest: bytes) -> None:
    header.renamed, header.new_name = True, names.whole(rest)


def _copied_from(header: _Header, rest: bytes) -> None:
    header.copied, header.old_name = True, names.whole(rest)


def _copied_to(header: _Header, rest: bytes) -> None:
    header.copied, header.new_name = True, names.whole(rest)


def _index(header: _Header, rest: bytes) -> None:
    """`index 1234..5678 100644`: the mode of a file whose mode stays."""
    parts = rest.split(b" ")
    if len(parts) == 2 and header.old_mode is None and header.new_mode is None:  # noqa: PLR2004
        header.old_mode = header.new_mode = names.mode(parts[1])


def _nothing(_header: _Header, _rest: bytes) -> None:
    pass


_EXTENDED = {
    b"--- ": _old_side,
    b"+++ ": _new_side,
    b"old mode ": _old_mode,
    b"new mode ": _new_mode,
    b"deleted file mode ": _deleted,
    b"new file mode ": _created,
    b"copy from ": _copied_from,
    b"copy to ": _copied_to,
    b"rename old ": _renamed_from,
    b"rename new ": _renamed_to,
    b"rename from ": _renamed_from,
    b"rename to ": _renamed_to,
    b"similarity index ": _nothing,
    b"dissimilarity index ": _nothing,
    b"index ": _index,
}


def _plain_header(lines: _Lines) -> _Header | None:
    """`--- a/x` and `+++ b/x` with no git header above; a hunk has to follow, else it is only text."""
    old = lines.line[4:]
    lines.next()
    new = lines.line[4:]
    lines.next()
    if not (lines.starts(b"@@ -") and _HUNK.match(lines.line)):
        return None
    header = _Header()
    if names.is_nothing(old):
        header.created, header.new_name = True, header.side(new)
    elif names.is_nothing(new):
        header.deleted, header.old_name = True, header.side(old)
    else:
        first, second = header.side(old), header.side(new)
        # `x.orig` against `x`: the shorter one is meant.
        name = first if first and second and second.startswith(first) else second or first
        header.old_name = header.new_name = name
        header.created = names.is_epoch(old)
        header.deleted = not header.created and names.is_epoch(new)
    return header


def _with_content(lines: _Lines, header: _Header, start: int) -> FilePatch:
    patch = header.patch(start)
    hunks: list[Hunk] = []
    while lines.starts(b"@@ -"):
        hunk = _hunk(lines)
        if hunk is None:
            break
        hunks.append(hunk)
    if hunks:
        return replace(patch, hunks=tuple(hunks))
    if lines.starts(b"GIT binary patch"):
        _binary(lines)
        return replace(patch, binary=True)
    if _BINARY_SUMMARY.match(lines.line):
        lines.next()
        return replace(patch, binary=True)
    meaningful = header.created or header.deleted or header.renamed or header.copied
    if not meaningful and not (header.old_mode and header.old_mode != header.new_mode):
        raise UnreadableDiffError(f"nothing but a header at byte {start}")
    return patch


def _hunk(lines: _Lines) -> Hunk | None:
    start = lines.at
    match = _HUNK.match(lines.line)
    if match is None:
        return None
    groups = match.groups()
    if any(group is not None and len(group) > _LONGEST_COUNT for group in groups):
        raise UnreadableDiffError(f"an impossible line count at byte {start}")
    old_start, new_start = int(groups[0] or 0), int(groups[2] or 0)
    old_count = int(groups[1]) if groups[1] is not None else 1
    new_count = int(groups[3]) if groups[3] is not None else 1
    lines.next()
    body = lines.at
    old_left, new_left, added, removed = old_count, new_count, 0, 0
    while old_left or new_left:
        match lines.first:
            case b"+":
                new_left, added = new_left - 1, added + 1
            case b"-":
                old_left, removed = old_left - 1, removed + 1
            case b" " | b"\n":
                old_left, new_left = old_left - 1, new_left - 1
            case b"\\":
                pass
            case _:
                raise UnreadableDiffError(f"the hunk at byte {start} ends too early, at byte {lines.at}")
        if old_left < 0 or new_left < 0:
            raise UnreadableDiffError(f"the hunk at byte {start} holds more lines than it says")
        lines.next()
    if lines.starts(b"\\ "):
        lines.next()
    return Hunk(
        start=start,
        body=body,
        end=lines.at,
        old_start=old_start,
        old_count=old_count,
        new_start=new_start,
        new_count=new_count,
        added=added,
        removed=removed,
    )


def _binary(lines: _Lines) -> None:
    """A forward block and perhaps a reverse one, each ended by an empty line."""
    lines.next()
    blocks = 0
    while lines.more and _BINARY_DATA.match(lines.line):
        blocks += 1
        lines.next()
        while lines.more and not lines.starts(b"\n"):
            lines.next()
        lines.next()
    if not blocks:
        raise UnreadableDiffError(f"a binary patch without data at byte {lines.at}")


def affected_files(files: tuple[FilePatch, ...]) -> tuple[AffectedFile, ...]:
    return tuple(
        AffectedFile(
            path=file.path,
            operation=file.operation,
            added=sum(hunk.added for hunk in file.hunks),
            removed=sum(hunk.removed for hunk in file.hunks),
            old_path=file.old_path if file.renamed or file.copied else None,
            binary=file.binary,
            old_mode=file.old_mode,
            new_mode=file.new_mode,
        )
        for file in files
    )
