"""Locks on files: they end with the process that holds them, however it ends."""

import json
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from gsd_review_broker.files.private import UnfitFileError, open_private

_LONGEST_CONTENT = 4096
# Whoever only asks whether a lock is held holds it for a moment; whoever wants it waits that long.
_MOMENT_SECONDS = 0.5
_LOOK_SECONDS = 0.01
# Where Windows locks a byte that nobody reads: a locked byte cannot be read there.
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
        """Tried for ten seconds by the system itself, again and again by us."""
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


def acquire(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; None if another has it."""
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
def held(path: Path) -> Generator[None]:
    """Waits for the lock, however long another has it."""
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        _wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def content_while_held(path: Path) -> bytes | None:
    """What the holder wrote into the file; None if nobody holds the lock. A file that nobody locks proves nothing."""
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


def owner(path: Path) -> int | None:
    """The process that holds the lock, by what it wrote; None if nobody holds it or says who."""
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
