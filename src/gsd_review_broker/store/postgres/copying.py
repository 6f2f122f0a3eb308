"""Copies a whole database between PostgreSQL and a SQLite file: one snapshot, every table, every number."""

import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from gsd_review_broker.errors import StartError
from gsd_review_broker.settings.database import Database
from gsd_review_broker.store.postgres.engine import APPLICATION_NAME, SNAPSHOT, make_engine
from gsd_review_broker.store.postgres.errors import reason_of
from gsd_review_broker.store.postgres.schema import create_empty, finish_copy, stored_version
from gsd_review_broker.store.postgres.statements import PostgresStatements
from gsd_review_broker.store.sqlite import schema, verification
from gsd_review_broker.store.statements import Values, sql_of
from gsd_review_broker.store.tables import audit_head, counter_patches, gate_overrides, messages, metadata

_SESSIONS = sa.text(
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name = :name AND pid != pg_backend_pid()"
)
# Tables whose rows the database numbers; a number is never used twice, even if its row is in an archive.
_NUMBERED = (messages, counter_patches, gate_overrides)


async def snapshot(database: Database, target: Path) -> None:
    """The database as it is at one moment, as a new SQLite file. Raises StartError."""
    assert database.url is not None  # noqa: S101 - the caller looked
    engine = make_engine(database.url, pooled=False)
    try:
        async with engine.connect() as connection:
            await connection.execution_options(**SNAPSHOT)
            await connection.run_sync(_to_file, database, target)
    except (exc.SQLAlchemyError, OSError, ValueError) as error:
        raise StartError(f"the database {database} cannot be read: {reason_of(error)}.") from error
    finally:
        await engine.dispose()


def _to_file(connection: sa.Connection, database: Database, target: Path) -> None:
    version = stored_version(connection)
    if version != schema.HEAD:
        raise StartError(
            f"the database {database} has schema {version}, this version reads {schema.HEAD}; "
            "start the broker on it once, which brings it up to date."
        )
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as file:
        to_sqlite(connection, file)


def to_sqlite(source: sa.Connection, target: sqlite3.Connection) -> None:
    """Into an empty file. The connection's transaction is the snapshot."""
    schema.upgrade(target)
    statements = PostgresStatements(source)
    target.execute("BEGIN IMMEDIATE")
    target.execute("DELETE FROM audit_head")
    for table in metadata.sorted_tables:
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        places = ", ".join("?" for _ in table.columns)
        target.executemany(
            f"INSERT INTO {table.name} ({names}) VALUES ({places})",  # noqa: S608 - names of ours
            statements.stream(sa.select(table)),
        )
    for table in _NUMBERED:
        _continue_in_sqlite(source, target, table)
    target.execute("COMMIT")


def _continue_in_sqlite(source: sa.Connection, target: sqlite3.Connection, table: sa.Table) -> None:
    last = source.execute(sa.text(f"SELECT last_value, is_called FROM {table.name}_id_seq")).one()  # noqa: S608 - the names are our own tables and columns
    target.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
    if last.is_called:
        target.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, last.last_value))


async def load(source: Path, database: Database) -> None:
    """One snapshot of a SQLite file into an empty PostgreSQL database, completely or not at all. Raises StartError.

    It counts as unfinished, and no broker starts on it, until `finish`.
    """
    async with _writing(database) as connection:
        await connection.run_sync(create_empty, database)
        with verification.opened(source) as file:
            await _from_sqlite(file, connection)


async def finish(database: Database) -> None:
    async with _writing(database) as connection:
        await connection.run_sync(finish_copy)


async def sessions(database: Database) -> int:
    """How many connections of brokers there are, besides this one."""
    async with _writing(database) as connection:
        return (await connection.execute(_SESSIONS, {"name": APPLICATION_NAME})).scalar_one()


@contextlib.asynccontextmanager
async def _writing(database: Database) -> AsyncGenerator[AsyncConnection]:
    """One transaction."""
    assert database.url is not None  # noqa: S101 - the caller looked
    engine = make_engine(database.url, pooled=False)
    try:
        async with engine.begin() as connection:
            yield connection
    except (exc.SQLAlchemyError, OSError, ValueError) as error:
        raise StartError(f"the database {database} cannot be used: {reason_of(error)}.") from error
    finally:
        await engine.dispose()


async def _from_sqlite(source: sqlite3.Connection, target: AsyncConnection) -> None:
    await target.execute(sa.delete(audit_head))
    driver: Any = (await target.get_raw_connection()).driver_connection
    for table in metadata.sorted_tables:
        rows = source.execute(sql_of(sa.select(table)))
        names = [column.name for column in table.columns]
        # COPY takes a fifth of the time that INSERT takes.
        await driver.copy_records_to_table(table.name, columns=names, records=_typed(table, rows))
    # The server plans its queries by statistics, and would make them some time after the broker's start.
    await target.execute(sa.text(f"ANALYZE {', '.join(table.name for table in metadata.sorted_tables)}"))
    for table in _NUMBERED:
        row = source.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).fetchone()
        if row is not None:
            await target.execute(sa.text(f"SELECT setval('{table.name}_id_seq', :last)"), {"last": row[0]})


def _typed(table: sa.Table, rows: Iterable[Values]) -> Iterator[Values]:
    """SQLite stores a truth as 0 or 1."""
    truths = {number for number, column in enumerate(table.columns) if isinstance(column.type, sa.Boolean)}
    if not truths:
        return iter(rows)
    return (tuple(bool(value) if number in truths else value for number, value in enumerate(row)) for row in rows)
