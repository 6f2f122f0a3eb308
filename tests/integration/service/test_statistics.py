"""Statistics: right to the number in a known story, and equal to a recount of the audit after any story."""

import asyncio
import contextlib
import json
import math
import random
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gsd_review_broker.domain.caller import LOCAL
from gsd_review_broker.store import statistics, verification
from gsd_review_broker.store.tables import counters
from tests.support.invariants import problems
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.policies import review_policy
from tests.support.processes import make_repository
from tests.support.texts import BETTER, GOOD, STALE

pytestmark = pytest.mark.slow

STATES = ("pending", "claimed", "in_review", "approved", "changes_requested", "closed")
# What can be left, so that one can tell how long it took.
LEAVABLE = STATES[:-1]
CATEGORIES = ("plan_review", "code_change", "verification", "handoff", "uncategorized")
TOLERANCE = 0.032
NOTHING = {"p50": None, "p95": None}


@pytest.fixture(autouse=True)
def _summed_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short stories have both: sums, and values that were added since."""
    monkeypatch.setattr(statistics, "SUM_UP_EVERY", 3)
    monkeypatch.setattr(statistics, "ENOUGH_TO_SUM_UP", 2)


EMPTY = {
    "total_reviews": 0,
    "by_status": dict.fromkeys(STATES, 0),
    "by_category": dict.fromkeys(CATEGORIES, 0),
    "approval_rate_pct": None,
    "rejection_rate_pct": None,
    "avg_time_to_claim_seconds": None,
    "avg_time_to_verdict_seconds": None,
    "avg_review_duration_seconds": None,
    "avg_time_in_state_seconds": dict.fromkeys(LEAVABLE),
    "percentiles": {
        "time_to_claim_seconds": NOTHING,
        "time_to_verdict_seconds": NOTHING,
        "review_duration_seconds": NOTHING,
        "time_in_state_seconds": dict.fromkeys(LEAVABLE, NOTHING),
    },
    "rounds_to_approval": {"average": None, **NOTHING},
    "claims": 0,
    "verdicts": {"approved": 0, "changes_requested": 0, "comment": 0},
    "reclaims": 0,
    "auto_rejections": 0,
    "refused_verdicts": 0,
    "by_reviewer": [],
    "by_pair": [],
}


def near(seconds: float) -> Any:
    return pytest.approx(seconds, rel=TOLERANCE, abs=0.001)


# A known story.


async def changed_then_approved(broker: LocalBroker) -> None:
    """Two rounds with one program of the pool, 140 s in all."""
    clock, reviewer = broker.clock, "codex-r1-0a1b2c3d"
    review_id = (await broker.create(project="site", category="code_change"))["review_id"]
    clock.pass_time(10)
    await broker("claim_review", review_id=review_id, reviewer_id=reviewer)
    clock.pass_time(20)
    await broker("add_message", review_id=review_id, sender_role="reviewer", sender_id=reviewer, body="why?")
    clock.pass_time(30)
    no = {"verdict": "changes_requested", "reason": "no", "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, **no)
    clock.pass_time(40)
    await broker.create(review_id=review_id)
    clock.pass_time(5)
    claim = await broker("claim_review", review_id=review_id, reviewer_id=reviewer)
    clock.pass_time(15)
    yes = {"verdict": "approved", "claim_generation": claim["claim_generation"]}
    await broker("submit_verdict", review_id=review_id, **yes)
    clock.pass_time(20)
    await broker("close_review", review_id=review_id)


async def expired_then_approved_by_a_person(broker: LocalBroker) -> None:
    """The first reviewer comes too late and is refused."""
    clock = broker.clock
    review_id = (await broker.create(project="site", agent_type="gsd-planner"))["review_id"]
    clock.pass_time(100)
    await broker("claim_review", review_id=review_id, reviewer_id="codex-r1-0a1b2c3d")
    clock.pass_time(1300)
    assert await broker.sweep() == [review_id]
    clock.pass_time(0.5)
    claim = await broker("claim_review", review_id=review_id, reviewer_id="human:ada")
    late = {"verdict": "approved", "claim_generation": 1, "reviewer_id": "codex-r1-0a1b2c3d"}
    with pytest.raises(ToolError):
        await broker("submit_verdict", review_id=review_id, **late)
    generation = claim["claim_generation"]
    comment = {"verdict": "comment", "reason": "looks good", "claim_generation": generation}
    await broker("submit_verdict", review_id=review_id, **comment)
    clock.pass_time(2)
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)


async def auto_rejected(broker: LocalBroker) -> None:
    review_id = (await broker.create(project="api", category="handoff", diff=STALE))["review_id"]
    broker.clock.pass_time(1)
    answer = await broker("claim_review", review_id=review_id, reviewer_id="codex-r1-0a1b2c3d")
    assert answer["auto_rejected"]


async def withdrawn(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    broker.clock.pass_time(3)
    await broker("close_review", review_id=review_id)


async def taken_over_and_rejected(broker: LocalBroker) -> None:
    clock = broker.clock
    review_id = (await broker.create(project="api", category="plan_review"))["review_id"]
    clock.pass_time(4)
    await broker("claim_review", review_id=review_id, reviewer_id="codex-r1-0a1b2c3d")
    clock.pass_time(6)
    claim = await broker.application.broker.claims.take_over(LOCAL, review_id, "human:bob")
    clock.pass_time(1)
    no = {"verdict": "changes_requested", "reason": "no", "claim_generation": claim["claim_generation"]}
    await broker("submit_verdict", review_id=review_id, **no)
    clock.pass_time(9)
    await broker("close_review", review_id=review_id)


async def known_story(broker: LocalBroker) -> None:
    await changed_then_approved(broker)
    await expired_then_approved_by_a_person(broker)
    await auto_rejected(broker)
    await withdrawn(broker)
    await taken_over_and_rejected(broker)
    await broker.create(project="api", category="verification")


async def test_an_empty_database_has_counts_of_zero_and_no_rates_or_times(broker: LocalBroker) -> None:
    assert await broker("get_review_stats") == EMPTY


async def test_a_project_that_nobody_named_has_counts_of_zero_and_no_rates_or_times(broker: LocalBroker) -> None:
    await known_story(broker)
    assert await broker("get_review_stats", project="nobodys") == EMPTY


async def test_a_known_story_gives_exactly_these_counts(broker: LocalBroker) -> None:
    await known_story(broker)
    stats = await broker("get_review_stats")
    assert stats["total_reviews"] == 6
    assert stats["by_status"] == {
        "pending": 1, "claimed": 0, "in_review": 0, "approved": 1, "changes_requested": 1, "closed": 3,
    }  # fmt: skip
    assert stats["by_category"] == {
        "plan_review": 1, "code_change": 1, "verification": 1, "handoff": 1, "uncategorized": 2,
    }  # fmt: skip
    # Of the reviews with a verdict, two were approved in the end, one of them after a rejection. An automatic rejection
    # is nobody's verdict.
    assert (stats["approval_rate_pct"], stats["rejection_rate_pct"]) == (66.7, 33.3)
    assert (stats["reclaims"], stats["auto_rejections"], stats["refused_verdicts"]) == (2, 1, 1)
    # Two of them in one review, two in another, and a take-over.
    assert stats["claims"] == 6
    assert stats["verdicts"] == {"approved": 2, "changes_requested": 2, "comment": 1}
    assert stats["rounds_to_approval"] == {"average": 1.5, "p50": 1, "p95": 2}


async def test_a_known_story_gives_exactly_these_times(broker: LocalBroker) -> None:
    await known_story(broker)
    stats = await broker("get_review_stats")
    assert stats["avg_time_to_claim_seconds"] == 38.0
    assert stats["avg_time_to_verdict_seconds"] == 491.167
    assert stats["avg_review_duration_seconds"] == 54.333
    assert stats["avg_time_in_state_seconds"] == {
        "pending": 15.438, "claimed": 224.0, "in_review": 30.0, "approved": 20.0, "changes_requested": 24.5,
    }  # fmt: skip
    assert stats["percentiles"] == {
        "time_to_claim_seconds": {"p50": near(10), "p95": near(100)},
        "time_to_verdict_seconds": {"p50": near(60), "p95": near(1402.5)},
        "review_duration_seconds": {"p50": near(20), "p95": near(140)},
        "time_in_state_seconds": {
            "pending": {"p50": near(3), "p95": near(100)},
            "claimed": {"p50": near(6), "p95": near(1300)},
            "in_review": {"p50": 30.0, "p95": 30.0},
            "approved": {"p50": 20.0, "p95": 20.0},
            "changes_requested": {"p50": near(9), "p95": near(40)},
        },
    }


async def test_a_known_story_names_who_judged_and_which_pairs(broker: LocalBroker) -> None:
    await known_story(broker)
    stats = await broker("get_review_stats")
    assert stats["by_reviewer"] == [
        {"reviewer": "codex-r1", "approved": 1, "changes_requested": 1, "comment": 0},
        {"reviewer": "human:ada", "approved": 1, "changes_requested": 0, "comment": 1},
        {"reviewer": "human:bob", "approved": 0, "changes_requested": 1, "comment": 0},
    ]
    pair = ("proposer", "reviewer", "approved", "changes_requested", "approval_rate_pct")
    assert sorted(tuple(row[name] for name in pair) for row in stats["by_pair"]) == [
        ("gsd-executor", "codex", 1, 1, 50.0),
        ("gsd-executor", "human", 0, 1, 0.0),
        ("gsd-planner", "human", 1, 0, 100.0),
    ]
    # Who judged most comes first.
    assert stats["by_pair"][0]["reviewer"] == "codex"


async def test_a_projects_statistics_are_those_of_its_own_reviews(broker: LocalBroker) -> None:
    await known_story(broker)
    site, api = [await broker("get_review_stats", project=project) for project in ("site", "api")]
    assert (site["total_reviews"], api["total_reviews"]) == (2, 3)
    assert site["by_status"] == {**dict.fromkeys(STATES, 0), "approved": 1, "closed": 1}
    assert api["by_status"] == {**dict.fromkeys(STATES, 0), "pending": 1, "changes_requested": 1, "closed": 1}
    assert (site["approval_rate_pct"], site["rejection_rate_pct"]) == (100.0, 0.0)
    assert (api["approval_rate_pct"], api["rejection_rate_pct"]) == (0.0, 100.0)
    assert (site["avg_time_to_claim_seconds"], api["avg_time_to_claim_seconds"]) == (55.0, 4.0)
    assert (site["reclaims"], site["auto_rejections"], site["refused_verdicts"]) == (1, 0, 1)
    assert (api["reclaims"], api["auto_rejections"], api["refused_verdicts"]) == (1, 1, 0)
    assert [row["reviewer"] for row in api["by_reviewer"]] == ["human:bob"]
    assert api["rounds_to_approval"] == {"average": None, "p50": None, "p95": None}


async def test_an_auto_rejection_is_counted_apart_from_verdicts(broker: LocalBroker) -> None:
    await auto_rejected(broker)
    stats = await broker("get_review_stats")
    assert (stats["auto_rejections"], stats["verdicts"]["changes_requested"], stats["by_reviewer"]) == (1, 0, [])
    assert (stats["rejection_rate_pct"], stats["avg_time_to_verdict_seconds"]) == (None, None)
    ((review_id,),) = await broker.store.read(lambda reader: reader._statements.rows(_all_ids(), {}))
    await broker.create(review_id=review_id, diff=GOOD)
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1)
    stats = await broker("get_review_stats")
    assert (stats["approval_rate_pct"], stats["rejection_rate_pct"]) == (100.0, 0.0)
    # Nobody had judged before: it is still round one.
    assert stats["rounds_to_approval"]["average"] == 1.0


def _all_ids() -> Any:
    from gsd_review_broker.store.tables import reviews

    return reviews.select().with_only_columns(reviews.c.id)


async def test_what_is_refused_without_a_trace_changes_no_number(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    before = await broker("get_review_stats")
    for call in (
        broker("submit_verdict", review_id=review_id, verdict="approved", reviewer_id="codex"),
        broker("claim_review", review_id=review_id, reviewer_id="gsd-executor"),
        broker("release_claim", review_id=review_id, claim_generation=0),
        broker("create_review", intent="x"),
    ):
        with pytest.raises(ToolError):
            await call
    assert await broker("get_review_stats") == before


async def test_a_repeated_call_is_counted_once(broker: LocalBroker) -> None:
    review_id = (await broker.create(idempotency_key="one"))["review_id"]
    assert (await broker.create(idempotency_key="one"))["review_id"] == review_id
    claim = {"review_id": review_id, "reviewer_id": "codex", "idempotency_key": "two"}
    verdict = {"review_id": review_id, "verdict": "approved", "claim_generation": 1}
    for _ in range(2):
        await broker("claim_review", **claim)
        await broker("submit_verdict", **verdict)
    stats = await broker("get_review_stats")
    assert stats["total_reviews"] == 1
    assert stats["by_reviewer"] == [{"reviewer": "codex", "approved": 1, "changes_requested": 0, "comment": 0}]


async def test_names_are_told_as_they_were_said(broker: LocalBroker) -> None:
    odd = 'naïve "reviewer", \\ [x] 審查者'
    review_id = (await broker.create(agent_type=f"{odd} proposes", project="naïve/審查者"))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id=odd)
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1)
    stats = await broker("get_review_stats", project="naïve/審查者")
    assert [row["reviewer"] for row in stats["by_reviewer"]] == [odd]
    assert [(row["proposer"], row["reviewer"]) for row in stats["by_pair"]] == [(f"{odd} proposes", odd)]


async def test_of_very_many_reviewers_each_that_is_told_is_told_whole(broker: LocalBroker) -> None:
    """More than any answer can hold: what is left out is left out with all its verdicts."""
    verdicts = ("approved", "changes_requested", "comment")
    told = [(json.dumps([f"r{number:04}", verdict], separators=(",", ":")), number + 1)
            for number in range(1_001) for verdict in verdicts]  # fmt: skip
    # Somebody whose name comes before all others has given only one kind of verdict, so the cut falls elsewhere.
    told.append(('["a","approved"]', 1))
    counted = [{"scope": "", "name": "reviewer", "key": key, "value": value} for key, value in told]
    await broker.store.write(lambda tx: tx.statements.run_all(sa.insert(counters), counted))
    rows = (await broker("get_review_stats"))["by_reviewer"]
    assert 0 < len(rows) <= 500
    whole = [row for row in rows if row["reviewer"] != "a"]
    cut = [row for row in whole if not row["approved"] == row["changes_requested"] == row["comment"]]
    assert cut == []


def orphan(broker: LocalBroker) -> None:
    """A row that does not belong to a review: SQLite refuses it, and only at the commit."""
    connection = broker.store.writer._connection
    connection.execute("PRAGMA defer_foreign_keys=ON")
    connection.execute("INSERT INTO messages (review_id, round, sender_role, sender, body, created_at) "
                       "VALUES ('nobody', 1, 'proposer', 'x', 'y', 0)")  # fmt: skip


@pytest.mark.sqlite
async def test_what_was_not_committed_is_not_counted(broker: LocalBroker) -> None:
    for _ in range(2):
        await broker.create(project="site")
    reviews = [row["id"] for row in (await broker("list_reviews"))["reviews"]]
    broker.clock.pass_time(3)
    await broker("claim_review", review_id=reviews[0], reviewer_id="codex")
    before = await broker("get_review_stats")
    broker.clock.pass_time(4)
    # In one transaction with something that cannot be committed.
    answers = await asyncio.gather(
        broker("claim_review", review_id=reviews[1], reviewer_id="codex"),
        broker.store.write(lambda _tx: orphan(broker)),
        return_exceptions=True,
    )
    assert [isinstance(answer, Exception) for answer in answers] == [True, True]
    assert await broker("get_review_stats") == before
    await broker("claim_review", review_id=reviews[1], reviewer_id="codex")
    stats = await broker("get_review_stats", project="site")
    assert (stats["claims"], stats["avg_time_to_claim_seconds"]) == (2, 5.0)
    assert problems(broker.database) == []


async def test_a_command_that_fails_among_others_is_not_counted(broker: LocalBroker) -> None:
    """They share a transaction, and it alone is taken back."""
    review_id = (await broker.create())["review_id"]

    def half(tx: Any) -> None:
        from gsd_review_broker.domain.model import Identity
        from gsd_review_broker.domain.rules import claims

        review = tx.lock_review(review_id)
        tx.save(
            claims.claim(
                review, reviewer=Identity("codex"), digest=None, policy=review_policy(claim_timeout=1), now=tx.now
            )
        )
        raise RuntimeError("half way")

    answers = await asyncio.gather(
        *(broker.create() for _ in range(5)), broker.store.write(half), broker.create(), return_exceptions=True
    )
    assert sum(isinstance(answer, RuntimeError) for answer in answers) == 1
    stats = await broker("get_review_stats")
    assert (stats["total_reviews"], stats["claims"], stats["by_status"]["pending"]) == (7, 0, 7)
    assert problems(broker.database) == []


@pytest.mark.sqlite
async def test_a_damaged_histogram_is_an_error_for_its_caller_and_stops_nobody_else(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        for number in range(2):
            review_id = (await broker.create())["review_id"]
            if number == 0:
                await broker("claim_review", review_id=review_id, reviewer_id="codex")
        # While it runs: at its next start a broker refuses a database that is not as it made it.
        with contextlib.closing(sqlite3.connect(broker.database)) as connection, connection:
            connection.execute("ALTER TABLE histogram_buckets RENAME TO damaged")
        with pytest.raises(Exception, match=r".") as refused:
            await asyncio.wait_for(broker("claim_review", review_id=review_id, reviewer_id="codex"), 10)
        assert not isinstance(refused.value, TimeoutError)
        assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"
        assert (await broker.create())["version"] == 1
        with contextlib.closing(sqlite3.connect(broker.database)) as connection, connection:
            connection.execute("ALTER TABLE damaged RENAME TO histogram_buckets")
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert problems(broker.database) == []


@pytest.mark.sqlite
async def test_a_histogram_of_many_values_is_one_row_and_a_few_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    async with local_broker(tmp_path) as broker:
        for number in range(100):
            review_id = (await broker.create(project="p"))["review_id"]
            broker.clock.pass_time(1.2**number)
            await broker("claim_review", review_id=review_id, reviewer_id="codex")
        stats = await broker("get_review_stats", project="p")
    with contextlib.closing(sqlite3.connect(broker.database)) as connection:
        summed = connection.execute("SELECT scope, name FROM histograms ORDER BY scope, name").fetchall()
        beside = connection.execute("SELECT count(*) FROM histogram_buckets").fetchone()[0]
    names = ("time_in:pending", "time_to_claim")
    assert summed == [(scope, name) for scope in ("", "p") for name in names]
    # Of about a hundred buckets each.
    assert 0 < beside < len(summed) * (statistics.ENOUGH_TO_SUM_UP + statistics.SUM_UP_EVERY)
    assert stats["avg_time_to_claim_seconds"] == pytest.approx(
        sum(1.2**number for number in range(100)) / 100, rel=1e-3
    )
    assert problems(broker.database) == []
    assert verification.verify(broker.database).problems == []


@pytest.mark.sqlite
async def test_whole_reviews_one_after_the_other_sum_up_all_histograms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has four events, so a multiple of four would always meet the same one."""
    monkeypatch.undo()
    async with local_broker(tmp_path) as broker:
        for number in range(100):
            review_id = (await broker.create())["review_id"]
            broker.clock.pass_time(1.2**number)
            claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
            broker.clock.pass_time(1.2**number)
            await broker(
                "submit_verdict", review_id=review_id, verdict="approved", claim_generation=claim["claim_generation"]
            )
            broker.clock.pass_time(1.2**number)
            await broker("close_review", review_id=review_id)
    with contextlib.closing(sqlite3.connect(broker.database)) as connection:
        beside = dict(connection.execute("SELECT name, count(*) FROM histogram_buckets GROUP BY name"))
    assert beside
    assert max(beside.values()) < statistics.ENOUGH_TO_SUM_UP + statistics.SUM_UP_EVERY
    assert verification.verify(broker.database).problems == []


