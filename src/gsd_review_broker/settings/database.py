"""The database that a broker keeps its reviews in, as a value.

Callers name it, compare it and derive names from it; only what is SQLite's own asks for its path. So another kind of
database changes this module, and not the signatures of its callers.
"""

import os
from pathlib import Path
from typing import NamedTuple

_KEY_LENGTH = 16


class Database(NamedTuple):
    path: Path
    """The SQLite file, as it was given: its links are not followed."""

    def __str__(self) -> str:
        """As people and messages name it."""
        return str(self.path)

    @property
    def name(self) -> str:
        """Short, without where it is."""
        return self.path.name

    @property
    def key(self) -> str:
        """The same for every path that leads to this file; fit for file names and for marking processes."""
        import hashlib  # noqa: PLC0415 - it loads OpenSSL, and most commands need no key

        return hashlib.sha256(os.fsencode(os.path.realpath(self.path))).hexdigest()[:_KEY_LENGTH]

    def is_inside(self, folder: Path | None) -> bool:
        """By its path alone. A repository decides what lies inside it, so such a file is trusted less."""
        return folder is not None and folder in self.path.parents
