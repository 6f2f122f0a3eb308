"""Waits are woken by commits, never missed, and end in an answer."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.local import LocalBroker
from tests.support.mcp import ToolError


async def until_waiting(broker: LocalBroker, number: int) -> None:
    async with asyncio.timeout(5):
        while broker.application.wakeups.waiting < number:
            await asyncio.sleep(0)


async def test_a_wait_that_begins_after_the_verdict_returns_at_once(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1)
    async with asyncio.timeout(2):
        status = await broker("get_review_status", review_id=review_id, wait=True)
    assert (status["status"], status["changed"]) == ("approved", True)


async def test_a_waiting_proposer_is_woken_by_the_verdict(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    waiting = asyncio.create_task(broker("get_review_status", review_id=review_id, wait=True, since=claim["version"]))
    await until_waiting(broker, 1)
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1)
    async with asyncio.timeout(2):
        assert (await waiting)["status"] == "approved"
    assert broker.application.wakeups.waiting == 0


async def test_with_since_a_wait_blocks_in_every_state_but_closed(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    version = (await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1))["version"]
    blocked = await broker("get_review_status", review_id=review_id, wait=True, since=version, wait_seconds=0.05)
    assert blocked == {"review_id": review_id, "status": "approved", "version": version, "changed": False}
    known = (await broker("close_review", review_id=review_id))["version"]
    async with asyncio.timeout(2):
        ended = await broker("get_review_status", review_id=review_id, wait=True, since=known)
    assert (ended["status"], ended["changed"]) == ("closed", False)


async def test_with_an_older_since_a_wait_returns_at_once(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    async with asyncio.timeout(2):
        status = await broker("get_review_status", review_id=review_id, wait=True, since=0)
    assert status["changed"] is True
    assert (await broker("get_review_status", review_id=review_id, since=1))["changed"] is False


async def test_a_timeout_is_a_short_answer(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    answer = await broker("get_review_status", review_id=review_id, wait=True, wait_seconds=0)
    assert answer == {"review_id": review_id, "status": "pending", "version": 1, "changed": False}
    await broker("claim_next", reviewer_id="codex")
    assert await broker("claim_next", reviewer_id="claude", wait=True, wait_seconds=0) == {"claimed": False}
    empty = await broker("list_reviews", status="pending", wait=True, wait_seconds=0)
    assert empty == {"reviews": [], "next_cursor": None, "changed": False}


@pytest.mark.parametrize("seconds", [240.5, -1, float("nan"), float("inf")])
async def test_a_wait_out_of_bounds_is_an_invalid_argument(broker: LocalBroker, seconds: float) -> None:
    review_id = (await broker.create())["review_id"]
    with pytest.raises(ToolError) as refused:
        await broker("get_review_status", review_id=review_id, wait=True, wait_seconds=seconds)
    assert refused.value.code == "invalid_argument"


async def test_only_pending_reviews_can_be_waited_for_in_a_list(broker: LocalBroker) -> None:
    with pytest.raises(ToolError) as refused:
        await broker("list_reviews", wait=True)
    assert refused.value.code == "invalid_argument"


async def test_a_list_waits_for_the_first_that_the_reviewer_may_claim(broker: LocalBroker) -> None:
    waiting = asyncio.create_task(broker("list_reviews", status="pending", wait=True, reviewer_id="codex"))
    await until_waiting(broker, 1)
    await broker.create(proposer_id="codex")
    wanted = (await broker.create(proposer_id="someone"))["review_id"]
    async with asyncio.timeout(2):
        assert [row["id"] for row in (await waiting)["reviews"]] == [wanted]


async def test_of_many_who_wait_for_work_one_gets_it_and_the_rest_wait_on(broker: LocalBroker) -> None:
    waiting = [
        asyncio.create_task(broker("claim_next", reviewer_id=f"r{number}", wait=True, wait_seconds=60))
        for number in range(50)
    ]
    await until_waiting(broker, 50)
    for expected_left in range(49, 44, -1):
        review_id = (await broker.create())["review_id"]
        async with asyncio.timeout(5):
            done, _ = await asyncio.wait(
                [task for task in waiting if not task.done()], return_when=asyncio.FIRST_COMPLETED
            )
        assert [task.result()["review_id"] for task in done] == [review_id]
        await until_waiting(broker, expected_left)
    broker.application.wakeups.close()
    async with asyncio.timeout(5):
        rest = await asyncio.gather(*waiting)
    assert sum(not answer["claimed"] for answer in rest) == 45


async def test_a_caller_that_goes_away_frees_its_place(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    waiting = asyncio.create_task(broker("get_review_status", review_id=review_id, wait=True))
    await until_waiting(broker, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert broker.application.wakeups.waiting == 0
    assert broker.application.wakeups._waiters == {}


async def test_no_wake_up_is_missed_whenever_the_wait_begins(broker: LocalBroker) -> None:
    """The verdict is given at every possible moment of a wait's beginning."""
    for steps in range(12):
        review_id = (await broker.create())["review_id"]
        version = (await broker("claim_review", review_id=review_id, reviewer_id="codex"))["version"]
        judging = asyncio.create_task(
            broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1)
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            status = await broker("get_review_status", review_id=review_id, wait=True, since=version)
            await judging
        assert status["status"] == "approved"


