"""What our own databases hold: every table and index by a hash of its SQL.

A database file can bring its own triggers, views, columns and indexes, and SQLite would run them inside our
transactions: a trigger could approve every proposal. So a file counts as ours only if it holds exactly what our
migrations make. `python -m tests.contract` writes the list of the newest version.
"""

import hashlib
import json
import sqlite3
from functools import cache
from pathlib import Path

from gsd_review_broker.errors import StartError

FILE = "known_schemas.json"
# SQLite's own bookkeeping; it makes these itself and nobody else can.
_INTERNAL = {("table", "sqlite_sequence"), ("table", "sqlite_stat1"), ("table", "sqlite_stat4")}
_EVERYTHING = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
# Named here, since Python 3.11 has neither the names nor the call.
_DEFENSIVE, _ENABLE_TRIGGER, _ENABLE_VIEW = 1010, 1003, 1015


def harden(connection: sqlite3.Connection) -> None:
    """Before anything else is asked of a file: its schema may not call functions with side effects, and damaged pages
    are noticed. Where Python can say so, triggers and views are off altogether."""
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    switch = getattr(connection, "setconfig", None)
    if switch is not None:
        for option, enabled in ((_DEFENSIVE, True), (_ENABLE_TRIGGER, False), (_ENABLE_VIEW, False)):
            switch(option, enabled)


def objects(connection: sqlite3.Connection) -> dict[str, str]:
    """Everything that the file's schema holds, by kind and name."""
    return {
        f"{kind} {name}": hashlib.sha256(" ".join(sql.split()).encode()).hexdigest()[:32] if sql else ""
        for kind, name, sql in connection.execute(_EVERYTHING)
        if (kind, name) not in _INTERNAL
    }


def is_known(version: object) -> bool:
    return version in _known()


def refuse_altered(connection: sqlite3.Connection, version: str, database: object) -> None:
    actual = objects(connection)
    strange = [name for name in actual if name.startswith(("trigger ", "view "))]
    known = _known().get(version)
    if known is not None:
        strange += [name for name in actual if name not in known and name not in strange]
        strange += [name for name in known if actual.get(name) != known[name] and name not in strange]
    if strange:
        raise StartError(
            f"the database {database} is not as the broker made it: {', '.join(sorted(strange)[:5])} "
            f"{'is' if len(strange) == 1 else 'are'} added, missing or changed, and could decide reviews; it was left "
            "as it is. Move it away and put a backup in its place, or use another with --db."
        )


@cache
def _known() -> dict[str, dict[str, str]]:
    return json.loads(Path(__file__).with_name(FILE).read_text("utf-8"))
