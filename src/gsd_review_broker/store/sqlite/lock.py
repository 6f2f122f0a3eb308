"""One broker for one SQLite file: a lock that the operating system releases with the process."""

import json
import os
from pathlib import Path

from gsd_review_broker.errors import StartError
from gsd_review_broker.files import locks
from gsd_review_broker.settings.state_files import Database, lock_path


class DatabaseLock:
    """Held from start to stop; names its owner to whoever comes second."""

    def __init__(self, database: Database) -> None:
        self._path = lock_path(database)
        self._database = database
        self._descriptor: int | None = None

    def acquire(self) -> None:
        descriptor = locks.acquire(self._path)
        if descriptor is None:
            raise StartError(
                f"the database {self._database} is in use by another broker ({_owner(self._path)}); "
                "stop that one, or use another database with --db."
            )
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps({"pid": os.getpid()}).encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """The file stays: after a removal two brokers could lock two files of the same name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _owner(path: Path) -> str:
    pid = locks.owner(path)
    return f"pid {pid}" if pid is not None else "pid unknown"
