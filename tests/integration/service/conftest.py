"""The conformance suite of the two stores: everything here runs on SQLite and on PostgreSQL.

Tests about SQLite's own files are marked `sqlite`, and run only there."""

import pytest


@pytest.fixture(autouse=True)
def _on_both_stores(database_kind: str) -> None:
    pass
