"""What our migrations make of an empty database, as the broker compares it with the file that it opens."""

import contextlib
import json
import sqlite3
from pathlib import Path

from gsd_review_broker.store.sqlite import known_schema, schema

SCHEMAS = Path(schema.__file__).with_name(known_schema.FILE)


def schemas_text() -> str:
    """Older versions stay as they were written."""
    before = json.loads(SCHEMAS.read_text()) if SCHEMAS.exists() else {}
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.upgrade(connection)
        known = {**before, schema.HEAD: known_schema.objects(connection)}
    return json.dumps(known, indent=1, sort_keys=True) + "\n"
