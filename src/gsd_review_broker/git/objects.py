"""git's index as a file: version 2, entries only.

A check needs the few paths that a diff touches, not the whole of HEAD. Writing them here takes microseconds, where
`git read-tree` and `git ls-files` are two processes that also grow with the repository.
"""

import hashlib
import re
import struct
import subprocess
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.program import start_git

_HEADER = struct.Struct(">4sII")
_MODE = struct.Struct(">24xI12x")  # the times, device and owner of a file in the work tree stay empty
_FLAGS = struct.Struct(">H")
_LONGEST_NAME, _STAGES, _EXTENDED = 0xFFF, 0x3000, 0x4000
_ALIGNMENT = 8


class IndexEntry(NamedTuple):
    """A path's mode and object, as a tree or an index holds them."""

    mode: str
    object_id: str


def index_bytes(entries: Mapping[bytes, IndexEntry], object_format: str) -> bytes:
    parts = [_HEADER.pack(b"DIRC", 2, len(entries))]
    for path, (mode, object_id) in sorted(entries.items()):
        flags = _FLAGS.pack(min(len(path), _LONGEST_NAME))
        entry = _MODE.pack(int(mode, 8)) + bytes.fromhex(object_id) + flags + path
        parts.append(entry + b"\0" * (_ALIGNMENT - len(entry) % _ALIGNMENT))
    content = b"".join(parts)
    return content + hashlib.new(object_format, content, usedforsecurity=False).digest()


def read_index(content: bytes, object_format: str) -> dict[bytes, IndexEntry]:
    """Raises ValueError for what git does not write here: another version, or an unmerged path."""
    size = hashlib.new(object_format, usedforsecurity=False).digest_size
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version != 2:  # noqa: PLR2004 - the only version that git writes unasked
        raise ValueError(f"an index of version {version}")
    entries: dict[bytes, IndexEntry] = {}
    start = _HEADER.size
    for _ in range(count):
        (mode,) = _MODE.unpack_from(content, start)
        object_id = content[start + _MODE.size : start + _MODE.size + size]
        (flags,) = _FLAGS.unpack_from(content, start + _MODE.size + size)
        if flags & (_STAGES | _EXTENDED):
            raise ValueError("an index with an unmerged path")
        name = start + _MODE.size + size + _FLAGS.size
        end = content.index(b"\0", name)
        entries[content[name:end]] = IndexEntry(f"{mode:06o}", object_id.hex())
        start += (end - start) // _ALIGNMENT * _ALIGNMENT + _ALIGNMENT
    return entries


TREE_MODE, SUBMODULE_MODE = "040000", "160000"
# All objects of one check together. git itself holds a touched file in memory several times.
MOST_BYTES = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_ANSWER = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (commit|tree|blob|tag) (\d{1,18})\n")


class TooLargeError(Exception):
    """The touched files are larger than a check may read."""


class Objects:
    """Returns the content that belongs to an object's name, or raises."""

    def __init__(self, process: "subprocess.Popen[bytes]", object_format: str, most: int = MOST_BYTES) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("cat-file needs two pipes")
        self._requests, self._answers = process.stdin, process.stdout
        self._format = object_format
        self._left = most
        self.was_stopped = False

    def read(self, object_id: str, kind: str) -> bytes:
        chunks = self._content(object_id, kind, object_id)
        if chunks is None:
            raise _damaged(object_id, "is missing")
        return b"".join(chunks)

    def verify(self, object_id: str) -> None:
        """Does the stored blob have the content that this name stands for?"""
        chunks = self._content(object_id, "blob", object_id)
        if chunks is None:
            raise _damaged(object_id, "is missing")
        for _ in chunks:
            pass

    def blob_named(self, abbreviated: str) -> bytes | None:
        """The blob whose id begins with this; None if there is none, or more than one."""
        chunks = self._content(f"{abbreviated}^{{blob}}", "blob", abbreviated)
        return None if chunks is None else b"".join(chunks)

    def _content(self, request: str, kind: str, expected: str) -> Iterator[bytes] | None:
        try:
            self._requests.write(request.encode() + b"\n")
            self._requests.flush()
            header = self._answers.readline()
        except OSError:
            header = b""
        match = _ANSWER.fullmatch(header)
        if match is None:
            if header.endswith((b" missing\n", b" ambiguous\n")):
                return None
            raise self._stopped(expected)
        object_id, actual_kind, size = match[1].decode(), match[2].decode(), int(match[3])
        if actual_kind != kind or not object_id.startswith(expected):
            raise _damaged(expected, f"is a {actual_kind} and not a {kind}")
        self._left -= size
        if self._left < 0:
            raise TooLargeError
        return self._hashed(object_id, actual_kind, size)

    def _hashed(self, object_id: str, kind: str, size: int) -> Iterator[bytes]:
        checksum = hashlib.new(self._format, b"%b %d\0" % (kind.encode(), size), usedforsecurity=False)
        left = size
        while left:
            chunk = self._answers.read(min(left, _CHUNK))
            if not chunk:
                raise self._stopped(object_id)
            checksum.update(chunk)
            left -= len(chunk)
            yield chunk
        self._answers.read(1)
        if checksum.hexdigest() != object_id:
            raise _damaged(object_id, "has other content than its name says")

    def _stopped(self, object_id: str) -> BrokerError:
        if self.was_stopped:
            return BrokerError(
                Code.UNAVAILABLE, "git cat-file took too long", "The review stays as it is; see that git works."
            )
        return _damaged(object_id, "cannot be read")


