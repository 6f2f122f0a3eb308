"""Which tests run on PostgreSQL with every `make test`, and pages that wait for git.

The other tests of both stores run on PostgreSQL with `make test-postgres` and `make torture`.
"""

from pathlib import Path

import pytest

from gsd_review_broker.service import applies
from gsd_review_broker.service.queries import review_page
from tests.support.waiting import PATIENCE

# All of a module that says much about SQL and takes a second or two.
MODULES = {
    "test_claim_next",
    "test_deadlines",
    "test_finding_order",
    "test_gate_ledger",
    "test_inbox",
    "test_long_poll",
    "test_one_project",
    "test_review_life",
    "test_statistics",
    "test_verdicts",
}
# Takes as long as all others together.
LONG = {"test_after_any_story_the_statistics_are_what_a_recount_of_the_audit_gives"}
# Of the other modules.
TESTS = {
    "test_a_closed_review_moves_with_all_its_rows_and_events",
    "test_a_crash_between_copy_and_removal_neither_doubles_nor_loses",
    "test_a_review_that_changes_between_copy_and_removal_is_not_lost",
    "test_all_reviews_of_one_batch_join_their_gaps",
    "test_statistics_do_not_change",
    "test_two_prunes_of_two_days_make_two_archives_and_one_chain",
    "test_what_is_open_or_was_closed_later_stays",
    "test_work_goes_on_after_a_prune",
}


@pytest.fixture(autouse=True)
def _patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page waits for git for less than a second, and on a busy machine git takes longer."""
    monkeypatch.setattr(review_page, "_PATIENCE_SECONDS", PATIENCE)
    monkeypatch.setattr(applies, "_OFFSETS_PATIENCE_SECONDS", PATIENCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and _is_one_of_two(item) and not _is_for_every_day(item):
            item.add_marker(pytest.mark.torture)


def _is_one_of_two(item: pytest.Item) -> bool:
    """Does it run on SQLite too?"""
    return bool(item.get_closest_marker("postgres")) and "database_kind" in getattr(item, "fixturenames", ())


def _is_for_every_day(item: pytest.Item) -> bool:
    name = item.name.partition("[")[0]
    return name in TESTS or (item.path.stem in MODULES and name not in LONG)
