"""The list of what our databases hold is what the migrations make: otherwise the broker refuses its own files."""

import json

from gsd_review_broker.store.sqlite import schema
from tests.contract.schemas import SCHEMAS, schemas_text


def test_the_known_schema_is_what_the_migrations_make() -> None:
    """`python -m tests.contract` writes it."""
    assert SCHEMAS.read_text() == schemas_text()
    assert set(json.loads(SCHEMAS.read_text())) == set(schema._KNOWN)
