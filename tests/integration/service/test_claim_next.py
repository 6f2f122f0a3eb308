"""A claim for a caller that is gone: it asks again, and gets the claim that it lost."""

import asyncio

import pytest

from tests.support.local import LocalBroker
from tests.support.mcp import ToolError


async def until_waiting(broker: LocalBroker, number: int) -> None:
    async with asyncio.timeout(5):
        while broker.application.wakeups.waiting != number:
            await asyncio.sleep(0)


async def test_a_claim_whose_answer_was_lost_is_given_again(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    first = await broker("claim_next", reviewer_id="codex")
    assert first["review_id"] == review_id
    broker.clock.pass_time(30)
    assert await broker("claim_next", reviewer_id="Codex", wait=True) == first
    assert await broker("claim_next", reviewer_id="claude") == {"claimed": False}


@pytest.mark.parametrize("tool", ["get_proposal", "get_discussion", "get_review_status"])
async def test_a_claim_that_was_used_is_not_given_again(broker: LocalBroker, tool: str) -> None:
    """In the same millisecond too."""
    await broker.create()
    claim = await broker("claim_next", reviewer_id="codex")
    await broker(tool, review_id=claim["review_id"], caller_id="codex")
    assert await broker("claim_next", reviewer_id="codex") == {"claimed": False}


async def test_a_claim_with_a_comment_is_not_given_again(broker: LocalBroker) -> None:
    await broker.create()
    claim = await broker("claim_next", reviewer_id="codex")
    comment = {"verdict": "comment", "reason": "hm", "claim_generation": claim["claim_generation"]}
    await broker("submit_verdict", review_id=claim["review_id"], **comment)
    assert await broker("claim_next", reviewer_id="codex") == {"claimed": False}


async def test_a_lost_claim_of_another_category_or_project_is_not_given(broker: LocalBroker) -> None:
    await broker.create(category="handoff", project="a")
    claim = await broker("claim_next", reviewer_id="codex")
    for other in ({"category": "code_change"}, {"project": "b"}):
        assert await broker("claim_next", reviewer_id="codex", **other) == {"claimed": False}
    again = await broker("claim_next", reviewer_id="codex", category="handoff", project="a")
    assert again["review_id"] == claim["review_id"]


async def test_a_second_call_under_the_same_name_stops_the_first(broker: LocalBroker) -> None:
    first = asyncio.create_task(broker("claim_next", reviewer_id="codex", wait=True, wait_seconds=60))
    await until_waiting(broker, 1)
    second = asyncio.create_task(broker("claim_next", reviewer_id="codex", wait=True, wait_seconds=60))
    async with asyncio.timeout(5):
        with pytest.raises(ToolError) as refused:
            await first
    assert refused.value.code == "conflict"
    assert "a name of your own" in refused.value.hint
    await until_waiting(broker, 1)
    review_id = (await broker.create())["review_id"]
    async with asyncio.timeout(5):
        assert (await second)["review_id"] == review_id


async def test_a_third_call_stops_a_second_that_has_not_begun_to_wait(broker: LocalBroker) -> None:
    calls = [
        asyncio.create_task(broker("claim_next", reviewer_id="codex", wait=True, wait_seconds=60)) for _ in range(3)
    ]
    async with asyncio.timeout(5):
        stopped = await asyncio.gather(*calls[:2], return_exceptions=True)
    assert [error.code for error in stopped if isinstance(error, ToolError)] == ["conflict", "conflict"]
    review_id = (await broker.create())["review_id"]
    async with asyncio.timeout(5):
        assert (await calls[2])["review_id"] == review_id


async def test_a_call_that_does_not_wait_is_not_stopped(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    claims = await asyncio.gather(*(broker("claim_next", reviewer_id="codex") for _ in range(5)))
    assert {claim["review_id"] for claim in claims} == {review_id}
    assert {claim["claim_generation"] for claim in claims} == {1}


async def test_a_call_that_was_cancelled_leaves_nothing_behind(broker: LocalBroker) -> None:
    gone = asyncio.create_task(broker("claim_next", reviewer_id="codex", wait=True, wait_seconds=60))
    await until_waiting(broker, 1)
    gone.cancel()
    await asyncio.wait([gone])
    review_id = (await broker.create())["review_id"]
    async with asyncio.timeout(5):
        assert (await broker("claim_next", reviewer_id="codex", wait=True))["review_id"] == review_id
