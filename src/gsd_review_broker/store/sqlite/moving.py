"""SQLite as the two ends of a move: a file that holds its broker's writes, and a new file that gets its name last."""

import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import sqlalchemy as sa

from gsd_review_broker.errors import StartError
from gsd_review_broker.files.private import make_private_folder, open_private, sync_folder
from gsd_review_broker.settings.state_files import Database, draft_path
from gsd_review_broker.store.changes import COUNT, TABLES, Changes, TableChanges, compare, follow, typed
from gsd_review_broker.store.sqlite import known_schema, moved, verification
from gsd_review_broker.store.sqlite.lock import DatabaseLock
from gsd_review_broker.store.statements import SqliteStatements, sql_of

# A busy broker leaves the lock free for a moment after each commit.
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.001


class SqliteSource:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def moved_to(self) -> str | None:
        return moved.moved_to(self._database)

    async def reopen(self) -> None:
        moved.clear(self._database)

    async def copy_to(self, base: Path) -> None:
        """One moment of the database, by SQLite itself."""
        with verification.opened(self._database.path):
            back_up(self._database.path, base)

    async def changes_since(self, base: Path) -> Changes:
        """Every row is compared with the copy's, by SQLite: 100,000 reviews take two seconds."""
        with verification.opened(self._database.path) as connection, _beside(connection, base):
            tables = [_changes(connection, table) for table in TABLES]
            numbers = dict(connection.execute("SELECT name, seq FROM main.sqlite_sequence"))
            return Changes([one for one in tables if one.gone or one.changed or one.new], numbers)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Nobody writes: this connection holds the write lock, and stores nothing. It ends with the process.

        A broker's commands wait for the lock as long as for any other process, and are then refused with `busy`.
        """
        with contextlib.closing(_connected(self._database.path)) as connection:
            _lock(connection, self._database)
            if await self.moved_to() is not None:
                raise StartError(f"the database {self._database} was moved meanwhile; nothing was moved.")
            yield

    async def mark_moved(self, to: str) -> None:
        moved.mark(self._database, to)


class SqliteTarget:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._draft = draft_path(database)

    @contextlib.asynccontextmanager
    async def reserved(self) -> AsyncGenerator[None]:
        """No broker starts here, and nobody else copies to here."""
        if self._database.path.exists():
            raise StartError(f"{self._database} exists already; give a new file's path.")
        make_private_folder(self._database.path.parent)
        lock = DatabaseLock(self._database)
        lock.acquire()
        try:
            yield
        finally:
            lock.release()

    async def is_unfinished(self) -> bool:
        return self._draft.exists()

    async def load(self, base: Path) -> None:
        self._draft.unlink(missing_ok=True)
        os.close(open_private(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        back_up(base, self._draft)

    async def differing(self, base: Path) -> list[str]:
        return verification.differing_tables(base, self._draft)

    async def follow(self, changes: Changes) -> None:
        follow_in_file(self._draft, changes)

    async def finish(self) -> None:
        """The file gets its name. If a database of this name was moved away before, that no longer counts."""
        moved.clear(self._database)
        self._draft.replace(self._database.path)
        sync_folder(self._database.path.parent)


def back_up(file: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as source,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)
        # One file, until a broker opens it.
        copy.execute("PRAGMA journal_mode=DELETE")


def follow_in_file(copy: Path, changes: Changes) -> None:
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        follow(SqliteStatements(connection), changes)
        compare(SqliteStatements(connection), changes)
        connection.execute("DELETE FROM sqlite_sequence")
        connection.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", changes.numbers.items())
        connection.execute("COMMIT")


@contextlib.contextmanager
def _beside(connection: sqlite3.Connection, base: Path) -> Generator[None]:
    # A transaction is under way, and a database can be attached only between two.
    connection.execute("COMMIT")
    connection.execute("ATTACH ? AS base", (f"{base.absolute().as_uri()}?mode=ro",))
    connection.execute("BEGIN")
    yield


def _changes(connection: sqlite3.Connection, table: sa.Table) -> TableChanges:
    names = [f'"{column.name}"' for column in table.columns]
    keys = [f'"{column.name}"' for column in table.primary_key]
    same = " AND ".join(f"now.{name} = base.{name}" for name in keys)
    differs = " OR ".join(f"now.{name} IS NOT base.{name}" for name in names)
    pairs = f"main.{table.name} AS now LEFT JOIN base.{table.name} AS base ON {same}"
    row = ", ".join(f"now.{name}" for name in names)
    rows = connection.execute(f"SELECT base.{keys[0]} IS NULL, {row} FROM {pairs} WHERE {differs}").fetchall()  # noqa: S608 - names of ours
    changes = TableChanges(
        table,
        changed=list(typed(table, (row[1:] for row in rows if not row[0]))),
        new=list(typed(table, (row[1:] for row in rows if row[0]))),
    )
    before = connection.execute(f"SELECT count(*) FROM base.{table.name}").fetchone()[0]  # noqa: S608 - names of ours
    (now,) = connection.execute(sql_of(COUNT[table])).fetchone()
    if now != before + len(changes.new):
        key = ", ".join(f"base.{name}" for name in keys)
        there = f"base.{table.name} AS base LEFT JOIN main.{table.name} AS now ON {same}"
        gone = f"SELECT {key} FROM {there} WHERE now.{keys[0]} IS NULL"  # noqa: S608 - names of ours
        changes.gone.extend(connection.execute(gone))
    return changes


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=0)
    known_schema.harden(connection)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    return connection


def _lock(connection: sqlite3.Connection, database: Database) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise StartError(f"the writes of the database {database} cannot be held: {error}.") from error
            time.sleep(_LOOK_SECONDS)
        else:
            return
