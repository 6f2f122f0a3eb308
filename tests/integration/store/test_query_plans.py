"""No query of a tool scans a table: each goes by an index, and a list comes in its order without sorting."""

import sqlite3

import pytest
import sqlalchemy as sa

from gsd_review_broker.domain.model import Status
from gsd_review_broker.ports import SUMMARY
from gsd_review_broker.store import reads, statistics
from gsd_review_broker.store.statements import sql_of
from tests.support.local import LocalBroker

STATEMENTS = {
    name: value
    for module in (reads, statistics)
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
]


def plan(broker: LocalBroker, sql: str) -> list[str]:
    connection = sqlite3.connect(broker.database)
    names = {word.strip(" ,()").removeprefix(":") for word in sql.replace("(", " ").split() if ":" in word}
    rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(names, 1)).fetchall()
    connection.close()
    return [row[3] for row in rows]


@pytest.mark.parametrize("name", sorted(STATEMENTS))
async def test_a_question_goes_by_an_index(broker: LocalBroker, name: str) -> None:
    steps = plan(broker, sql_of(STATEMENTS[name]))
    scans = [step for step in steps if step.startswith("SCAN")]
    # The newest event is the end of its table.
    allowed = {"_LAST_EVENT": "SCAN events"}
    assert scans in ([], [allowed.get(name)]), steps


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("equal", FILTERS, ids="-".join)
async def test_a_list_comes_in_its_order_by_an_index(
    broker: LocalBroker, equal: tuple[str, ...], after: bool, live: bool
) -> None:
    statement = reads._list_statement(SUMMARY, equal, None, claimable=False, after=after, live=live)
    assert_by_index(plan(broker, sql_of(statement)), merged="project" in equal and "status" not in equal)


@pytest.mark.parametrize(("live", "index"), [(True, "ix_reviews_status"), (False, "ix_reviews_phase")])
async def test_of_two_filters_the_one_that_leads_to_fewer_reviews_is_searched(
    broker: LocalBroker, live: bool, index: str
) -> None:
    statement = reads._list_statement(SUMMARY, ("status", "phase"), None, claimable=True, after=False, live=live)
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
