"""Is the file a database of ours? Looked at without writing, and without a broker."""

import contextlib
import sqlite3
from pathlib import Path

from gsd_review_broker.errors import StartError

_HEADER = b"SQLite format 3\0"


def what_is_wrong(path: Path) -> tuple[str, str] | None:
    """What, and what to do. None for one of ours, and for an empty file, which the broker fills."""
    another = f"Move it away and put a backup in its place ({path.name}.backup-*), or choose another file with --db."
    if not path.is_file():
        return f"{path} is not a file", another
    try:
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}", "Change its owner or permissions, or choose --db."
    if not header:
        return None
    if header != _HEADER:
        return f"{path} is damaged, or is not a database", another
    try:
        _look(path)
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return None
        return f"{path} is damaged: {error}", f"{another} sqlite3's .recover saves what can be saved."
    except StartError as error:
        return str(error), "It was not changed."
    return None


def _look(path: Path) -> None:
    from gsd_review_broker.store import schema

    # Without a journal nobody writes, and none has to be made in order to read.
    is_in_use = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if is_in_use else "mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as connection:
        schema.harden(connection)
        version = schema.stored_version(connection)
        schema.refuse_foreign(connection, version, path)
        schema.refuse_unknown(version, path)
