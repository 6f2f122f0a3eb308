"""One broker for one SQLite file, by a lock that ends with its process."""

import json
import os
import sys
from pathlib import Path

from gsd_review_broker.errors import StartError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Where Windows locks a byte nobody reads: a locked byte cannot be read there.
_LOCKED_BYTE = 1 << 20


class DatabaseLock:
    """Held from start to end; names its owner to whoever comes second."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._database = database
        self._descriptor: int | None = None

    def acquire(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            _try_lock(descriptor)
        except OSError:
            os.lseek(descriptor, 0, os.SEEK_SET)
            owner = _owner(os.read(descriptor, 4096))
            os.close(descriptor)
            raise StartError(
                f"the database {self._database} is in use by another broker ({owner}); "
                "stop that one, or use another database with --db."
            ) from None
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps({"pid": os.getpid()}).encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """The file stays: removing it would let two brokers lock two files of one name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _owner(content: bytes) -> str:
    try:
        return f"pid {json.loads(content)['pid']}"
    except (ValueError, KeyError, TypeError):
        return "pid unknown"