async def test_an_open_counter_patch_is_where_the_proposer_must_act(broker: LocalBroker) -> None:
    from tests.support.texts import BETTER, GOOD

    review_id = (await broker.create(diff=GOOD))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    offer = {"reason": "shorter", "claim_generation": 1, "counter_patch": BETTER}
    await broker("submit_verdict", review_id=review_id, verdict="comment", **offer)
    async with asyncio.timeout(2):
        status = await broker("get_review_status", review_id=review_id, wait=True)
    assert (status["status"], status["counter_patch_status"]) == ("claimed", "pending")


async def test_a_reservation_that_ends_wakes_those_who_wait_for_work(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    request = {"verdict": "changes_requested", "reason": "no", "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, **request)
    await broker.create(review_id=review_id)
    waiting = asyncio.create_task(broker("claim_next", reviewer_id="claude", wait=True, wait_seconds=60))
    await until_waiting(broker, 1)
    broker.clock.pass_time(59)
    await broker.sweep()
    assert not waiting.done()
    broker.clock.pass_time(2)
    await broker.sweep()
    async with asyncio.timeout(5):
        assert (await waiting)["review_id"] == review_id


async def released(broker: LocalBroker, review_id: str) -> None:
    await broker("release_claim", review_id=review_id, claim_generation=1)


async def reclaimed(broker: LocalBroker, review_id: str) -> None:
    broker.clock.pass_time(2 * 60 * 60)
    await broker.sweep()


async def revised(broker: LocalBroker, review_id: str) -> None:
    verdict = {"verdict": "changes_requested", "reason": "no", "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, **verdict)
    await broker.create(review_id=review_id)


async def accepted(broker: LocalBroker, review_id: str) -> None:
    from tests.support.texts import BETTER

    offer = {"verdict": "comment", "reason": "shorter", "claim_generation": 1, "counter_patch": BETTER}
    await broker("submit_verdict", review_id=review_id, **offer)
    await broker("accept_counter_patch", review_id=review_id)


@pytest.mark.parametrize("reopened", [released, reclaimed, revised, accepted])
@pytest.mark.parametrize("by_list", [True, False])
async def test_a_review_that_is_pending_again_wakes_those_who_wait_for_work(
    broker: LocalBroker, reopened: Callable[[LocalBroker, str], Awaitable[None]], by_list: bool
) -> None:
    from tests.support.texts import GOOD

    review_id = (await broker.create(diff=GOOD))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    # Whoever judged it before: nothing is kept for another.
    wait = {"reviewer_id": "codex", "wait": True, "wait_seconds": 60}
    call = broker("list_reviews", status="pending", **wait) if by_list else broker("claim_next", **wait)
    waiting = asyncio.create_task(call)
    await until_waiting(broker, 1)
    await reopened(broker, review_id)
    async with asyncio.timeout(5):
        answer = await waiting
    ids = [row["id"] for row in answer["reviews"]] if by_list else [answer["review_id"]]
    assert ids == [review_id]
