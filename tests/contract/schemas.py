"""The script of the newest schema: what the migrations make of an empty database."""

import contextlib
import sqlite3
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory

from gsd_review_broker.store import migrations, schema


def newest_version() -> str:
    config = Config()
    config.set_main_option("script_location", str(migrations.FOLDER))
    newest = ScriptDirectory.from_config(config).get_current_head()
    assert newest is not None
    return newest


def newest_script() -> Path:
    """Scripts of older versions stay as they were written."""
    return schema.SCRIPTS / f"{newest_version()}.sql"


def newest_text() -> str:
    """Every table with its rows, then the indexes."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrations.migrate(connection)
        return schema.STATEMENT_END.join(content_of(connection)) + "\n"


def content_of(connection: sqlite3.Connection) -> list[str]:
    """One statement for each table, row and index. Layout within a statement does not count."""
    bracket = {"BEGIN TRANSACTION;", "COMMIT;"}
    whole = [line for line in connection.iterdump() if line not in bracket and "sqlite_sequence" not in line]
    return ["\n".join(line.rstrip() for line in one.removesuffix(";").strip().splitlines()) for one in whole]
