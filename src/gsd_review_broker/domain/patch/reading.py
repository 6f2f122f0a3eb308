"""From bytes to files and hunks, by the grammar that `git apply` reads."""

import base64
import contextlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gsd_review_broker.domain.model import AffectedFile
from gsd_review_broker.domain.patch.headers import (
    GIT,
    Header,
    Scanner,
    UnreadableDiffError,
    git_header,
    plain_header,
    readable_name,
)
from gsd_review_broker.domain.words import Operation

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_LONGEST_COUNT = 10  # digits; no file has that many lines
_LEAST_MARKER = 12  # bytes; `\ No newline at end of file` in the shortest of languages
_ADDED, _REMOVED, _CONTEXT, _STRIPPED_CONTEXT, _MARKER = b"+- \n\\"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """Its bytes in the diff, where its body begins, and the lines that it is about."""

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
    # The paths in a tree's bytes; the ones above are for people.
    old_name: bytes | None = None
    new_name: bytes | None = None
    # The blob that the diff was made from, as the index line names it; often abbreviated.
    base_id: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    renamed: bool = False
    copied: bool = False
    binary: bool = False
    hunks: tuple[Hunk, ...] = ()
    # How large a binary patch gets when git unpacks it.
    unpacked_bytes: int = 0
    # Every name in the header, before git strips the first component.
    mentioned: tuple[str, ...] = ()

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


def read(diff: bytes) -> tuple[FilePatch, ...]:
    """Read every file that the diff touches, in its order. Text between them is ignored, as git does."""
    files = tuple(_up_to_the_next(_files(Scanner(diff)), len(diff)))
    if not files:
        raise UnreadableDiffError("no file header in it")
    return files


def readable_part(diff: bytes) -> tuple[FilePatch, ...]:
    """Read the files up to where the diff breaks, if it does."""
    files: list[FilePatch] = []
    with contextlib.suppress(UnreadableDiffError):
        files.extend(_files(Scanner(diff)))
    return tuple(_up_to_the_next(iter(files), len(diff)))


def _up_to_the_next(files: Iterator[FilePatch], end: int) -> Iterator[FilePatch]:
    """Extend each file by the text after it, so that they cover everything from the first header on."""
    last: FilePatch | None = None
    for file in files:
        if last is not None:
            yield replace(last, end=file.start)
        last = file
    if last is not None:
        yield replace(last, end=end)


def _files(lines: Scanner) -> Iterator[FilePatch]:
    strip, carried = 1, None
    while lines.more:
        header = _header(lines, strip, carried)
        if header is None:
            lines.next()
        elif header.is_bare:
            carried = header.new_name
        else:
            strip, carried = header.strip, None
            yield _with_content(lines, header)


def _header(lines: Scanner, strip: int, carried: bytes | None) -> Header | None:
    if lines.starts(GIT):
        return git_header(lines, strip, carried)
    if lines.starts(b"--- ") and lines.followed_by(b"+++ "):
        header = plain_header(lines, strip)
        if header and carried:
            raise header.wrong("a second name")
        return header
    if lines.starts(b"@@ -") and lines.is_ended and _HUNK.match(lines.line):
        raise UnreadableDiffError(f"a hunk without a file header at byte {lines.at}")
    return None


def _with_content(lines: Scanner, header: Header) -> FilePatch:
    hunks: list[Hunk] = []
    while lines.starts(b"@@ -"):
        hunks.append(_hunk(lines))
    if hunks:
        return _patch(header, tuple(hunks))
    if lines.starts(_BINARY_START):
        return replace(_patch(header), binary=True, unpacked_bytes=_skip_binary_patch(lines))
    if _is_binary_summary(lines):
        lines.next()
        return replace(_patch(header), binary=True)
    patch = _patch(header)
    if patch.operation is Operation.MODIFY and patch.old_mode == patch.new_mode:
        raise header.wrong("nothing that changes anything")
    return patch


def _patch(header: Header, hunks: tuple[Hunk, ...] = ()) -> FilePatch:
    if header.created and any(hunk.old_count for hunk in hunks):
        raise header.wrong("a new file with old content")
    if header.deleted and any(hunk.new_count for hunk in hunks):
        raise header.wrong("a deleted file with new content")
    old = None if header.created or _must_be_new(header, hunks) else header.old_name
    new = None if header.deleted else header.new_name
    return FilePatch(
        start=header.start,
        end=header.start,
        old_path=readable_name(old) if old else None,
        new_path=readable_name(new) if new else None,
        old_name=old,
        new_name=new,
        base_id=header.base_id,
        old_mode=header.old_mode if old else None,
        new_mode=(header.new_mode or header.old_mode) if new else None,
        # Even without a rename header, git writes the new file and removes the old one.
        renamed=header.renamed or bool(old and new and old != new and not header.copied),
        copied=header.copied,
        hunks=hunks,
        mentioned=tuple(map(readable_name, header.mentioned)),
    )


