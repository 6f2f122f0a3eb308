"""Copies a whole database between PostgreSQL and a SQLite file: one moment, every table, every number."""

import contextlib
import secrets
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from gsd_review_broker.errors import StartError
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store import migrations, schema, verification
from gsd_review_broker.store.postgres import engine
from gsd_review_broker.store.postgres.statements import PostgresStatements, reason_of
from gsd_review_broker.store.statements import Values, insert_sql, sql_of
from gsd_review_broker.store.tables import audit_head, counter_patches, gate_overrides, messages, metadata

# Tables whose rows the database numbers; a number is never used twice, even if its row is in an archive.
_NUMBERED = (messages, counter_patches, gate_overrides)
_ALL_TABLES = ", ".join(table.name for table in metadata.sorted_tables)
# Whatever a broker does meanwhile, it writes nothing until the transaction ends.
_HOLD = (
    sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"),
    sa.text("SET LOCAL lock_timeout = '30s'"),
    sa.text(f"LOCK TABLE {_ALL_TABLES} IN SHARE MODE"),
)
_RUNNING_BROKERS = sa.text(
    "SELECT id FROM brokers WHERE id <> :own AND "
    "heartbeat_at > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - :silence ORDER BY id"
)


async def snapshot(database: Database, target: Path) -> None:
    """Copy one moment of the database into a new SQLite file. Raises StartError."""
    async with reading(database) as connection:
        await connection.run_sync(_to_file, database, target)


async def moved_to(database: Database) -> str | None:
    async with reading(database) as connection:
        return await connection.run_sync(engine.moved_to)


async def is_unfinished(database: Database) -> bool:
    async with reading(database) as connection:
        return await connection.run_sync(engine.is_unfinished)


async def reopen(database: Database) -> None:
    async with writing(database) as connection:
        await connection.run_sync(engine.reopen)


@contextlib.asynccontextmanager
async def at_rest(
    database: Database, copy: Path, *, silence_milliseconds: int
) -> AsyncGenerator[Callable[[str], Awaitable[None]]]:
    """Copy the database into a file; nothing changes it meanwhile. Yields what marks it as moved.

    Brokers that have been silent for so long are dead.
    """
    async with writing(database) as connection:
        await connection.run_sync(_refuse_running, database, silence_milliseconds)
        for statement in _HOLD:
            await connection.execute(statement)
        await connection.run_sync(_to_file, database, copy)

        async def mark(to: str) -> None:
            await connection.run_sync(engine.mark_moved, to)
            await connection.commit()

        yield mark


def _refuse_running(connection: sa.Connection, database: Database, silence_milliseconds: int) -> None:
    """Refuse to go on while brokers of other machines run. The lock has refused this machine's own."""
    schema.require_newest(engine.stored_version(connection), database)
    known = {"own": engine.broker_id_of(database), "silence": silence_milliseconds}
    machines = {row[0].partition(":")[0] for row in connection.execute(_RUNNING_BROKERS, known)}
    if machines:
        raise StartError(
            f"other brokers use the database {database}, on {', '.join(sorted(machines))}; stop each of them with "
            f"`tandem down`, and run this again {silence_milliseconds // 1000} s later."
        )


class PostgresTarget:
    """An empty database that is filled, and that no broker opens until it is finished."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Two moves into one database do not mix: each knows its own copy.
        self._mover = secrets.token_hex(8)

    async def load(self, source: Path) -> None:
        async with writing(self._database) as connection:
            await connection.run_sync(engine.create_empty, self._database, self._mover)
            with verification.opened(source) as file:
                await _from_sqlite(file, connection)

    async def copied(self, folder: Path) -> Path:
        """Copy what it holds into a SQLite file."""
        copy = folder / "target.sqlite3"
        await snapshot(self._database, copy)
        return copy

    async def finish(self) -> None:
        async with writing(self._database) as connection:
            await connection.run_sync(engine.refuse_other_copy, self._database, self._mover)
            await connection.run_sync(engine.finish_copy)


@contextlib.asynccontextmanager
async def writing(database: Database) -> AsyncGenerator[AsyncConnection]:
    """Open one transaction. Raises StartError."""
    async with _connected(database, "used") as connection, connection.begin():
        yield connection


@contextlib.asynccontextmanager
async def reading(database: Database) -> AsyncGenerator[AsyncConnection]:
    """Open one snapshot. Raises StartError."""
    async with _connected(database, "read") as connection:
        yield await connection.execution_options(**engine.SNAPSHOT)


@contextlib.asynccontextmanager
async def _connected(database: Database, purpose: str) -> AsyncGenerator[AsyncConnection]:
    assert database.url is not None  # noqa: S101 - the caller looked
    connections = engine.make_engine(database.url, pooled=False)
    try:
        async with connections.connect() as connection:
            yield connection
    except (exc.SQLAlchemyError, OSError, ValueError) as error:
        raise StartError(f"the database {database} cannot be {purpose}: {reason_of(error)}.") from error
    finally:
        await connections.dispose()


def _to_file(connection: sa.Connection, database: Database, target: Path) -> None:
    schema.require_newest(engine.stored_version(connection), database)
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as file:
        _to_sqlite(connection, file)


def _to_sqlite(source: sa.Connection, target: sqlite3.Connection) -> None:
    """Into an empty file. The connection's transaction sees one moment."""
    migrations.upgrade(target)
    statements = PostgresStatements(source)
    target.execute("BEGIN IMMEDIATE")
    target.execute("DELETE FROM audit_head")
    for table in metadata.sorted_tables:
        target.executemany(insert_sql(table), statements.stream(sa.select(table)))
    target.execute("DELETE FROM sqlite_sequence")
    target.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", _last_numbers(source).items())
    target.execute("COMMIT")


def _last_numbers(source: sa.Connection) -> dict[str, int]:
    """Return the last number that was given in each numbered table; none if there was none yet."""
    numbers: dict[str, int] = {}
    for table in _NUMBERED:
        last = source.execute(sa.text(f"SELECT last_value, is_called FROM {table.name}_id_seq")).one()  # noqa: S608 - names of ours
        if last.is_called:
            numbers[table.name] = last.last_value
    return numbers


async def _from_sqlite(source: sqlite3.Connection, target: AsyncConnection) -> None:
    await target.execute(sa.delete(audit_head))
    driver: Any = (await target.get_raw_connection()).driver_connection
    for table in metadata.sorted_tables:
        rows = source.execute(sql_of(sa.select(table)))
        names = [column.name for column in table.columns]
        # COPY takes a fifth of the time that INSERT takes.
        await driver.copy_records_to_table(table.name, columns=names, records=_with_booleans(table, rows))
    # The server plans its queries by statistics, and would make them some time after the broker's start.
    await target.execute(sa.text(f"ANALYZE {_ALL_TABLES}"))
    for name, last in source.execute("SELECT name, seq FROM sqlite_sequence"):
        await target.execute(sa.text(f"SELECT setval('{name}_id_seq', :last)"), {"last": last})


def _with_booleans(table: sa.Table, rows: Iterable[Values]) -> Iterator[Values]:
    """Turn SQLite's 0 and 1 into the booleans that PostgreSQL needs."""
    booleans = {number for number, column in enumerate(table.columns) if isinstance(column.type, sa.Boolean)}
    if not booleans:
        return iter(rows)
    return (tuple(bool(value) if number in booleans else value for number, value in enumerate(row)) for row in rows)
