"""A SQLite database that was moved to another one: a file beside it says where to, and no broker writes into it.

It is not a row: SQLite up to 3.51.2 can corrupt a WAL when two processes write, and the broker may be running.
"""

import json
import os
from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files.private import read_regular, write_private
from gsd_review_broker.settings.state_files import Database, moved_path

_LONGEST = 4096


def mark(database: Database, to: str) -> None:
    """From now on the broker refuses to write. On the disk when this returns."""
    write_private(moved_path(database), json.dumps({"moved_to": to}).encode(), synced=True)


def clear(database: Database) -> None:
    moved_path(database).unlink(missing_ok=True)


def moved_to(database: Database) -> str | None:
    """The other database, as people name it; None if this one is in use."""
    return named_in(moved_path(database))


def named_in(path: Path) -> str | None:
    """The same, for whoever knows the path of the file beside the database."""
    # Asked before every commit: nothing is raised where there is no file.
    if not os.access(path, os.F_OK):
        return None
    try:
        to = json.loads(read_regular(path, largest=_LONGEST))["moved_to"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # Whoever wrote it, it says that this database must not be written.
        return f"a place that {path.name} does not name"
    # It is shown on terminals.
    return "".join(character if character.isprintable() else "?" for character in str(to))


def refusal(to: str) -> BrokerError:
    return BrokerError(
        Code.UNAVAILABLE,
        f"this broker's database was moved to {to}",
        "Nothing was stored. Restart the broker with that database (--db, BROKER_DB or `db` in its configuration); to "
        "go on with the old one instead, run `tandem db reopen` where the broker runs.",
    )


def start_refusal(database: object, to: str) -> str:
    return (
        f"the database {database} was moved to {to}; use that one (--db, BROKER_DB or `db` in your configuration). To "
        "go on with the old one instead, without what was stored in the other since, run `tandem db reopen`."
    )
