"""Upgrades a database to the present schema: forward only, with a backup first."""

import os
import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from gsd_review_broker.errors import StartError
from gsd_review_broker.files.private import open_private
from gsd_review_broker.store import known_schema

# The newest migration. A test compares it with Alembic's.
HEAD = "0008"
_KNOWN = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
# The newest schema and its first rows, as SQL; `python -m tests.contract` writes it.
NEWEST = Path(__file__).with_name("newest_schema.sql")
STATEMENT_END = ";\n"


def stored_version(connection: sqlite3.Connection) -> str | None:
    """None for a database without any schema."""
    known = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
    ).fetchone()
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone() if known else None
    return row[0] if row else None


def refuse_foreign(connection: sqlite3.Connection, version: str | None, database: object) -> None:
    """A file that another program made is not ours to add tables to, and one that somebody altered is not believed."""
    if version is None and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StartError(f"the database {database} belongs to another program; give another file with --db.")
    if version in _KNOWN:
        known_schema.refuse_altered(connection, version, database)


def refuse_newer(version: str | None, database: object) -> None:
    if version is not None and version not in _KNOWN:
        raise StartError(
            f"the database {database} has schema {version}, which this version does not know (it knows up to "
            f"{HEAD}); run the newer broker that wrote it, or restore a backup."
        )


def is_older(version: str | None) -> bool:
    """Can the database be upgraded?"""
    return version in _KNOWN and version != HEAD


def _nothing(_connection: object) -> None:
    pass


def upgrade(raw: sqlite3.Connection) -> None:
    """To the newest schema in one transaction: completely or not at all."""
    if stored_version(raw) is None:
        _create(raw)
    else:
        migrate(raw)


def _create(raw: sqlite3.Connection) -> None:
    """What the migrations make of an empty database, without Alembic: a first start takes half the time."""
    raw.execute("BEGIN IMMEDIATE")
    try:
        for statement in NEWEST.read_text("utf-8").split(STATEMENT_END):
            raw.execute(statement)
    except BaseException:
        raw.rollback()
        raise
    raw.commit()


def migrate(raw: sqlite3.Connection) -> None:
    """Step by step, in one transaction."""
    # Alembic is imported only when there is something to migrate: it doubles the start time.
    from alembic import command  # noqa: PLC0415 - only a migration needs it
    from alembic.config import Config  # noqa: PLC0415 - only a migration needs it

    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: raw,
        poolclass=StaticPool,
        isolation_level="AUTOCOMMIT",
    )
    # Alembic commits after each migration; here the whole upgrade is one transaction, and it ends below.
    for name in ("do_commit", "do_rollback"):
        setattr(engine.dialect, name, _nothing)
    config = Config()
    config.set_main_option("script_location", "gsd_review_broker:store/migrations")
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        raw.execute("BEGIN IMMEDIATE")
        try:
            command.upgrade(config, "head")
        except BaseException:
            raw.rollback()
            raise
        raw.commit()


def back_up(source: sqlite3.Connection, database: Path, version: str) -> Path:
    """A complete copy beside the file, made by SQLite itself. Only its owner can read it."""
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
