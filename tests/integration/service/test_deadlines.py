"""Claims end at their deadline, and only then, whatever the clock does."""

import sqlite3

import pytest

from gsd_review_broker.domain.caller import LOCAL
from tests.support.local import LocalBroker, MovableClock, local_broker
from tests.support.mcp import ToolError

TIMEOUT = 1200


async def claimed(broker: LocalBroker, reviewer: str = "codex") -> tuple[str, int]:
    review_id = (await broker.create())["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id=reviewer)
    return review_id, claim["claim_generation"]


async def status_of(broker: LocalBroker, review_id: str) -> str:
    return (await broker("get_review_status", review_id=review_id))["status"]


async def test_a_claim_past_its_deadline_returns_to_pending_and_its_verdict_is_stale(broker: LocalBroker) -> None:
    review_id, generation = await claimed(broker)
    broker.clock.pass_time(TIMEOUT - 1)
    assert await broker.sweep() == []
    broker.clock.pass_time(1)
    assert await broker.sweep() == [review_id]
    assert await status_of(broker, review_id) == "pending"
    other = await broker("claim_review", review_id=review_id, reviewer_id="claude")
    assert other["claim_generation"] == generation + 2
    with pytest.raises(ToolError) as refused:
        await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)
    assert refused.value.code == "stale_claim"
    events = (await broker("get_review_timeline", review_id=review_id))["events"]
    assert events[2]["event_type"] == "review_reclaimed"
    assert events[2]["metadata"]["old_claimant"] == "codex"


@pytest.mark.parametrize("tool", ["get_review_status", "get_proposal", "get_discussion"])
async def test_a_read_that_names_the_claimant_extends_the_deadline(broker: LocalBroker, tool: str) -> None:
    review_id, _ = await claimed(broker)
    broker.clock.pass_time(TIMEOUT - 10)
    await broker(tool, review_id=review_id, caller_id="codex")
    broker.clock.pass_time(TIMEOUT - 10)
    assert await broker.sweep() == []
    await broker(tool, review_id=review_id, caller_id="somebody else")
    broker.clock.pass_time(10)
    assert await broker.sweep() == [review_id]


async def test_messages_and_comments_of_the_claimant_extend_the_deadline(broker: LocalBroker) -> None:
    review_id, generation = await claimed(broker)
    broker.clock.pass_time(TIMEOUT - 10)
    await broker("add_message", review_id=review_id, sender_role="reviewer", sender_id="codex", body="hm")
    broker.clock.pass_time(TIMEOUT - 10)
    await broker("submit_verdict", review_id=review_id, verdict="comment", reason="hm", claim_generation=generation)
    broker.clock.pass_time(TIMEOUT - 10)
    assert await broker.sweep() == []


async def test_a_judged_review_has_no_deadline(broker: LocalBroker) -> None:
    review_id, generation = await claimed(broker)
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)
    broker.clock.pass_time(10 * TIMEOUT)
    assert await broker.sweep() == []
    assert await status_of(broker, review_id) == "approved"


@pytest.mark.sqlite
async def test_a_clock_set_forward_expires_nothing_early(broker: LocalBroker) -> None:
    review_id, _ = await claimed(broker)
    broker.clock.pass_time(200)
    await broker.sweep()
    broker.clock.step_wall(24 * 3600)
    assert await broker.sweep() == []
    broker.clock.pass_time(TIMEOUT - 200)
    assert await broker.sweep() == [review_id]


@pytest.mark.sqlite
async def test_a_clock_set_back_keeps_nothing_too_long(broker: LocalBroker) -> None:
    review_id, _ = await claimed(broker)
    broker.clock.step_wall(-24 * 3600)
    assert await broker.sweep() == []
    broker.clock.pass_time(TIMEOUT)
    assert await broker.sweep() == [review_id]
    assert await broker.sweep() == []


async def test_a_claimant_heard_of_while_the_sweep_looks_keeps_its_claim(broker: LocalBroker) -> None:
    review_id, _ = await claimed(broker)
    broker.clock.pass_time(TIMEOUT)
    sweep = broker.application.broker.sweep
    await broker("get_review_status", review_id=review_id, caller_id="codex")
    assert not await broker.store.write(lambda tx: sweep._reclaim(tx, review_id))
    assert not await broker.store.write(lambda tx: sweep._reclaim(tx, "0" * 16))


async def test_a_restart_drops_nobodys_live_claim(tmp_path, repository) -> None:
    clock = MovableClock()
    async with local_broker(tmp_path, root=repository, clock=clock) as broker:
        review_id, generation = await claimed(broker)
    clock.pass_time(60)
    async with local_broker(tmp_path, root=repository, clock=clock) as broker:
        assert await broker.sweep() == []
        verdict = await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)
        assert verdict["status"] == "approved"