@pytest.mark.sqlite
async def test_a_damaged_sum_does_not_stop_the_reviews(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        for number in range(6):
            review_id = (await broker.create())["review_id"]
            broker.clock.pass_time(100**number)
            await broker("claim_review", review_id=review_id, reviewer_id="codex")
        with contextlib.closing(sqlite3.connect(broker.database)) as connection, connection:
            damage = "UPDATE histograms SET buckets = substr(buckets, 2) WHERE name = 'time_to_claim'"
            assert connection.execute(damage).rowcount
        with capture_logs() as logs:
            for number in range(6):
                review_id = (await broker.create())["review_id"]
                broker.clock.pass_time(50**number)
                await broker("claim_review", review_id=review_id, reviewer_id="codex")
        assert {(line["event"], line["name"]) for line in logs} == {("histogram_damaged", "time_to_claim")}
    assert verification.verify(broker.database).problems == ["the counters were altered: they cannot be read"]


async def test_each_project_has_statistics_of_its_own(broker: LocalBroker) -> None:
    for number in range(6):
        review_id = (await broker.create(project=f"p{number % 3}"))["review_id"]
        broker.clock.pass_time(number)
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
    means = [(await broker("get_review_stats", project=f"p{n}"))["avg_time_to_claim_seconds"] for n in range(3)]
    assert means == [1.5, 2.5, 3.5]
    assert problems(broker.database) == []


async def test_statistics_go_on_where_they_were_after_a_restart(tmp_path: Path) -> None:
    for round_ in (1, 2):
        async with local_broker(tmp_path) as broker:
            broker.clock.pass_time(round_ * 3_600)
            review_id = (await broker.create())["review_id"]
            broker.clock.pass_time(round_)
            await broker("claim_review", review_id=review_id, reviewer_id="codex")
            stats = await broker("get_review_stats")
            assert (stats["total_reviews"], stats["claims"]) == (round_, round_)
    assert stats["avg_time_to_claim_seconds"] == 1.5
    assert problems(broker.database) == []


@pytest.mark.parametrize("project", ["x" * 257, "nul\0", "half \ud800"])
async def test_a_project_that_cannot_be_one_is_refused(broker: LocalBroker, project: str) -> None:
    with pytest.raises(ToolError) as error:
        await broker("get_review_stats", project=project)
    assert error.value.code in {"too_large", "invalid_argument"}


# Any story: what was counted on the way is what the audit says, counted by somebody else.

REVIEWERS = ("codex-r1-0a1b2c3d", "codex-r1-99999999", "claude-r2-00000000", "human:ada", "opencode")
PROPOSERS = ("gsd-executor", "gsd-planner", "opencode")
PROJECTS = (None, "site", "api")
Step = tuple[str, int, int]


class Driver:
    """Does one thing after the other, whatever comes of it. `which` and `how` are any numbers."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.reviews: list[str] = []
        self.generations: dict[str, int] = {}
        self.findings: list[tuple[str, str]] = []
        self.refusals = 0

    async def do(self, steps: Iterable[Step]) -> None:
        for name, which, how in steps:
            act: Callable[[str, int], Awaitable[object]] = getattr(self, name)
            if name in _ANYTIME or self.reviews:
                try:
                    # The newest few, so that each lives through much.
                    await act(self.reviews[-1 - which % min(len(self.reviews), 3)] if self.reviews else "", how)
                except ToolError:
                    self.refusals += 1

    async def create(self, _review_id: str, how: int) -> None:
        category = (*CATEGORIES[:-1], None)[how % 5]
        proposal = {"project": PROJECTS[how % 3], "category": category, "agent_type": PROPOSERS[how // 3 % 3]}
        diff = {0: STALE, 1: GOOD}.get(how % 11)
        self.reviews.append((await self.broker.create(**proposal, diff=diff))["review_id"])

    async def claim(self, review_id: str, how: int) -> None:
        claim = await self.broker("claim_review", review_id=review_id, reviewer_id=REVIEWERS[how % 5])
        self.generations[review_id] = claim.get("claim_generation", 0)

    async def take_over(self, review_id: str, _how: int) -> None:
        with contextlib.suppress(Exception):
            claim = await self.broker.application.broker.claims.take_over(LOCAL, review_id, "human:bob")
            self.generations[review_id] = claim["claim_generation"]

    async def judge(self, review_id: str, how: int) -> None:
        verdict = ("approved", "changes_requested", "comment")[how % 3]
        stale = how % 9 == 0
        given = {
            "verdict": verdict,
            "reason": "because",
            "claim_generation": self.generations.get(review_id, 0) - stale,
            "findings": [{"title": f"t{how % 2}", "body": "b", "severity": "low"}] if how % 4 == 1 else [],
            "counter_patch": BETTER if verdict != "approved" and how % 4 == 2 else None,
        }
        await self.broker("submit_verdict", review_id=review_id, **given)
        found = (await self.broker("get_discussion", review_id=review_id))["findings"]
        self.findings = [(review_id, finding["finding_id"]) for finding in found] or self.findings

    async def judge_as_another(self, review_id: str, how: int) -> None:
        given = {"verdict": "approved", "reviewer_id": REVIEWERS[how % 5]}
        await self.broker("submit_verdict", review_id=review_id, **given)

    async def talk(self, review_id: str, how: int) -> None:
        role = ("proposer", "reviewer")[how % 2]
        await self.broker("add_message", review_id=review_id, sender_role=role, body=f"{how}", sender_id=REVIEWERS[3])

    async def revise(self, review_id: str, how: int) -> None:
        await self.broker.create(review_id=review_id, diff={0: STALE}.get(how % 5))

    async def answer(self, review_id: str, how: int) -> None:
        await self.broker(("accept_counter_patch", "reject_counter_patch")[how % 2], review_id=review_id)

    async def resolve(self, _review_id: str, how: int) -> None:
        for review_id, finding_id in self.findings[:1]:
            settled = {"finding_id": finding_id, "disposition": ("fixed", "deferred")[how % 2]}
            await self.broker("resolve_finding", review_id=review_id, **settled)

    async def release(self, review_id: str, _how: int) -> None:
        given = {"claim_generation": self.generations.get(review_id, 0)}
        await self.broker("release_claim", review_id=review_id, **given)

    async def close(self, review_id: str, _how: int) -> None:
        await self.broker("close_review", review_id=review_id)

    async def pass_time(self, _review_id: str, how: int) -> None:
        """From a millisecond to half an hour; claims that ran out are taken back."""
        self.broker.clock.pass_time((0.001, 0.3, 7.5, 61, 1_900)[how % 5])
        await self.broker.sweep()

    async def set_clock(self, _review_id: str, how: int) -> None:
        self.broker.clock.step_wall((-3_600, -5, 3, 86_400)[how % 4])
        await self.broker.sweep()


_ANYTIME = {"create", "pass_time", "set_clock"}
_OFTEN = {"create": 2, "claim": 10, "judge": 10, "pass_time": 5, "talk": 3, "revise": 5, "answer": 4}
_ACTS = [name for name in vars(Driver) if not name.startswith("_") and name != "do"]


def story(seed: int, length: int) -> list[Step]:
    """A shorter one of the same seed is the beginning of the longer."""
    chance = random.Random(seed)
    weights = [_OFTEN.get(name, 1) for name in _ACTS]
    return [
        (chance.choices(_ACTS, weights)[0], chance.randrange(1_000), chance.randrange(1_000)) for _ in range(length)
    ]


STORIES = st.builds(story, st.integers(0, 2**32), st.integers(80, 160))


async def whole_audit(broker: LocalBroker) -> list[dict[str, Any]]:
    events, after = [], 0
    while after is not None:
        page = await broker("get_audit_log", after=after, limit=500)
        events += page["events"]
        after = page["next_cursor"]
    return events


def milliseconds(event: dict[str, Any]) -> int:
    return round(datetime.fromisoformat(event["timestamp"]).timestamp() * 1000)


def lives_in(events: list[dict[str, Any]], project: str | None) -> list[list[dict[str, Any]]]:
    """Each review's events; of one project, or of all."""
    lives: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["review_id"] is not None:
            lives[event["review_id"]].append(event)
    return [life for life in lives.values() if project is None or life[0]["metadata"]["project"] == project]


def firsts(lives: list[list[dict[str, Any]]], *event_types: str) -> list[int]:
    """How long each review took from its creation to the first of these."""
    times = []
    for life in lives:
        found = [event for event in life if event["event_type"] in event_types]
        times += [max(0, milliseconds(found[0]) - milliseconds(life[0]))] if found else []
    return times


def stays(lives: list[list[dict[str, Any]]], state: str) -> list[int]:
    """How long each review was in this state, each time that it left it."""
    times = []
    for life in lives:
        moves = [event for event in life if event["new_status"] != event["old_status"]]
        for came, went in pairwise(moves):
            times += [max(0, milliseconds(went) - milliseconds(came))] if came["new_status"] == state else []
    return times


def last_verdicts(lives: list[list[dict[str, Any]]]) -> list[str]:
    submitted = "verdict_submitted"
    given = [[event["metadata"]["verdict"] for event in life if event["event_type"] == submitted] for life in lives]
    return [verdicts[-1] for verdicts in given if verdicts]


def shown_as(reviewer: str) -> str:
    return reviewer.rsplit("-", 1)[0] if reviewer.endswith(("-0a1b2c3d", "-99999999", "-00000000")) else reviewer


def of_kind(reviewer: str) -> str:
    return "human" if reviewer.startswith("human:") else reviewer.split("-", maxsplit=1)[0]


def average(times: list[int]) -> float | None:
    return round(sum(times) / len(times) / 1000, 3) if times else None


def percentage(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def ranked(times: list[int], percent: int) -> int:
    return sorted(times)[math.ceil(Fraction(len(times) * percent, 100)) - 1]


def percentiles(times: list[int]) -> dict[str, Any]:
    return {f"p{percent}": near(ranked(times, percent) / 1000) if times else None for percent in (50, 95)}


_SAID = ("verdict_submitted", "verdict_comment")


def recounted(events: list[dict[str, Any]], project: str | None) -> dict[str, Any]:
    """What get_review_stats must say, from the audit log and nothing else."""
    lives = lives_in(events, project)
    every = [event for life in lives for event in life]
    types = [event["event_type"] for event in every]
    claim = firsts(lives, "review_claimed")
    verdict = firsts(lives, "verdict_submitted")
    duration = firsts(lives, "review_closed")
    inside = {state: stays(lives, state) for state in LEAVABLE}
    last = last_verdicts(lives)
    return {
        "total_reviews": len(lives),
        "by_status": {state: sum(life[-1]["new_status"] == state for life in lives) for state in STATES},
        "by_category": {
            name: sum((life[0]["metadata"]["category"] or "uncategorized") == name for life in lives)
            for name in CATEGORIES
        },
        "approval_rate_pct": percentage(last.count("approved"), len(last)),
        "rejection_rate_pct": percentage(last.count("changes_requested"), len(last)),
        "avg_time_to_claim_seconds": average(claim),
        "avg_time_to_verdict_seconds": average(verdict),
        "avg_review_duration_seconds": average(duration),
        "avg_time_in_state_seconds": {state: average(times) for state, times in inside.items()},
        "percentiles": {
            "time_to_claim_seconds": percentiles(claim),
            "time_to_verdict_seconds": percentiles(verdict),
            "review_duration_seconds": percentiles(duration),
            "time_in_state_seconds": {state: percentiles(times) for state, times in inside.items()},
        },
        "rounds_to_approval": rounds(every),
        "claims": types.count("review_claimed"),
        "verdicts": {
            verdict: sum(event["metadata"]["verdict"] == verdict for event in every if event["event_type"] in _SAID)
            for verdict in ("approved", "changes_requested", "comment")
        },
        "reclaims": types.count("review_reclaimed"),
        "auto_rejections": types.count("review_auto_rejected"),
        "refused_verdicts": types.count("verdict_refused"),
        "by_reviewer": by_reviewer(every),
        "by_pair": by_pair(lives),
    }


def rounds(every: list[dict[str, Any]]) -> dict[str, Any]:
    taken = [
        event["metadata"]["round"]
        for event in every
        if event["event_type"] == "verdict_submitted" and event["metadata"]["verdict"] == "approved"
    ]
    if not taken:
        return {"average": None, **NOTHING}
    exact = {f"p{percent}": ranked(taken, percent) for percent in (50, 95)}
    return {"average": round(sum(taken) / len(taken), 2), **exact}


def by_reviewer(every: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for event in every:
        if event["event_type"] in _SAID:
            name = shown_as(event["actor"])
            none = {"reviewer": name, "approved": 0, "changes_requested": 0, "comment": 0}
            rows.setdefault(name, none)[event["metadata"]["verdict"]] += 1
    return sorted(rows.values(), key=lambda row: row["reviewer"])


def by_pair(lives: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for life in lives:
        for event in life:
            if event["event_type"] == "verdict_submitted":
                pair = life[0]["metadata"]["agent_type"], of_kind(event["actor"])
                none = {"proposer": pair[0], "reviewer": pair[1], "approved": 0, "changes_requested": 0}
                rows.setdefault(pair, none)[event["metadata"]["verdict"]] += 1
    for row in rows.values():
        row["approval_rate_pct"] = percentage(row["approved"], row["approved"] + row["changes_requested"])
    return [rows[pair] for pair in sorted(rows)]


def in_order_of_names(stats: dict[str, Any]) -> dict[str, Any]:
    """Of those who judged as much, any may come first."""
    stats["by_reviewer"].sort(key=lambda row: row["reviewer"])
    stats["by_pair"].sort(key=lambda row: (row["proposer"], row["reviewer"]))
    return stats


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("statistics") / "repository")


@settings(max_examples=12)
@given(steps=STORIES)
@pytest.mark.slow
def test_after_any_story_the_statistics_are_what_a_recount_of_the_audit_gives(tree: Path, steps: list[Step]) -> None:
    async def live(folder: Path) -> Path:
        async with local_broker(folder, root=tree) as broker:
            await Driver(broker).do(steps)
            events = await whole_audit(broker)
            for project in PROJECTS:
                asked = {"project": project} if project else {}
                assert in_order_of_names(await broker("get_review_stats", **asked)) == recounted(events, project)
            return broker.database

    with tempfile.TemporaryDirectory() as folder:
        assert problems(asyncio.run(live(Path(folder)))) == []