@contextmanager
def opened_objects(
    folder: Path, environment: dict[str, str], object_format: str, timeout: float, *, most: int = MOST_BYTES
) -> Generator[Objects]:
    process = start_git(folder, "cat-file", "--batch", environment=environment)
    objects = Objects(process, object_format, most)

    def stop() -> None:
        objects.was_stopped = True
        process.kill()

    timer = threading.Timer(timeout, stop)
    timer.start()
    try:
        yield objects
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def _damaged(object_id: str, why: str) -> BrokerError:
    return BrokerError(
        Code.UNAVAILABLE,
        f"the repository is damaged: object {object_id} {why}",
        "Run git fsck there and repair it; the review stays as it is.",
    )


class BaseTree:
    """The files of a commit, found through verified trees."""

    def __init__(self, objects: Objects, commit: str | None) -> None:
        self._objects = objects
        self._trees: dict[str, dict[bytes, IndexEntry]] = {}
        self._root = None if commit is None else _tree_of(objects.read(commit, "commit"))

    def entries(self, paths: set[bytes]) -> dict[bytes, IndexEntry]:
        """Those of the paths that exist, and what stands in their way: a file where a path needs a folder, and one
        file of a folder where a path needs a file."""
        entries_by_path: dict[bytes, IndexEntry] = {}
        for path in paths:
            place, entry = self._deepest(path)
            if entry is None:
                continue
            if entry.mode == TREE_MODE:
                entries_by_path.update(self._first_other(entry.object_id, path + b"/", paths))
            else:
                entries_by_path[place] = entry
        return entries_by_path

    def _deepest(self, path: bytes) -> tuple[bytes, IndexEntry | None]:
        """The last entry on the way to a path; None if the way stops before it."""
        entry = None if self._root is None else IndexEntry(TREE_MODE, self._root)
        parts = path.split(b"/")
        for count, name in enumerate(parts):
            if entry is None or entry.mode != TREE_MODE:
                return b"/".join(parts[:count]), entry
            entry = self._tree(entry.object_id).get(name)
        return path, entry

    def _first_other(self, tree: str, prefix: bytes, paths: set[bytes]) -> dict[bytes, IndexEntry]:
        """One file below that the diff does not touch, if there is one. Touched files have their own entries."""
        for name, entry in self._tree(tree).items():
            if entry.mode == TREE_MODE:
                below = self._first_other(entry.object_id, prefix + name + b"/", paths)
                if below:
                    return below
            elif prefix + name not in paths:
                return {prefix + name: entry}
        return {}

    def _tree(self, object_id: str) -> dict[bytes, IndexEntry]:
        if object_id not in self._trees:
            self._trees[object_id] = dict(_parsed(self._objects.read(object_id, "tree"), len(object_id) // 2))
        return self._trees[object_id]


def _tree_of(commit: bytes) -> str:
    first = commit.partition(b"\n")[0]
    return first.removeprefix(b"tree ").decode("ascii")


def _parsed(tree: bytes, size: int) -> Iterator[tuple[bytes, IndexEntry]]:
    start = 0
    while start < len(tree):
        end = tree.index(b"\0", start)
        mode, _, name = tree[start:end].partition(b" ")
        start = end + 1 + size
        yield name, IndexEntry(mode.decode("ascii").zfill(6), tree[end + 1 : start].hex())