async def test_a_claim_that_ran_out_while_no_broker_was_there_has_a_minute_to_be_heard_of(
    tmp_path, repository, monkeypatch
) -> None:
    clock = MovableClock()
    async with local_broker(tmp_path, root=repository, clock=clock) as broker:
        review_id, _ = await claimed(broker)
    clock.pass_time(2 * TIMEOUT)
    async with local_broker(tmp_path, root=repository, clock=clock) as broker:
        sweep = broker.application.broker.sweep
        sweep.begin()
        assert await broker.sweep() == []
        clock.pass_time(61)
        assert await broker.sweep() == [review_id]


async def test_a_revision_is_kept_for_the_reviewer_who_was_just_heard_of(broker: LocalBroker) -> None:
    review_id, generation = await claimed(broker)
    request = {"verdict": "changes_requested", "reason": "no", "claim_generation": generation}
    await broker("submit_verdict", review_id=review_id, **request)
    await broker.create(review_id=review_id)
    assert await broker("claim_next", reviewer_id="claude") == {"claimed": False}
    with pytest.raises(ToolError) as refused:
        await broker("claim_review", review_id=review_id, reviewer_id="claude")
    assert refused.value.code == "already_claimed"
    assert "60 s" in refused.value.message
    assert (await broker("claim_next", reviewer_id="codex"))["review_id"] == review_id


async def test_a_revision_is_for_all_if_its_reviewer_was_not_heard_of_for_a_minute(broker: LocalBroker) -> None:
    review_id, generation = await claimed(broker)
    request = {"verdict": "changes_requested", "reason": "no", "claim_generation": generation}
    await broker("submit_verdict", review_id=review_id, **request)
    broker.clock.pass_time(61)
    await broker.create(review_id=review_id)
    assert (await broker("claim_next", reviewer_id="claude"))["review_id"] == review_id


async def test_old_idempotency_keys_are_forgotten(broker: LocalBroker) -> None:
    await broker.create(idempotency_key="k")
    broker.clock.pass_time(25 * 3600)
    await broker.sweep()
    with sqlite3.connect(f"file:{broker.database}?mode=ro", uri=True) as connection:
        assert connection.execute("SELECT count(*) FROM idempotency_keys").fetchone() == (0,)
    connection.close()


async def test_a_person_takes_over_a_live_claim(broker: LocalBroker) -> None:
    review_id, generation = await claimed(broker)
    claim = await broker.application.broker.claims.take_over(LOCAL, review_id, "human:ada")
    assert (claim["claimed_by"], claim["claim_generation"]) == ("human:ada", generation + 2)
    with pytest.raises(ToolError) as refused:
        await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)
    assert refused.value.code == "stale_claim"


async def _reserved(broker: LocalBroker) -> str:
    """A revision that is kept for its reviewer for a minute."""
    review_id, generation = await claimed(broker)
    request = {"verdict": "changes_requested", "reason": "no", "claim_generation": generation}
    await broker("submit_verdict", review_id=review_id, **request)
    await broker.create(review_id=review_id)
    return review_id


@pytest.mark.parametrize("step", [-24 * 3600, 24 * 3600])
@pytest.mark.sqlite
async def test_a_reservation_lasts_as_long_as_it_was_meant_whatever_the_clock_does(
    broker: LocalBroker, step: int
) -> None:
    review_id = await _reserved(broker)
    broker.clock.step_wall(step)
    await broker.sweep()
    broker.clock.pass_time(59)
    await broker.sweep()
    assert await broker("claim_next", reviewer_id="claude") == {"claimed": False}
    broker.clock.pass_time(2)
    await broker.sweep()
    assert (await broker("claim_next", reviewer_id="claude"))["review_id"] == review_id


@pytest.mark.parametrize("step", [-24 * 3600, 24 * 3600])
@pytest.mark.sqlite
async def test_the_pool_leaves_a_review_alone_as_long_as_it_was_meant_whatever_the_clock_does(
    broker: LocalBroker, step: int
) -> None:
    await broker.create()
    records = broker.application.broker.pool.records
    await records.failed_to_start("codex-r1", "no program", lambda _failures: 60_000)

    async def pending() -> int:
        return (await records.situation()).pending

    broker.clock.step_wall(step)
    await broker.sweep()
    broker.clock.pass_time(59)
    assert await pending() == 0
    broker.clock.pass_time(2)
    assert await pending() == 1
