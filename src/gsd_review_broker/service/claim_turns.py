"""One `claim_next` at a time for each name.

A reviewer that calls again has lost its first call: it was cancelled, or its program was stopped, and the broker could
not notice. The first call must not claim a review that nobody reads.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from gsd_review_broker.domain.identity import Identity, identity_key
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.long_poll import Interruption


class Turn:
    def __init__(self, reviewer: Identity) -> None:
        self._reviewer = reviewer
        self.interruption = Interruption()
        self.has_ended = asyncio.Event()

    def refuse_if_stopped(self) -> None:
        if self.interruption.has_come:
            raise BrokerError(
                Code.CONFLICT,
                f"{self._reviewer} called claim_next again, so this call was stopped",
                "Wait for the answer to the later call. If you did not make it, another reviewer uses your name: take "
                "a name of your own.",
            )


class ClaimTurns:
    def __init__(self) -> None:
        self._latest: dict[str, Turn] = {}

    @asynccontextmanager
    async def turn_of(self, reviewer: Identity) -> AsyncGenerator[Turn]:
        """Stops the call before this one, if it waits, and begins when that has ended."""
        name = identity_key(reviewer)
        turn, previous = Turn(reviewer), self._latest.get(name)
        self._latest[name] = turn
        try:
            if previous is not None:
                previous.interruption.come()
                await previous.has_ended.wait()
            yield turn
        finally:
            turn.has_ended.set()
            if self._latest[name] is turn:
                del self._latest[name]
