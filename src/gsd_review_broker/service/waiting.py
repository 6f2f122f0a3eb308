"""Waiting calls: look, sleep until a hint, look again. Of each reviewer, one `claim_next` waits at a time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from gsd_review_broker.domain.text import Identity, identity_key
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.world import Wakeups
from gsd_review_broker.service.validation import between

T = TypeVar("T")

DEFAULT_WAIT_SECONDS = 25
LONGEST_WAIT_SECONDS = 240


class Turn:
    """A reviewer's `claim_next`, until it has ended or a later one of the same reviewer stops it."""

    def __init__(self, reviewer: Identity) -> None:
        self._reviewer = reviewer
        self._is_stopped = False
        self._signal: asyncio.Event | None = None
        self.has_ended = asyncio.Event()

    def wakes(self, signal: asyncio.Event) -> None:
        self._signal = signal

    def stop(self) -> None:
        """Wake the call, if it waits: it looks again, and is refused."""
        self._is_stopped = True
        if self._signal is not None:
            self._signal.set()

    def refuse_if_stopped(self) -> None:
        if self._is_stopped:
            raise BrokerError(
                Code.CONFLICT,
                f"{self._reviewer} called claim_next again, so this call was stopped",
                "Wait for the answer to the later call. If you did not make it, another reviewer uses your name: take "
                "a name of your own.",
            )


class LongPoll:
    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups

    def refuse_too_long(self, wait_seconds: float | None) -> float:
        seconds = DEFAULT_WAIT_SECONDS if wait_seconds is None else wait_seconds
        between("wait_seconds", seconds, 0, LONGEST_WAIT_SECONDS)
        return seconds

    async def until(
        self,
        topic: str,
        look: Callable[[], Awaitable[T | None]],
        *,
        wait: bool,
        wait_seconds: float | None,
        turn: Turn | None = None,
    ) -> T | None:
        """Return what `look` returns, now or later; None when the time is over or the broker stops."""
        seconds = self.refuse_too_long(wait_seconds)
        if not wait:
            return await look()
        deadline = asyncio.get_running_loop().time() + seconds
        with self._wakeups.listening(topic) as signal:
            while True:
                if turn is not None:
                    turn.wakes(signal)
                signal.clear()
                answer = await look()
                if answer is not None or self._wakeups.closing:
                    return answer
                try:
                    async with asyncio.timeout_at(deadline):
                        await signal.wait()
                except TimeoutError:
                    return None


class ClaimTurns:
    """Lets one `claim_next` of each reviewer run at a time.

    A reviewer that calls again has lost its first call: it was cancelled, or its program was stopped, and the broker
    could not notice. The first call must not claim a review that no reviewer reads.
    """

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
                previous.stop()
                await previous.has_ended.wait()
            yield turn
        finally:
            turn.has_ended.set()
            if self._latest[name] is turn:
                del self._latest[name]
