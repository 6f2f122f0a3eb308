"""A review that is moved into an archive between two reads is not found; it is not a failure of the broker."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gsd_review_broker.domain.model import Review, ReviewId
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.world import Applies, review_topic
from gsd_review_broker.service.applies import Applicability
from gsd_review_broker.service.core import find_review, lock_review
from gsd_review_broker.service.wire.encoding import iso
from tests.support.local import LocalBroker
from tests.support.mcp import ToolError


class PrunedAtOnce:
    """A reader that still has the id in its index, and no row behind it any more."""

    def __init__(self, ids: list[str]) -> None:
        self._ids = ids

    def review(self, _review_id: ReviewId) -> None:
        return None

    lock_review = review

    def ids_with_prefix(self, _prefix: str, _limit: int) -> list[str]:
        return self._ids


@pytest.mark.parametrize("find", [find_review, lock_review])
@pytest.mark.parametrize("ids", [[], ["a1b2c3d4e5f60718"]])
def test_a_review_that_goes_between_two_reads_is_not_found(find: Callable[..., Any], ids: list[str]) -> None:
    with pytest.raises(BrokerError) as refused:
        find(PrunedAtOnce(ids), "a1b2c3d4")
    assert refused.value.code is Code.NOT_FOUND


@pytest.mark.parametrize("tool", ["get_review_status", "get_discussion"])
async def test_who_waits_for_a_review_that_is_archived_is_told(broker: LocalBroker, tool: str) -> None:
    review_id = (await broker.create())["review_id"]
    waiting = asyncio.create_task(broker(tool, review_id=review_id, wait=True, wait_seconds=20))
    # It listens before it looks. It waits, and has looked, when somebody waits for its signal.
    signals = broker.application.wakeups._waiters
    while not any(signal._waiters for signal in signals.get(review_topic(review_id), ())):
        await asyncio.sleep(0)
    # Closed and archived before the waiter has looked again: both commits are one wake-up to it.
    publish, held = broker.application.wakeups.publish, []
    broker.application.wakeups.publish = held.extend  # pyright: ignore[reportAttributeAccessIssue]
    await broker("close_review", review_id=review_id)
    broker.clock.pass_time(1)
    pruned = await broker.application.broker.retention.prune(iso(broker.clock.now()))
    assert pruned["reviews"] == 1
    publish(held)
    with pytest.raises(ToolError) as refused:
        await waiting
    assert refused.value.code == "not_found"


async def test_a_claim_of_what_was_archived_while_git_looked_is_not_found(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    review_id = (await broker.create())["review_id"]

    async def archived_meanwhile(_applies: Applicability, _review: Review) -> Applies:
        await broker("close_review", review_id=review_id)
        broker.clock.pass_time(1)
        await broker.application.broker.retention.prune(iso(broker.clock.now()))
        return Applies(digest=None)

    monkeypatch.setattr(Applicability, "demand", archived_meanwhile)
    with pytest.raises(ToolError) as refused:
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert refused.value.code == "not_found"
