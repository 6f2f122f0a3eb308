"""Creates the schema, or upgrades it: one broker at a time, completely or not at all."""

import sqlalchemy as sa
import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from gsd_review_broker.errors import StartError
from gsd_review_broker.store.postgres.engine import SCHEMA_LOCK
from gsd_review_broker.store.sqlite import schema
from gsd_review_broker.store.tables import audit_head, metadata, prepare_for_postgresql

log = structlog.get_logger()

# The first schema that was made on PostgreSQL. Later ones come from the same migrations as on SQLite.
FIRST = "0003"
_TAKE_LOCK = sa.text(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
_HAS_VERSION = sa.text("SELECT to_regclass('alembic_version') IS NOT NULL")
_VERSION = sa.text("SELECT version_num FROM alembic_version")
_TABLES = sa.text("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()")
_SETTING = sa.text("SELECT current_setting(:name)")
_FIRST_HASH = "0" * 64
# Exists while a copy into this database is not finished. No broker starts on half of a database.
_UNFINISHED = "tandem_unfinished_copy"
_IS_UNFINISHED = sa.text(f"SELECT to_regclass('{_UNFINISHED}') IS NOT NULL")


async def prepare(engine: AsyncEngine, database: object) -> None:
    """Several brokers may start at once; each but the first finds the work done."""
    async with engine.begin() as connection:
        await connection.run_sync(_prepare, database)
        unsafe = await connection.run_sync(_unsafe_settings)
    for name in unsafe:
        log.warning("server_may_lose_commits", switched_off=name)


def _unsafe_settings(connection: sa.Connection) -> list[str]:
    """Settings without which the server's death loses what it has acknowledged."""
    return [
        name
        for name in ("fsync", "synchronous_commit")
        if connection.execute(_SETTING, {"name": name}).scalar() == "off"
    ]


def stored_version(connection: sa.Connection) -> str | None:
    if not connection.execute(_HAS_VERSION).scalar():
        return None
    return connection.execute(_VERSION).scalar()


def _prepare(connection: sa.Connection, database: object) -> None:
    if connection.execute(_IS_UNFINISHED).scalar():
        raise StartError(
            f"a copy into the database {database} was not finished; run `tandem db migrate-to` again: it starts over."
        )
    if stored_version(connection) == schema.HEAD:
        return
    connection.execute(_TAKE_LOCK)
    version = stored_version(connection)
    schema.refuse_newer(version, database)
    if version is None:
        _create(connection, database)
    elif version != schema.HEAD:
        _migrate(connection)


def create_empty(connection: sa.Connection, database: object) -> None:
    """For a database that is to be filled from elsewhere. What an interrupted copy left is replaced."""
    connection.execute(_TAKE_LOCK)
    if connection.execute(_IS_UNFINISHED).scalar():
        metadata.drop_all(connection)
        connection.execute(sa.text(f"DROP TABLE alembic_version, {_UNFINISHED}"))
    _create(connection, database)
    connection.execute(sa.text(f"CREATE TABLE {_UNFINISHED} ()"))


def finish_copy(connection: sa.Connection) -> None:
    """From now on, a broker may start."""
    connection.execute(sa.text(f"DROP TABLE {_UNFINISHED}"))


def _create(connection: sa.Connection, database: object) -> None:
    """The present schema at once, without Alembic. A test compares it with what the migrations make."""
    if connection.execute(_TABLES).scalar():
        raise StartError(f"the database {database} holds tables of another program; give an empty one with --db.")
    prepare_for_postgresql()
    metadata.create_all(connection, checkfirst=False)
    connection.execute(audit_head.insert(), {"id": 1, "sequence": 0, "hash": _FIRST_HASH})
    connection.execute(
        sa.text(
            "CREATE TABLE alembic_version "
            "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(sa.text("INSERT INTO alembic_version VALUES (:version)"), {"version": schema.HEAD})


def _migrate(connection: sa.Connection) -> None:
    # Alembic is imported only when there is something to migrate.
    from alembic import command  # noqa: PLC0415 - only a migration needs it
    from alembic.config import Config  # noqa: PLC0415 - only a migration needs it

    config = Config()
    config.set_main_option("script_location", "gsd_review_broker:store/migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
