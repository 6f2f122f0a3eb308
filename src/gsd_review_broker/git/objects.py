"""Objects read through one `git cat-file --batch`, each hashed again.

git believes that an object has the content that its name says, and does not check it when it reads. A loose object or
an alternate can be overwritten in place, so whatever a digest rests on is hashed here: HEAD's commit, the trees on the
way to each touched path, the touched blobs, and the blobs that the change makes (docs/adr/, "What is re-hashed").
"""

import hashlib
import re
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.index_file import Entry
from gsd_review_broker.git.program import start_git

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
        self._trees: dict[str, dict[bytes, Entry]] = {}
        self._root = None if commit is None else _tree_of(objects.read(commit, "commit"))

    def entries(self, paths: set[bytes]) -> dict[bytes, Entry]:
        """Those of the paths that exist, and what stands in their way: a file where a path needs a folder, and one
        file of a folder where a path needs a file."""
        entries_by_path: dict[bytes, Entry] = {}
        for path in paths:
            place, entry = self._deepest(path)
            if entry is None:
                continue
            if entry.mode == TREE_MODE:
                entries_by_path.update(self._first_other(entry.object_id, path + b"/", paths))
            else:
                entries_by_path[place] = entry
        return entries_by_path

    def _deepest(self, path: bytes) -> tuple[bytes, Entry | None]:
        """The last entry on the way to a path; None if the way stops before it."""
        entry = None if self._root is None else Entry(TREE_MODE, self._root)
        parts = path.split(b"/")
        for count, name in enumerate(parts):
            if entry is None or entry.mode != TREE_MODE:
                return b"/".join(parts[:count]), entry
            entry = self._tree(entry.object_id).get(name)
        return path, entry

    def _first_other(self, tree: str, prefix: bytes, paths: set[bytes]) -> dict[bytes, Entry]:
        """One file below that the diff does not touch, if there is one. Touched files have their own entries."""
        for name, entry in self._tree(tree).items():
            if entry.mode == TREE_MODE:
                below = self._first_other(entry.object_id, prefix + name + b"/", paths)
                if below:
                    return below
            elif prefix + name not in paths:
                return {prefix + name: entry}
        return {}

    def _tree(self, object_id: str) -> dict[bytes, Entry]:
        if object_id not in self._trees:
            self._trees[object_id] = dict(_parsed(self._objects.read(object_id, "tree"), len(object_id) // 2))
        return self._trees[object_id]


def _tree_of(commit: bytes) -> str:
    first = commit.partition(b"\n")[0]
    return first.removeprefix(b"tree ").decode("ascii")


def _parsed(tree: bytes, size: int) -> Iterator[tuple[bytes, Entry]]:
    start = 0
    while start < len(tree):
        end = tree.index(b"\0", start)
        mode, _, name = tree[start:end].partition(b" ")
        start = end + 1 + size
        yield name, Entry(mode.decode("ascii").zfill(6), tree[end + 1 : start].hex())
