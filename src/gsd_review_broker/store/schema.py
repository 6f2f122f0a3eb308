"""What our own databases hold, and which version of it a file has. Light: the gate reads a file's approvals with it.

A database file can bring its own triggers, views, columns and indexes, and SQLite would run them inside our
transactions: a trigger could approve every proposal. So a file is ours only if it holds exactly what the script of its
version makes. `python -m tests.contract` writes the script of the newest version.
"""

import sqlite3
from functools import cache
from pathlib import Path

from gsd_review_broker.errors import StartError

# One script for each version that databases may have.
SCRIPTS = Path(__file__).with_name("migrations") / "schemas"
HEAD = max(path.stem for path in SCRIPTS.glob("*.sql"))
STATEMENT_END = ";\n"
# SQLite's own bookkeeping, which it makes itself.
_INTERNAL = {("table", "sqlite_sequence"), ("table", "sqlite_stat1"), ("table", "sqlite_stat4")}
_EVERYTHING = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
# Named here, since Python 3.11 has neither the names nor the call.
_DEFENSIVE, _ENABLE_TRIGGER, _ENABLE_VIEW = 1010, 1003, 1015


def harden(connection: sqlite3.Connection) -> None:
    """Distrust the file before anything else is asked of it: its schema may not call functions with side effects, and
    damaged pages are noticed. Where Python can say so, triggers and views are off altogether."""
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    switch = getattr(connection, "setconfig", None)
    if switch is not None:
        for option, enabled in ((_DEFENSIVE, True), (_ENABLE_TRIGGER, False), (_ENABLE_VIEW, False)):
            switch(option, enabled)


def stored_version(connection: sqlite3.Connection) -> str | None:
    """Return the database's version; None if it has no schema."""
    known = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
    ).fetchone()
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone() if known else None
    return row[0] if row else None


def is_known(version: object) -> bool:
    return version in _known_versions()


def is_older(version: str | None) -> bool:
    """Can the database be upgraded?"""
    return version != HEAD and is_known(version)


def refuse_foreign(connection: sqlite3.Connection, version: str | None, database: object) -> None:
    """Refuse a file that another program made, and one that was altered."""
    if version is None and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StartError(f"the database {database} belongs to another program; give another file with --db.")
    if version is not None and is_known(version):
        refuse_altered(connection, version, database)


def refuse_unknown(version: str | None, database: object) -> None:
    if version is None or is_known(version):
        return
    first = min(_known_versions())
    if str(version) < first:
        raise StartError(
            f"the database {database} has schema {version}, which is from before the first release; this version "
            f"begins with {first}. Move it away, and the broker makes a new one; or start the broker that made it."
        )
    raise StartError(
        f"the database {database} has schema {version}, which this version does not know (it knows up to "
        f"{HEAD}); run the newer broker that wrote it, or restore a backup."
    )


def require_newest(version: str | None, database: object) -> None:
    """Refuse other versions, for programs that only read: they upgrade nothing."""
    refuse_unknown(version, database)
    if version != HEAD:
        raise StartError(
            f"the database {database} has schema {version}, this version reads {HEAD}; "
            "start the broker on it once, which brings it up to date."
        )


def refuse_altered(connection: sqlite3.Connection, version: str, database: object) -> None:
    actual = objects(connection)
    strange = [name for name in actual if name.startswith(("trigger ", "view "))]
    if is_known(version):
        known = _objects_made_by(SCRIPTS / f"{version}.sql")
        strange += [name for name in actual if name not in known and name not in strange]
        strange += [name for name in known if actual.get(name) != known[name] and name not in strange]
    if strange:
        raise StartError(
            f"the database {database} is not as the broker made it: {', '.join(sorted(strange)[:5])} "
            f"{'is' if len(strange) == 1 else 'are'} added, missing or changed, and could decide reviews; it was left "
            "as it is. Move it away and put a backup in its place, or use another with --db."
        )


def objects(connection: sqlite3.Connection) -> dict[str, str]:
    """Everything that the file's schema holds, by kind and name, as SQL without its layout."""
    return {
        f"{kind} {name}": " ".join((sql or "").split())
        for kind, name, sql in connection.execute(_EVERYTHING)
        if (kind, name) not in _INTERNAL
    }


def statements_of(version: str) -> list[str]:
    """Return what makes an empty database of this version: its tables, their first rows, its indexes."""
    return (SCRIPTS / f"{version}.sql").read_text("utf-8").split(STATEMENT_END)


def _known_versions() -> set[str]:
    return {path.stem for path in SCRIPTS.glob("*.sql")}


@cache
def _objects_made_by(script: Path) -> dict[str, str]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(script.read_text("utf-8"))
        return objects(connection)
    finally:
        connection.close()
