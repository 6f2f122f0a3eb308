"""Private files and file locks, in folders that another user may have filled.

A cloned repository can hold a link, a pipe or a folder under any name that the broker uses. So nothing here follows a
link in the last part of a path, waits for a pipe, or writes into a file that was there before its content was complete.
A lock ends with the process that holds it.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LARGEST_READ = 1024 * 1024
OWNER_ONLY = 0o600
# Windows knows neither. There a link is looked for before the file is opened.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_FLAGS = _NO_FOLLOW | _NO_WAIT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_OTHERS = 0o077


class UnfitFileError(OSError):
    """What has this name is not a file that the broker may use. The text ends a sentence."""


def read_regular(path: Path, *, largest: int = LARGEST_READ, follow_links: bool = False) -> bytes:
    """Read a whole regular file. Anything else, or more than `largest` bytes, is an UnfitFileError.

    Links are followed only where the whole path is the user's own choice."""
    return read_with_status(path, largest=largest, follow_links=follow_links)[0]


def read_with_status(
    path: Path, *, largest: int = LARGEST_READ, follow_links: bool = False
) -> tuple[bytes, os.stat_result]:
    descriptor = _open(path, os.O_RDONLY, follow_links=follow_links)
    try:
        status = _require_regular(path, descriptor)
    except UnfitFileError:
        os.close(descriptor)
        raise
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        if status.st_size > largest:
            raise UnfitFileError(f"{path} has {status.st_size} bytes, and at most {largest} are read")
        # It may have grown meanwhile.
        content = file.read(largest + 1)
    if len(content) > largest:
        raise UnfitFileError(f"{path} has more than {largest} bytes, and at most {largest} are read")
    return content, status


def open_private(path: Path, flags: int) -> int:
    """Open a regular file that only its owner may read. It is made if `flags` has O_CREAT."""
    descriptor = _open(path, flags)
    try:
        status = _require_regular(path, descriptor)
        if status.st_mode & _OTHERS and sys.platform != "win32":
            os.fchmod(descriptor, OWNER_ONLY)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_private(path: Path, content: bytes, *, mode: int = OWNER_ONLY, synced: bool = False) -> None:
    """Write the whole content or none of it; replace a link. With `synced`, wait until it is on the disk."""
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - the descriptor carries the mode
            file.write(content)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    if synced:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in it are on the disk. Windows has no such call."""
    if sys.platform != "win32":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_private_folder(folder: Path) -> None:
    """Make the folder and all that are missing above it; `parents=True` would leave those open to others."""
    if not folder.parent.exists():
        make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def links_in(path: Path, *, below: Path) -> Iterator[Path]:
    """Find the parts of a path below a folder that are links, outermost first."""
    here = below
    for part in path.relative_to(below).parts:
        here /= part
        if _is_link(here):
            yield here


def is_private(status: os.stat_result) -> bool:
    """Check that only this user may read or write it. Windows has no such modes."""
    if sys.platform == "win32":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS


def _open(path: Path, flags: int, *, follow_links: bool = False) -> int:
    if not follow_links and _is_link(path):
        raise UnfitFileError(f"{path} is a link")
    return os.open(path, flags | (_FLAGS & ~_NO_FOLLOW if follow_links else _FLAGS), OWNER_ONLY)


def _is_link(path: Path) -> bool:
    return path.is_symlink() or path.is_junction() if sys.version_info >= (3, 12) else path.is_symlink()


def _require_regular(path: Path, descriptor: int) -> os.stat_result:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnfitFileError(f"{path} is not a regular file")
    return status


_LONGEST_CONTENT = 4096
# Asking whether a lock is held takes it for a moment; acquire_lock waits that long.
_MOMENT_SECONDS = 0.5
_LOOK_SECONDS = 0.01
# Windows locks this byte, far behind the content: a locked byte cannot be read there.
_LOCKED_BYTE = 1 << 20

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def _wait_for_lock(descriptor: int) -> None:
        """Try again and again; the system itself tries for ten seconds."""
        while True:
            try:
                os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
            except OSError:
                continue
            return
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _wait_for_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def acquire_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock until it is closed; None if another process has the lock."""
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    end = time.monotonic() + _MOMENT_SECONDS
    while True:
        try:
            _try_lock(descriptor)
        except OSError:
            if time.monotonic() > end:
                os.close(descriptor)
                return None
            time.sleep(_LOOK_SECONDS)
        else:
            return descriptor


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Wait for the lock, however long another process has it."""
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        _wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def content_while_held(path: Path) -> bytes | None:
    """Return what the holder wrote into the file; None if the lock is free: then its content proves nothing."""
    try:
        descriptor = open_private(path, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError, PermissionError, UnfitFileError):
        return None
    try:
        if _is_free(descriptor):
            return None
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, _LONGEST_CONTENT)
    finally:
        os.close(descriptor)


def lock_owner(path: Path) -> int | None:
    """Return the process that holds the lock, by what it wrote; None if the lock is free or names no process."""
    try:
        pid = json.loads(content_while_held(path) or b"")["pid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return pid if isinstance(pid, int) and not isinstance(pid, bool) else None


def _is_free(descriptor: int) -> bool:
    try:
        _try_lock(descriptor)
    except OSError:
        return False
    _unlock(descriptor)
    return True
