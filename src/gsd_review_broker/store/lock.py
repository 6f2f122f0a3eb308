"""Who may open a database: one broker for one SQLite file, and none for a database that was moved to another place."""

import json
import os

from gsd_review_broker.errors import StartError
from gsd_review_broker.files import acquire_lock, lock_owner, read_regular, write_private
from gsd_review_broker.settings.state_files import Database, lock_path, moved_path

_LONGEST = 4096


class DatabaseLock:
    """Held from start to stop, and by a move, and released with the process. It names its owner."""

    def __init__(self, database: Database) -> None:
        self._path = lock_path(database)
        self._database = database
        self._descriptor: int | None = None

    def acquire(self, *, advice: str = "stop that one, or use another database with --db.") -> None:
        descriptor = acquire_lock(self._path)
        if descriptor is None:
            pid = lock_owner(self._path)
            raise StartError(
                f"the database {self._database} is in use by another broker, or by `tandem db migrate-to` "
                f"({f'pid {pid}' if pid is not None else 'pid unknown'}); {advice}"
            )
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps({"pid": os.getpid()}).encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Leave the file: after a removal two brokers could lock two files of the same name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def mark_moved(database: Database, to: str) -> None:
    """Write a file beside a SQLite database that says where its reviews are. It is on the disk when this returns."""
    write_private(moved_path(database), json.dumps({"moved_to": to}).encode(), synced=True)


def reopen(database: Database) -> None:
    moved_path(database).unlink(missing_ok=True)


def moved_to(database: Database) -> str | None:
    """Return what people call the other database; None if this one is in use."""
    path = moved_path(database)
    try:
        to = json.loads(read_regular(path, largest=_LONGEST))["moved_to"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # The mark forbids writing even if it cannot be read.
        return f"an unknown place ({path.name} cannot be read)"
    # It is shown on terminals.
    return "".join(character if character.isprintable() else "?" for character in str(to))


def moved_refusal(database: object, to: str) -> StartError:
    return StartError(
        f"the database {database} was moved to {to}; use that one (--db, BROKER_DB or `db` in your configuration). To "
        "go on with the old one instead, without what was stored in the other since, run `tandem db reopen`."
    )
