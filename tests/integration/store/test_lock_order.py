"""Locks are taken in one order by every command, so that on a database with several writers no two wait for each other:
first reviews (in the order of their ids), then keys and the pool's rows, at the end what everybody writes."""

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from gsd_review_broker.domain.caller import LOCAL
from gsd_review_broker.domain.model import Identity
from gsd_review_broker.domain.rules.pool import Reviewer, Usage
from gsd_review_broker.domain.words import EndReason, ReviewerState
from gsd_review_broker.service.pool_records import Ending
from gsd_review_broker.store import statistics
from gsd_review_broker.store.sqlite_writer import Writer
from gsd_review_broker.store.statements import Parameters, SqliteStatements, Statement, Upsert
from gsd_review_broker.store.tables import LOCK_ORDER
from tests.support.local import LocalBroker

RANKS = {table.name: rank for rank, table in enumerate(LOCK_ORDER)}
Step = tuple[str, Any]


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[list[Step]]:
    """What each transaction locked, in order: (table, the review's id where it is one)."""
    recorded: list[list[Step]] = []
    begin = Writer._begin

    def begun(writer: Writer) -> BaseException | None:
        recorded.append([])
        return begin(writer)

    def recording(name: str) -> None:
        do = getattr(SqliteStatements, name)

        def run(statements: SqliteStatements, statement: Statement, parameters: Any) -> Any:
            if recorded:
                recorded[-1] += _locked(statement, parameters)
            return do(statements, statement, parameters)

        monkeypatch.setattr(SqliteStatements, name, run)

    monkeypatch.setattr(Writer, "_begin", begun)
    for name in ("row", "rows", "run", "run_all"):
        recording(name)
    return recorded


def _locked(statement: Statement, parameters: Parameters | Sequence[Parameters]) -> list[Step]:
    if isinstance(statement, (Upsert, sa.Update, sa.Delete)):
        table = statement.table
    elif isinstance(statement, sa.Select) and statement._for_update_arg is not None:
        (table,) = statement.get_final_froms()
    else:
        # Reads wait for nobody, nor does a new row that only its writer knows of.
        return []
    assert isinstance(table, sa.Table)
    return [(table.name, parameters.get("review_id") if table.name == "reviews" else None)] if parameters else []


def in_order(steps: list[Step]) -> bool:
    """A lock that is held already is not taken again. What belongs to one review is locked with it."""
    taken = [step for number, step in enumerate(steps) if step not in steps[:number] and step[0] in RANKS]
    return taken == sorted(taken, key=lambda step: (RANKS[step[0]], step[1] or ""))


def reviewer(name: str) -> Reviewer:
    return Reviewer(
        id=Identity(f"{name}-r1-0a1b2c3d"),
        display_name=f"{name}-r1",
        agent=name,
        model=None,
        project=None,
        state=ReviewerState.ACTIVE,
        host="nowhere",
        pid=1,
        process_start=None,
        started_at=0,  # pyright: ignore[reportArgumentType]
    )


async def use_tools(broker: LocalBroker) -> None:
    key = iter(range(1_000))

    async def call(tool: str, **arguments: Any) -> Any:
        return await broker(tool, **arguments, idempotency_key=f"k{next(key)}")

    review_id = (await broker.create(idempotency_key="first"))["review_id"]
    claim = await call("claim_review", review_id=review_id, reviewer_id="gemini-r1-0a1b2c3d")
    given = {"review_id": review_id, "claim_generation": claim["claim_generation"]}
    findings = [{"title": "t", "body": "b", "severity": "low"}]
    await call("submit_verdict", **given, verdict="comment", reason="hm", findings=findings)
    await call("submit_verdict", **given, verdict="changes_requested", reason="no")
    await call("add_message", review_id=review_id, sender_role="proposer", body="why?")
    told = (await broker("get_discussion", review_id=review_id))["findings"]
    await call("resolve_finding", review_id=review_id, finding_id=told[0]["finding_id"], disposition="fixed")
    await broker.create(review_id=review_id, intent="again", idempotency_key="second")
    claim = await call("claim_next", reviewer_id="gemini-r1-0a1b2c3d")
    await call("release_claim", review_id=claim["review_id"], claim_generation=claim["claim_generation"])
    await call("claim_review", review_id=review_id, reviewer_id="gemini-r1-0a1b2c3d")
    await broker.application.broker.claims.take_over(LOCAL, review_id, "human:ada")
    await call("close_review", review_id=review_id)


async def use_pool(broker: LocalBroker) -> None:
    records = broker.application.broker.pool.records
    for name in ("codex", "claude", "gemini"):
        await records.begun(reviewer(name))
    held = [(await broker.create())["review_id"] for _ in range(4)]
    for review_id in held:
        await broker("claim_review", review_id=review_id, reviewer_id="codex-r1-0a1b2c3d")
    await records.spent(Identity("codex-r1-0a1b2c3d"), Usage(input_tokens=9, output_tokens=9))
    await records.draining(Identity("codex-r1-0a1b2c3d"), EndReason.TTL)
    await records.pause(True)
    await records.beat()
    ending = Ending(reason=EndReason.EXITED, exit_code=1, pause=lambda failures: failures)
    assert await records.ended(Identity("codex-r1-0a1b2c3d"), ending)
    for number in range(3):
        await records.failed_to_start("claude-r1", "no program", lambda _failures: 0)
        broker.clock.pass_time(number)
    assert await records.ended(Identity("claude-r1-0a1b2c3d"), ending)


async def test_every_command_takes_its_locks_in_one_order(
    broker: LocalBroker, transactions: list[list[Step]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "SUM_UP_EVERY", 1)
    monkeypatch.setattr(statistics, "ENOUGH_TO_SUM_UP", 1)
    await use_pool(broker)
    await use_tools(broker)
    broker.clock.pass_time(100_000)
    await broker.sweep()
    broker.clock.step_wall(-100_000)
    await broker.sweep()
    assert [steps for steps in transactions if not in_order(steps)] == []
    seen = {table for steps in transactions for table, _ in steps}
    assert seen >= RANKS.keys() - {"events"}
    # The head is locked by what appends an event, once, and nothing but events and counters comes after.
    for steps in transactions:
        tables = [table for table, _ in steps]
        if "audit_head" in tables:
            after = tables[tables.index("audit_head") :]
            assert set(after) <= {"audit_head", "events", "counters", "histogram_buckets", "histograms"}


def test_the_order_of_two_reviews_matters_to_this_test() -> None:
    assert in_order([("reviews", "a"), ("reviews", "b"), ("audit_head", None)])
    assert not in_order([("reviews", "b"), ("reviews", "a")])
    assert not in_order([("audit_head", None), ("reviewers", None)])
