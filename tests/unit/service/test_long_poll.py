"""A wait registers before its first look, and forgets no hint that comes while it looks."""

import asyncio

from gsd_review_broker.ports.world import Wakeups
from gsd_review_broker.service.waiting import LongPoll


class Looks:
    """Finds nothing at the given look; what it looks for is published before that look is over."""

    def __init__(self, wakeups: Wakeups, *, published_during: int) -> None:
        self._wakeups = wakeups
        self._published_during = published_during
        self.count = 0

    async def __call__(self) -> str | None:
        self.count += 1
        present = "work" if self.count > self._published_during else None
        # The look has read what there is, and its answer is still on the way.
        if self.count == self._published_during:
            self._wakeups.publish(["queue"])
        else:
            asyncio.get_running_loop().call_soon(self._wakeups.publish, ["queue"])
        await asyncio.sleep(0)
        return present


async def test_what_is_published_during_the_first_look_is_not_missed() -> None:
    wakeups = Wakeups()
    look = Looks(wakeups, published_during=1)
    async with asyncio.timeout(5):
        assert await LongPoll(wakeups).until("queue", look, wait=True, wait_seconds=60) == "work"
    assert look.count == 2


async def test_what_is_published_during_a_later_look_is_not_missed() -> None:
    wakeups = Wakeups()
    look = Looks(wakeups, published_during=3)
    async with asyncio.timeout(5):
        assert await LongPoll(wakeups).until("queue", look, wait=True, wait_seconds=60) == "work"
    assert look.count == 4


async def test_a_broker_that_closes_during_the_first_look_is_not_waited_for() -> None:
    wakeups = Wakeups()

    async def look() -> None:
        wakeups.close()
        await asyncio.sleep(0)

    async with asyncio.timeout(5):
        assert await LongPoll(wakeups).until("queue", look, wait=True, wait_seconds=60) is None
