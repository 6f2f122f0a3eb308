"""A broker's database as a value, and the files beside it: their names, and what a repository must not make of them.

Callers name the database, compare it and derive names from it; only what is SQLite's own asks for its path.

The owner of a repository can put a link, or a file of their own, under each of these names. Then the broker would write
where the link leads, or trust what the file says.
"""

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from gsd_review_broker.errors import StartError
from gsd_review_broker.files import links_in

_KEY_LENGTH = 16
_POSTGRESQL = ("postgresql://", "postgres://")
_PASSWORD = re.compile(r"(?<=[?&]password=)[^&]*")
# Says that the reviews are in another database now.
_MOVED = ".moved"
# A database that is being copied to here.
_UNFINISHED = ".unfinished"
_SUFFIXES = ("", "-wal", "-shm", "-journal", ".lock", ".runtime.json", _MOVED, _UNFINISHED)
_GIT_FOLDERS = {".git", "git~1"}


def is_postgresql(db: str) -> bool:
    return db.startswith(_POSTGRESQL)


def without_password(url: str) -> str:
    """Return the address as it may be shown: in messages, to clients, in a process's arguments."""
    scheme, _, rest = url.partition("://")
    account, at, place = rest.rpartition("@")
    user = account.partition(":")[0]
    return f"{scheme}://{user}{at}{_PASSWORD.sub('***', place)}"


class Database(NamedTuple):
    path: Path
    """The SQLite file, as it was given: its links are not followed. For PostgreSQL, where this broker's own files (its
    lock, its runtime file) are: the path without their suffixes."""
    url: str | None = None
    """The address of a PostgreSQL database, with its password; None for SQLite."""

    def __str__(self) -> str:
        """Return what people and messages call it."""
        return str(self.path) if self.url is None else without_password(self.url)

    @property
    def name(self) -> str:
        """Short, without where it is; fit for a file's name."""
        if self.url is None:
            return self.path.name
        path = without_password(self.url).partition("://")[2].partition("?")[0].partition("/")[2]
        return re.sub(r"[^\w.-]", "_", path) or "postgresql"

    @property
    def key(self) -> str:
        """Return the same for every path that leads to this file; fit for file names and for marking processes."""
        return self.path.name if self.url is not None else key_of(os.path.realpath(self.path))

    def is_inside(self, folder: Path | None) -> bool:
        """Compare paths only. A repository decides what lies inside it, so such a file is trusted less."""
        return self.url is None and folder is not None and folder in self.path.parents


def key_of(text: str) -> str:
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, and most commands need no key

    return hashlib.sha256(os.fsencode(text)).hexdigest()[:_KEY_LENGTH]


def lock_path(database: Database) -> Path:
    return _beside(database, ".lock")


def runtime_path(database: Database) -> Path:
    return _beside(database, ".runtime.json")


def moved_path(database: Database) -> Path:
    return _beside(database, _MOVED)


def draft_path(database: Database) -> Path:
    """Name a database that is being copied to here; it gets its own name when it is complete."""
    return _beside(database, _UNFINISHED)


def state_files(database: Database) -> list[Path]:
    """Name the database, and what SQLite and the broker keep beside it."""
    return [_beside(database, suffix) for suffix in _SUFFIXES]


def _beside(database: Database, suffix: str) -> Path:
    return database.path.with_name(database.path.name + suffix)


def refuse_unfit(database: Database, root: Path | None, origin: str) -> None:
    """Checks names only. Raises StartError if a name leads elsewhere or is not a file."""
    where = "" if origin == "default" else f"{origin}: db: "
    if {part.casefold() for part in Path(os.path.realpath(database.path)).parts} & _GIT_FOLDERS:
        raise StartError(
            f"{where}{database} lies in a .git folder, which is git's own; choose another place with --db."
        )
    if root is None or not database.is_inside(root):
        return
    for link in links_in(database.path.parent, below=root):
        raise StartError(
            f"{where}{link} is a link to {os.readlink(link)!r}, and a repository must not choose where the broker "  # noqa: PTH115 - as it is written
            "writes; replace it by a folder, or use another database with --db."
        )
    for path in state_files(database):
        _refuse_other_than_file(path, where)


def _refuse_other_than_file(path: Path, where: str) -> None:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StartError(f"{where}{path} cannot be looked at: {error.strerror}.") from error
    if stat.S_ISREG(status.st_mode):
        return
    what = "a link" if stat.S_ISLNK(status.st_mode) else "a folder" if stat.S_ISDIR(status.st_mode) else "not a file"
    raise StartError(
        f"{where}{path} is {what}, and the broker keeps a file of its own there; remove it, or use another database "
        "with --db."
    )
