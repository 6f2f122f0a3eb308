"""Copies a whole database between PostgreSQL and a SQLite file: one snapshot, every table, every number."""

import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from gsd_review_broker.errors import StartError
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store.changes import NUMBERED, typed
from gsd_review_broker.store.postgres.engine import SNAPSHOT, make_engine
from gsd_review_broker.store.postgres.errors import reason_of
from gsd_review_broker.store.postgres.schema import create_empty, finish_copy, stored_version
from gsd_review_broker.store.postgres.statements import PostgresStatements
from gsd_review_broker.store.sqlite import schema, verification
from gsd_review_broker.store.statements import sql_of
from gsd_review_broker.store.tables import audit_head, metadata


async def snapshot(database: Database, target: Path) -> None:
    """The database as it is at one moment, as a new SQLite file. Raises StartError."""
    async with reading(database) as connection:
        await connection.run_sync(to_file, database, target)


def to_file(connection: sa.Connection, database: Database, target: Path) -> None:
    refuse_other_version(connection, database)
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as file:
        to_sqlite(connection, file)


def refuse_other_version(connection: sa.Connection, database: Database) -> None:
    version = stored_version(connection)
    if version != schema.HEAD:
        raise StartError(
            f"the database {database} has schema {version}, this version reads {schema.HEAD}; "
            "start the broker on it once, which brings it up to date."
        )


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
    target.execute("DELETE FROM sqlite_sequence")
    target.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", last_numbers(source).items())
    target.execute("COMMIT")


def last_numbers(source: sa.Connection) -> dict[str, int]:
    """The last number that was given in each numbered table; none if there was none yet."""
    numbers: dict[str, int] = {}
    for table in NUMBERED:
        last = source.execute(sa.text(f"SELECT last_value, is_called FROM {table.name}_id_seq")).one()  # noqa: S608 - names of ours
        if last.is_called:
            numbers[table.name] = last.last_value
    return numbers


async def continue_from(target: AsyncConnection, numbers: Mapping[str, int]) -> None:
    for name, last in numbers.items():
        await target.execute(sa.text(f"SELECT setval('{name}_id_seq', :last)"), {"last": last})


async def load(source: Path, database: Database, *, mover: str = "") -> None:
    """One snapshot of a SQLite file into an empty PostgreSQL database, completely or not at all. Raises StartError.

    It counts as unfinished, and no broker starts on it, until `finish`.
    """
    async with writing(database) as connection:
        await connection.run_sync(create_empty, database, mover)
        with verification.opened(source) as file:
            await _from_sqlite(file, connection)


async def finish(database: Database) -> None:
    async with writing(database) as connection:
        await connection.run_sync(finish_copy)


@contextlib.asynccontextmanager
async def writing(database: Database) -> AsyncGenerator[AsyncConnection]:
    """One transaction. Raises StartError."""
    assert database.url is not None  # noqa: S101 - the caller looked
    engine = make_engine(database.url, pooled=False)
    try:
        async with engine.begin() as connection:
            yield connection
    except (exc.SQLAlchemyError, OSError, ValueError) as error:
        raise StartError(f"the database {database} cannot be used: {reason_of(error)}.") from error
    finally:
        await engine.dispose()


@contextlib.asynccontextmanager
async def reading(database: Database) -> AsyncGenerator[AsyncConnection]:
    """One snapshot. Raises StartError."""
    assert database.url is not None  # noqa: S101 - the caller looked
    engine = make_engine(database.url, pooled=False)
    try:
        async with engine.connect() as connection:
            yield await connection.execution_options(**SNAPSHOT)
    except (exc.SQLAlchemyError, OSError, ValueError) as error:
        raise StartError(f"the database {database} cannot be read: {reason_of(error)}.") from error
    finally:
        await engine.dispose()


async def _from_sqlite(source: sqlite3.Connection, target: AsyncConnection) -> None:
    await target.execute(sa.delete(audit_head))
    driver: Any = (await target.get_raw_connection()).driver_connection
    for table in metadata.sorted_tables:
        rows = source.execute(sql_of(sa.select(table)))
        names = [column.name for column in table.columns]
        # COPY takes a fifth of the time that INSERT takes.
        await driver.copy_records_to_table(table.name, columns=names, records=typed(table, rows))
    # The server plans its queries by statistics, and would make them some time after the broker's start.
    await target.execute(sa.text(f"ANALYZE {', '.join(table.name for table in metadata.sorted_tables)}"))
    await continue_from(target, dict(source.execute("SELECT name, seq FROM sqlite_sequence")))
