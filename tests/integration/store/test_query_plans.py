"""No query of a tool scans a table: each goes by an index, and a list comes in its order without sorting."""

import sqlite3

import pytest
import sqlalchemy as sa

from gsd_review_broker.domain.words import Status
from gsd_review_broker.ports.store import ReviewSummary
from gsd_review_broker.store import beside_reviews, reads, statistics
from gsd_review_broker.store.statements import sql_of
from tests.support.local import LocalBroker

pytestmark = pytest.mark.slow

SUMMARY = ReviewSummary._fields
STATEMENTS = {
    name: value
    for module in (reads, statistics, beside_reviews)
    for name, value in vars(module).items()
    if isinstance(value, sa.Select)
}
FILTERS = [
    (),
    ("status",),
    ("category",),
    ("project",),
    ("status", "project"),
    ("status", "category", "project"),
    ("category", "project"),
    ("status", "category"),
    ("status", "phase"),
    ("phase",),
    ("plan",),
    ("proposer_id",),
    ("parent_id",),
    ("status", "parent_id"),
    ("project", "parent_id"),
]
# Read whole on purpose.
WHOLE = {
    # The newest event is the end of its table.
    "_LAST_EVENT": "SCAN events",
    # Once, at the start of a broker: the names of the pool's reviewers, which are never given to anybody else.
    "_REVIEWER_IDS": "SCAN reviewers USING COVERING INDEX sqlite_autoindex_reviewers_1",
    # What was found by an index is counted.
    "_PENDING_FOR_POOL": "SCAN anon_1",
    # One row of three answers, each by an index.
    "_OLDEST": "SCAN CONSTANT ROW",
    # The newest in their order, up to a limit: an index or the key gives that order.
    "_ALL_TOKENS": "SCAN tokens USING INDEX ix_tokens_created_at",
    "_LATEST_LANDED": "SCAN landed_commits USING INDEX ix_landed_commits_landed_at",
    "_LATEST_OVERRIDES": "SCAN gate_overrides",
    # Only commits without a review are in this index; those that were exempt, merged or empty are read and left out.
    "_WITHOUT_APPROVAL": "SCAN landed_commits USING INDEX ix_landed_commits_without_approval",
}


def plan(broker: LocalBroker, sql: str) -> list[str]:
    connection = sqlite3.connect(broker.database)
    rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?")).fetchall()
    connection.close()
    return [row[3] for row in rows]


@pytest.mark.parametrize("name", sorted(STATEMENTS))
async def test_a_question_goes_by_an_index(broker: LocalBroker, name: str) -> None:
    steps = plan(broker, sql_of(STATEMENTS[name]))
    scans = [step for step in steps if step.startswith("SCAN")]
    assert scans == ([WHOLE[name]] if name in WHOLE else []), steps


def test_every_filter_of_a_list_is_among_the_shapes() -> None:
    assert {name for shape in FILTERS for name in shape} == set(reads._EQUAL)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("equal", FILTERS, ids="-".join)
async def test_a_list_comes_in_its_order_by_an_index(
    broker: LocalBroker, equal: tuple[str, ...], after: bool, live: bool
) -> None:
    statement = reads._list_statement(SUMMARY, equal, None, claimable=False, after=after, live=live)
    assert_by_index(plan(broker, sql_of(statement)), merged="project" in equal and "status" not in equal)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("equal", [(), ("status",), ("category",), ("project",), ("status", "project")], ids="-".join)
async def test_reviews_that_need_a_person_come_in_their_order_by_an_index(
    broker: LocalBroker, equal: tuple[str, ...], after: bool
) -> None:
    statement = reads._list_statement(SUMMARY, equal, True, claimable=False, after=after, live=True)
    steps = plan(broker, sql_of(statement))
    assert_by_index(steps, merged=equal == ("project",))
    # The index holds these reviews alone.
    assert bool(equal) or [step for step in steps if "ix_reviews_needs_human" in step], steps


@pytest.mark.parametrize("claimable", [False, True])
@pytest.mark.parametrize("equal", [("status",), ("status", "category"), ("status", "project")], ids="-".join)
async def test_what_the_pool_may_take_comes_in_its_order_by_an_index(
    broker: LocalBroker, equal: tuple[str, ...], claimable: bool
) -> None:
    statement = reads._list_statement(
        ReviewSummary._fields, equal, None, claimable, after=False, live=True, for_pool=True
    )
    steps = plan(broker, sql_of(statement))
    assert_by_index(steps, merged=False)
    assert [step for step in steps if "review_failures" in step and "SEARCH" not in step] == [], steps


@pytest.mark.parametrize(("live", "index"), [(True, "ix_reviews_status"), (False, "ix_reviews_phase")])
async def test_of_two_filters_the_one_that_leads_to_fewer_reviews_is_searched(
    broker: LocalBroker, live: bool, index: str
) -> None:
    statement = reads._list_statement(
        ReviewSummary._fields, ("status", "phase"), None, claimable=True, after=False, live=live
    )
    assert [index in step for step in plan(broker, sql_of(statement)) if "reviews" in step] == [True]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "equal",
    [(), ("status",), ("category",), ("project",), ("status", "category"), ("status", "project"),
     ("category", "project"), ("status", "category", "project")],
    ids="-".join,
)  # fmt: skip
async def test_the_feed_comes_in_its_order_by_an_index(
    broker: LocalBroker, equal: tuple[str, ...], after: bool
) -> None:
    steps = plan(broker, sql_of(reads._feed_statement(equal, after)))
    assert_by_index(steps, merged="status" not in equal)


def assert_by_index(steps: list[str], *, merged: bool) -> None:
    """Each step is a search that gives its order; only what six short searches gave may be sorted."""
    assert all("INDEX" in step for step in steps if "reviews" in step), steps
    assert [step for step in steps if "TEMP B-TREE" in step and not merged] == [], steps
    # One for each state, by an index that has all it needs; then the rows that are shown, by their ids.
    assert not merged or sum("SEARCH reviews" in step for step in steps) == len(Status) + 1, steps
