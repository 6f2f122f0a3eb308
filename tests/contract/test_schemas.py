"""The list of what our databases hold is what the migrations make: otherwise the broker refuses its own files."""

import contextlib
import json
import sqlite3

from gsd_review_broker.store import known_schema, schema
from tests.contract.schemas import NEWEST, SCHEMAS, content_of, newest_text, schemas_text


def test_the_known_schema_is_what_the_migrations_make() -> None:
    """`python -m tests.contract` writes it."""
    assert SCHEMAS.read_text() == schemas_text()
    assert set(json.loads(SCHEMAS.read_text())) == set(schema._KNOWN)


def test_a_new_database_holds_what_the_migrations_make() -> None:
    """`python -m tests.contract` writes the script."""
    assert NEWEST.read_text() == newest_text()
    with (
        contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as created,
        contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as migrated,
    ):
        schema.upgrade(created)
        schema.migrate(migrated)
        assert content_of(created) == content_of(migrated)
        assert known_schema.objects(created) == known_schema.objects(migrated)
