"""Long polling: look, sleep until a hint, look again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gsd_review_broker.ports.world import Wakeups
from gsd_review_broker.service.validation import between

T = TypeVar("T")

DEFAULT_WAIT_SECONDS = 25
LONGEST_WAIT_SECONDS = 240


class Interruption:
    """Wakes one wait: `look` is then called again, and may raise the reason why the wait is over."""

    def __init__(self) -> None:
        self.has_come = False
        self._signal: asyncio.Event | None = None

    def wakes(self, signal: asyncio.Event) -> None:
        self._signal = signal

    def come(self) -> None:
        self.has_come = True
        if self._signal is not None:
            self._signal.set()


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
        interruption: Interruption | None = None,
    ) -> T | None:
        """What `look` returns, now or later; None when the time is over or the broker stops."""
        seconds = self.refuse_too_long(wait_seconds)
        if not wait:
            return await look()
        deadline = asyncio.get_running_loop().time() + seconds
        with self._wakeups.listening(topic) as signal:
            while True:
                if interruption is not None:
                    interruption.wakes(signal)
                signal.clear()
                answer = await look()
                if answer is not None or self._wakeups.closing:
                    return answer
                try:
                    async with asyncio.timeout_at(deadline):
                        await signal.wait()
                except TimeoutError:
                    return None
