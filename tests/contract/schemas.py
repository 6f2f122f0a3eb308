"""What our migrations make of an empty database, as the broker compares it with the file that it opens."""

import contextlib
import json
import sqlite3
from pathlib import Path

from gsd_review_broker.store import known_schema, schema

NEWEST = schema.NEWEST
SCHEMAS = Path(schema.__file__).with_name(known_schema.FILE)


def schemas_text() -> str:
    """Older versions stay as they were written."""
    before = json.loads(SCHEMAS.read_text()) if SCHEMAS.exists() else {}
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection)
        known = {**before, schema.HEAD: known_schema.objects(connection)}
    return json.dumps(known, indent=1, sort_keys=True) + "\n"


def newest_text() -> str:
    """The same as a script: every table with its rows, then the indexes."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection)
        return schema.STATEMENT_END.join(content_of(connection)) + "\n"


def content_of(connection: sqlite3.Connection) -> list[str]:
    """One statement for each table, row and index. Layout within a statement does not count."""
    bracket = {"BEGIN TRANSACTION;", "COMMIT;"}
    whole = [line for line in connection.iterdump() if line not in bracket and "sqlite_sequence" not in line]
    return ["\n".join(line.rstrip() for line in one.removesuffix(";").strip().splitlines()) for one in whole]
