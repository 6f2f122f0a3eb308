"""No query of a tool scans a table: each goes by an index, and a list comes in its order without sorting."""

import sqlite3

import pytest

from gsd_review_broker.store import reads
from gsd_review_broker.store.session import sql_of
from tests.support.local import LocalBroker

STATEMENTS = {name: value for name, value in vars(reads).items() if name.startswith("_") and hasattr(value, "compile")}
FILTERS = [(), ("status",), ("category",), ("project",), ("project", "status"), ("phase",), ("plan",), ("proposer_id",)]


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
    # The newest event is the end of its table; a count is over rows that an index gave.
    allowed = {"_LAST_EVENT": "SCAN events", "_PENDING": "SCAN anon_1"}
    assert scans in ([], [allowed.get(name)]), steps


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("equal", FILTERS, ids="-".join)
async def test_a_list_comes_in_its_order_by_an_index(broker: LocalBroker, equal: tuple[str, ...], after: bool) -> None:
    steps = plan(broker, sql_of(reads._list_statement(("id",), equal, None, False, after)))
    ordered = equal != ("project",)
    assert all("INDEX" in step for step in steps if "reviews" in step), steps
    assert not ordered or not any("TEMP B-TREE" in step for step in steps), steps