def _must_be_new(header: Header, hunks: tuple[Hunk, ...]) -> bool:
    """Recognize a new file without a git header by `@@ -0,0`; git then checks that it does not exist."""
    first = hunks[0] if len(hunks) == 1 and not header.is_git and not header.deleted else None
    return first is not None and first.old_start == first.old_count == 0


def _hunk(lines: Scanner) -> Hunk:
    start = lines.at
    match = _HUNK.match(lines.line) if lines.is_ended else None
    if match is None:
        raise UnreadableDiffError(f"not a hunk's header at byte {start}")
    if any(len(group) > _LONGEST_COUNT for group in match.groups(b"")):
        raise UnreadableDiffError(f"an impossible line count at byte {start}")
    old_start, old_count, new_start, new_count = map(int, match.groups(b"1"))
    lines.next()
    body = lines.at
    lines.at, added, removed = _body(lines.diff, body, old_count, new_count)
    if lines.starts(b"\\ ") and len(lines.diff) - lines.at > _LEAST_MARKER:
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


def _body(diff: bytes, at: int, old_left: int, new_left: int) -> tuple[int, int, int]:
    """Find where the hunk's lines end, and count those added and removed. Fast: a diff may hold a million lines."""
    added = removed = 0
    while old_left or new_left:
        end = diff.find(b"\n", at) + 1
        if not end:
            raise UnreadableDiffError(f"the hunk ends too early, at byte {at}")
        first = diff[at]
        if first == _ADDED:
            new_left, added = new_left - 1, added + 1
        elif first == _REMOVED:
            old_left, removed = old_left - 1, removed + 1
        elif first in (_CONTEXT, _STRIPPED_CONTEXT):
            old_left, new_left = old_left - 1, new_left - 1
        elif first != _MARKER or end - at < _LEAST_MARKER or not diff.startswith(b"\\ ", at):
            raise UnreadableDiffError(f"not a hunk's line at byte {at}")
        if old_left < 0 or new_left < 0:
            raise UnreadableDiffError(f"the hunk holds more lines than it says, at byte {at}")
        at = end
    if not added and not removed:
        raise UnreadableDiffError(f"a hunk that changes nothing before byte {at}")
    return at, added, removed


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


_BINARY_START = b"GIT binary patch\n"
_BLOCK = re.compile(rb"(literal|delta) (\d{1,18})\n")
_DATA = re.compile(rb"(?:[A-Za-z](?:[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]{5}){1,13}\n)++(?=\n)")
_SIZES = 24  # bytes: two numbers of seven bits a byte, the first thing in a delta


def _is_binary_summary(lines: Scanner) -> bool:
    """Recognize `Binary files a/x and b/x differ`."""
    if not lines.starts(b"Binary files ") and not lines.starts(b"Files "):
        return False
    return lines.is_ended and lines.line.endswith(b" differ")


def _skip_binary_patch(lines: Scanner) -> int:
    """Skip the forward block and, if there is one, the reverse block. Returns the size of the larger result."""
    lines.next()
    size = _skip_block(lines)
    if size is None:
        raise UnreadableDiffError(f"a binary patch without data at byte {lines.at}")
    return max(size, _skip_block(lines) or 0)


def _skip_block(lines: Scanner) -> int | None:
    if not lines.starts(b"literal ") and not lines.starts(b"delta "):
        return None
    start = _BLOCK.match(lines.diff, lines.at)
    data = _DATA.match(lines.diff, start.end()) if start else None
    if start is None or data is None:
        raise UnreadableDiffError(f"a broken binary patch at byte {lines.at}")
    lines.at = data.end() + 1
    # Git allocates the size that the line states and refuses data of any other size, so that size is the upper bound.
    size = int(start.group(2))
    return size if start.group(1) == b"literal" else max(size, _result_of_delta(data.group()))


def _result_of_delta(data: bytes) -> int:
    """Unpack the first bytes of a delta: they state the size of its result."""
    try:
        packed = b"".join(_decoded(line) for line in data[:256].split(b"\n")[:3])
        head = zlib.decompressobj().decompress(packed, _SIZES)
    except (ValueError, zlib.error) as error:
        raise UnreadableDiffError("a delta that cannot be unpacked") from error
    _source, rest = _number_in_delta(head)
    result, _rest = _number_in_delta(rest)
    return result


def _decoded(line: bytes) -> bytes:
    if not line:
        return b""
    length = line[0] - 64 if line[:1].isupper() else line[0] - 70
    return base64.b85decode(line[1:])[:length]


def _number_in_delta(data: bytes) -> tuple[int, bytes]:
    value = 0
    for place, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return value, data[place + 1 :]
    return value, b""


def applied(diff: bytes, file: FilePatch, base: bytes, *, reverse: bool = False) -> bytes | None:
    """Apply the file's hunks to its content; None if one of them does not match at its own line."""
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
    """Split into lines with their line feeds; the last line may lack it."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _first(start: int, count: int) -> int:
    """Return the index of a hunk's first line. A side without lines names the line before it."""
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
