"""The database that a broker keeps its reviews in, as a value.

Callers name it, compare it and derive names from it; only what is SQLite's own asks for its path. So another kind of
database changes this module, and not the signatures of its callers.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

_KEY_LENGTH = 16
_POSTGRESQL = ("postgresql://", "postgres://")
_PASSWORD = re.compile(r"(?<=[?&]password=)[^&]*")


def is_postgresql(db: str) -> bool:
    return db.startswith(_POSTGRESQL)


def without_password(url: str) -> str:
    """As it may be shown: in messages, to clients, in a process's arguments."""
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
        """As people and messages name it."""
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
        """The same for every path that leads to this file; fit for file names and for marking processes."""
        return self.path.name if self.url is not None else key_of(os.path.realpath(self.path))

    def is_inside(self, folder: Path | None) -> bool:
        """By its path alone. A repository decides what lies inside it, so such a file is trusted less."""
        return self.url is None and folder is not None and folder in self.path.parents


def key_of(text: str) -> str:
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, and most commands need no key

    return hashlib.sha256(os.fsencode(text)).hexdigest()[:_KEY_LENGTH]
