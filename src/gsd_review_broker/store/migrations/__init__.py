"""Upgrades a database to the newest schema: forward only, completely or not at all, with a backup first."""

import os
import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from gsd_review_broker.files import open_private
from gsd_review_broker.store import schema

FOLDER = Path(__file__).parent


def upgrade(raw: sqlite3.Connection) -> None:
    if schema.stored_version(raw) is None:
        create(raw)
    else:
        migrate(raw)


def create(raw: sqlite3.Connection) -> None:
    """Make a new database without Alembic: a first start takes half the time."""
    raw.execute("BEGIN IMMEDIATE")
    try:
        for statement in schema.statements_of(schema.HEAD):
            raw.execute(statement)
    except BaseException:
        raw.rollback()
        raise
    raw.commit()


def migrate(raw: sqlite3.Connection) -> None:
    """Go from version to version, all in one transaction."""
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: raw,
        poolclass=StaticPool,
        isolation_level="AUTOCOMMIT",
    )
    # Alembic commits after each migration; here the whole upgrade is one transaction, and it ends below.
    for name in ("do_commit", "do_rollback"):
        setattr(engine.dialect, name, _nothing)
    with engine.connect() as connection:
        raw.execute("BEGIN IMMEDIATE")
        try:
            run(connection)
        except BaseException:
            raw.rollback()
            raise
        raw.commit()


def _nothing(_connection: object) -> None:
    pass


def run(connection: sa.Connection) -> None:
    """Run the migrations that are missing, in the caller's transaction."""
    # Alembic is imported only when there is something to migrate: it doubles the start time.
    from alembic import command  # noqa: PLC0415 - only a migration needs it
    from alembic.config import Config  # noqa: PLC0415 - only a migration needs it

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def back_up(source: sqlite3.Connection, database: Path, version: str) -> Path:
    """Let SQLite make a complete copy beside the file. Only its owner can read it."""
    target = database.with_name(f"{database.name}.backup-{version}")
    number = 1
    while os.path.lexists(target):
        number += 1
        target = database.with_name(f"{database.name}.backup-{version}-{number}")
    os.close(open_private(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    copy = sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        copy.close()
    return target
