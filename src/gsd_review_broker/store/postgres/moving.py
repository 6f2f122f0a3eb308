"""PostgreSQL as the two ends of a move: one that holds the writes of all its brokers, and one that is filled."""

import contextlib
import secrets
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from gsd_review_broker.errors import StartError
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store.changes import (
    COUNT,
    KEYS,
    ROW,
    TABLES,
    Changes,
    DifferentError,
    TableChanges,
    by_key,
    follow,
    key_of,
)
from gsd_review_broker.store.postgres import copying, schema
from gsd_review_broker.store.postgres.statements import PostgresStatements
from gsd_review_broker.store.sqlite import verification
from gsd_review_broker.store.statements import SqliteStatements
from gsd_review_broker.store.writes import MovedAwayError, lock_head

# The number of the oldest transaction that was under way: the snapshot sees all before it. Rows have 32 bits of it.
_UNSEEN = sa.text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint & 4294967295")
# Rows that a transaction wrote which the snapshot did not see. Numbers start over after 2^32, so their distance counts:
# a row from long ago may be among them, which is compared in vain.
_WRITTEN_SINCE = sa.text("((xmin::text::bigint - :unseen) & 4294967295) < 2147483648")
# Rows that this transaction wrote.
_WRITTEN_HERE = sa.text("xmin = pg_current_xact_id()::xid")
# The server ends a hold whose mover says nothing for so long; one whose process has died it ends at once.
_HOLD = (
    sa.text("SET LOCAL idle_in_transaction_session_timeout = '30s'"),
    sa.text("SET LOCAL lock_timeout = '30s'"),
)


class PostgresSource:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._unseen = 0
        self._holding: AsyncConnection | None = None

    async def moved_to(self) -> str | None:
        async with copying.reading(self._database) as connection:
            return await connection.run_sync(schema.moved_to)

    async def reopen(self) -> None:
        async with copying.writing(self._database) as connection:
            await connection.run_sync(schema.reopen)

    async def copy_to(self, base: Path) -> None:
        async with copying.reading(self._database) as connection:
            unseen = (await connection.execute(_UNSEEN)).scalar_one()
            await connection.run_sync(copying.to_file, self._database, base)
        self._unseen = unseen

    async def changes_since(self, base: Path) -> Changes:
        """Only rows that were written since are fetched; the server finds them by the transaction that wrote them."""
        if self._holding is not None:
            return await self._holding.run_sync(self._changes, base)
        async with copying.reading(self._database) as connection:
            unseen = (await connection.execute(_UNSEEN)).scalar_one()
            changes = await connection.run_sync(self._changes, base)
        self._unseen = unseen
        return changes

    def _changes(self, connection: sa.Connection, base: Path) -> Changes:
        copying.refuse_other_version(connection, self._database)
        with verification.opened(base) as file:
            tables = [_changes(connection, SqliteStatements(file), table, self._unseen) for table in TABLES]
        numbers = copying.last_numbers(connection)
        return Changes([one for one in tables if one.gone or one.changed or one.new], numbers)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Nobody commits: this transaction holds the chain's head, which every commit of every broker waits for."""
        async with copying.writing(self._database) as connection:
            for setting in _HOLD:
                await connection.execute(setting)
            try:
                await connection.run_sync(lambda held: lock_head(PostgresStatements(held)))
            except MovedAwayError as error:
                raise StartError(f"the database {self._database} was moved meanwhile; nothing was moved.") from error
            self._holding = connection
            try:
                yield
            finally:
                self._holding = None

    async def mark_moved(self, to: str) -> None:
        """Ends the hold: whoever waited for the head finds out."""
        assert self._holding is not None  # noqa: S101 - nothing is marked without a hold
        await self._holding.run_sync(schema.mark_moved, to)
        await self._holding.commit()


def _changes(connection: sa.Connection, base: SqliteStatements, table: sa.Table, unseen: int) -> TableChanges:
    changes = TableChanges(table)
    now = PostgresStatements(connection)
    for row in now.stream(sa.select(table).where(_WRITTEN_SINCE.bindparams(unseen=unseen))):
        before = base.row(ROW[table], by_key(table, key_of(table, row)))
        if before is None:
            changes.new.append(row)
        elif before != row:
            changes.changed.append(row)
    if _count(now, table) != _count(base, table) + len(changes.new):
        left = set(now.rows(KEYS[table], {}))
        changes.gone.extend(key for key in base.rows(KEYS[table], {}) if key not in left)
    return changes


def _count(statements: PostgresStatements | SqliteStatements, table: sa.Table) -> int:
    row = statements.row(COUNT[table], {})
    assert row is not None  # noqa: S101 - a count is always one row
    return row[0]


def _follow(connection: sa.Connection, changes: Changes) -> None:
    """Rows are compared all together: one by one they would take a round trip each."""
    copy = PostgresStatements(connection)
    before = {one.table: _count(copy, one.table) for one in changes.tables}
    follow(copy, changes)
    for one in changes.tables:
        stored = {key_of(one.table, row): row for row in copy.stream(sa.select(one.table).where(_WRITTEN_HERE))}
        expected = {key_of(one.table, row): row for row in (*one.changed, *one.new)}
        is_complete = _count(copy, one.table) == before[one.table] + len(one.new) - len(one.gone)
        if stored != expected or not is_complete:
            raise DifferentError(one.table.name)


class PostgresTarget:
    def __init__(self, database: Database) -> None:
        self._database = database
        # Two moves into one database do not mix: each knows its own copy.
        self._mover = secrets.token_hex(8)

    @contextlib.asynccontextmanager
    async def reserved(self) -> AsyncGenerator[None]:
        """Nothing to do: the copy is known by its mover."""
        yield

    async def is_unfinished(self) -> bool:
        async with copying.reading(self._database) as connection:
            return await connection.run_sync(schema.is_unfinished)

    async def load(self, base: Path) -> None:
        await copying.load(base, self._database, mover=self._mover)

    async def differing(self, base: Path) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="tandem-move-") as folder:
            copy = Path(folder) / "copy.sqlite3"
            await copying.snapshot(self._database, copy)
            return verification.differing_tables(base, copy)

    async def follow(self, changes: Changes) -> None:
        async with copying.writing(self._database) as connection:
            await connection.run_sync(schema.refuse_other_copy, self._database, self._mover)
            await connection.run_sync(_follow, changes)
            await copying.continue_from(connection, changes.numbers)

    async def finish(self) -> None:
        async with copying.writing(self._database) as connection:
            await connection.run_sync(schema.refuse_other_copy, self._database, self._mover)
            await connection.run_sync(schema.finish_copy)
