"""Bringing a database to the present schema: forward only, with a backup first."""

import sqlite3
from pathlib import Path

import sqlalchemy as sa

from gsd_review_broker.errors import StartError

# The newest migration. A test holds it equal to what Alembic finds.
HEAD = "0001"
_KNOWN = ("0001",)


def stored_version(connection: sa.Connection) -> str | None:
    """None for a database without any schema."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def refuse_newer(version: str | None, database: object) -> None:
    if version is not None and version not in _KNOWN:
        raise StartError(
            f"the database {database} has schema {version}, which this version does not know (it knows up to "
            f"{HEAD}); run the newer broker that wrote it, or restore a backup."
        )


def upgrade(connection: sa.Connection) -> None:
    # Alembic is imported only when there is something to migrate: it doubles the time to start.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "gsd_review_broker:store/migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def back_up(source: sqlite3.Connection, database: Path, version: str) -> Path:
    """A whole copy beside the file, made by SQLite itself, readable by its owner alone."""
    target = database.with_name(f"{database.name}.backup-{version}")
    number = 1
    while target.exists():
        number += 1
        target = database.with_name(f"{database.name}.backup-{version}-{number}")
    target.touch(mode=0o600)
    copy = sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        copy.close()
    return target
