"""A broker's database and the files beside it: their names, and what a repository must not make of them.

The owner of a repository can put a link, or a file of their own, under each of these names. Then the broker would write
where the link leads, or trust what the file says.
"""

import os
import stat
from pathlib import Path

from gsd_review_broker.errors import StartError
from gsd_review_broker.files.private import links_in
from gsd_review_broker.settings.database import Database

# Says that the reviews are in another database now.
_MOVED = ".moved"
# A database that is being copied to here.
_UNFINISHED = ".unfinished"
_SUFFIXES = ("", "-wal", "-shm", "-journal", ".lock", ".runtime.json", _MOVED, _UNFINISHED)
_GIT_FOLDERS = {".git", "git~1"}


def lock_path(database: Database) -> Path:
    return _beside(database, ".lock")


def runtime_path(database: Database) -> Path:
    return _beside(database, ".runtime.json")


def moved_path(database: Database) -> Path:
    return _beside(database, _MOVED)


def draft_path(database: Database) -> Path:
    """A file that is copied gets its name when it is complete; until then it has this one."""
    return _beside(database, _UNFINISHED)


def state_files(database: Database) -> list[Path]:
    """The database, and what SQLite and the broker keep beside it."""
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
