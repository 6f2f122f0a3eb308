"""The conformance suite of the two stores: everything here runs on SQLite and on PostgreSQL.

Modules that say little about SQL run on PostgreSQL only with `make test-postgres` and `make torture`, and tests about
SQLite's own files only on SQLite."""

from pathlib import Path

import pytest

# With every `make test`.
EVERY_DAY = {
    "test_claim_next",
    "test_deadlines",
    "test_finding_order",
    "test_gate_ledger",
    "test_inbox",
    "test_long_poll",
    "test_review_life",
    "test_statistics",
    "test_verdicts",
}
# Takes as long as all others together.
LONG = {"test_after_any_story_the_statistics_are_what_a_recount_of_the_audit_gives"}


@pytest.fixture(autouse=True)
def _on_both_stores(database_kind: str) -> None:
    pass


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.parent != here or not item.get_closest_marker("postgres"):
            continue
        if item.path.stem not in EVERY_DAY or item.name.partition("[")[0] in LONG:
            item.add_marker(pytest.mark.torture)
