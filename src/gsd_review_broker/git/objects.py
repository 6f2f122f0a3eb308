"""What git stores, read exactly: objects by name, an index as a file, and a change's records and digest.

A check needs the few paths that a diff touches, not the whole of HEAD. Writing an index here takes microseconds, where
`git read-tree` and `git ls-files` are two processes that also grow with the repository. Each check has an isolated
repository of its own: a scratch folder beside the real one, without its configuration.
"""

import contextlib
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gsd_review_broker.domain.gate.records import Steps, digest_of_sorted, parse_records, raw_records
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.command import alternate
from gsd_review_broker.git.program import run_git, start_git, text_of

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
    """Read an index. Raises ValueError for what git does not write here: another version, or an unmerged path."""
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
        """Refuse a stored blob with other content than its name stands for."""
        chunks = self._content(object_id, "blob", object_id)
        if chunks is None:
            raise _damaged(object_id, "is missing")
        for _ in chunks:
            pass

    def blob_named(self, abbreviated: str) -> bytes | None:
        """Read the blob whose id begins with this; None if there is none, or more than one."""
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


@contextlib.contextmanager
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
        """Find those of the paths that exist, and what stands in their way: a file where a path needs a folder, and
        one file of a folder where a path needs a file."""
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
        """Find the last entry that leads to a path; None if there is none at its end."""
        entry = None if self._root is None else IndexEntry(TREE_MODE, self._root)
        parts = path.split(b"/")
        for count, name in enumerate(parts):
            if entry is None or entry.mode != TREE_MODE:
                return b"/".join(parts[:count]), entry
            entry = self._tree(entry.object_id).get(name)
        return path, entry

    def _first_other(self, tree: str, prefix: bytes, paths: set[bytes]) -> dict[bytes, IndexEntry]:
        """Find a file below that the diff does not touch. Touched files have their own entries."""
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


# Submodules are listed, whatever .gitmodules or the configuration says. Nothing is converted, detected or abbreviated.
_RAW = (
    "-r", "-z", "--raw", "--no-renames", "--full-index", "--no-abbrev", "--ignore-submodules=none",
    "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative",
)  # fmt: skip


def digest_of_records(steps: Steps) -> str | None:
    """Return the digest of a change. None if there are no records: the digest of nothing would equal that of every
    other change that git shows as nothing."""
    return digest_of_sorted(raw_records(steps)) if steps else None


def range_records(folder: str | Path, old: str, new: str, *, environment: dict[str, str] | None = None) -> Steps:
    """Read what changes from one commit or tree to another. Use full object names: a branch may move."""
    raw = _must(folder, "diff-tree", *_RAW, "--end-of-options", old, new, "--", environment=environment)
    try:
        return parse_records(raw)
    except ValueError as error:
        raise _unavailable("diff-tree", str(error)) from error


def commit_records(folder: str | Path, commit: str, *, environment: dict[str, str] | None = None) -> Steps:
    """Read what a commit changes against its first parent; a commit without a parent creates all that it holds.

    The parent is read from the commit object itself, because a graft or a shallow boundary may say something else."""
    content = _must(folder, "cat-file", "commit", commit, environment=environment)
    headers = content.partition(b"\n\n")[0].split(b"\n")
    parents = [text_of(line.removeprefix(b"parent ")) for line in headers if line.startswith(b"parent ")]
    parent = parents[0] if parents else empty_tree(folder, environment=environment)
    return range_records(folder, parent, commit, environment=environment)


def empty_tree(folder: str | Path, *, environment: dict[str, str] | None = None) -> str:
    """Return the empty tree's id in the repository's object format. git knows the object without storing it."""
    return text_of(_must(folder, "hash-object", "-t", "tree", "--stdin", environment=environment))


def _must(folder: str | Path, *arguments: str, environment: dict[str, str] | None) -> bytes:
    answer = run_git(folder, *arguments, environment=environment)
    # git may exit with 0 although it could not read everything; then it prints an error.
    if not answer.is_good:
        raise _unavailable(arguments[0], answer.why)
    return answer.output


def _unavailable(command: str, why: str) -> BrokerError:
    return BrokerError(Code.UNAVAILABLE, f"git {command} failed: {why}", "Look at the repository, then call again.")


# In memory if possible: a folder lives for a few milliseconds.
PLACE = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())  # noqa: S108 - folders in it are private
_PREFIX = "tandem-git-"
# Longer than any check takes: it calls git a few times, and each call may take ten minutes at most.
STALE_SECONDS = 24 * 3600


def prefix_of(pid: int) -> str:
    return f"{_PREFIX}{pid}-"


def make_scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix=prefix_of(os.getpid()), dir=PLACE))


def remove_stale(place: Path = PLACE) -> None:
    """Remove folders by age and owner. A process id proves nothing: containers that share the place have their own."""
    if sys.platform == "win32":
        return
    newest = time.time() - STALE_SECONDS
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_own_folder_before(entry, newest):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_own_folder_before(entry: "os.DirEntry[str]", moment: float) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return entry.is_dir(follow_symlinks=False) and status.st_uid == os.getuid() and status.st_mtime < moment


@dataclass(frozen=True, slots=True)
class IsolatedRepository:
    folder: Path
    object_format: str
    environment: dict[str, str]

    @property
    def index(self) -> Path:
        return self.folder / "index"


def make_isolated_repository(folder: Path, *, objects: str, object_format: str) -> IsolatedRepository:
    """`objects` is the real repository's object store."""
    repository = make_empty_repository(folder / "git", object_format)
    environment = {
        "GIT_DIR": str(repository),
        "GIT_INDEX_FILE": str(folder / "index"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternate(objects),
        # The folder above is not a repository, whatever lies there.
        "GIT_CEILING_DIRECTORIES": os.fspath(folder),
    }
    return IsolatedRepository(folder, object_format, environment)


def make_empty_repository(folder: Path, object_format: str, *, attributes: str = "") -> Path:
    for name in ("refs", "objects", "info"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    if attributes:
        (folder / "info" / "attributes").write_text(attributes)
    is_usual = object_format == "sha1"
    special = "" if is_usual else f"[extensions]\n\tobjectformat = {object_format}\n"
    (folder / "config").write_text(f"[core]\n\trepositoryformatversion = {int(not is_usual)}\n\tbare = true\n{special}")
    return folder
