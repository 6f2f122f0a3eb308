"""Waiters by topic. A wake-up is a hint: the waiter reads again, so a lost or needless one does no harm."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager


class LocalWakeups:
    """Waiters of this process, by topic."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self.waiting = 0
        self.closing = False

    def publish(self, topics: Iterable[str]) -> None:
        for topic in set(topics):
            for signal in self._waiters.get(topic, ()):
                signal.set()

    def publish_all(self) -> None:
        self.publish(list(self._waiters))

    @contextmanager
    def listening(self, topic: str, *, counted: bool = True) -> Generator[asyncio.Event]:
        """Begins before the first look, so that nothing after the look is missed.

        The broker's own listeners do not count as waiting.
        """
        signal = asyncio.Event()
        self._waiters.setdefault(topic, set()).add(signal)
        self.waiting += counted
        try:
            yield signal
        finally:
            self.waiting -= counted
            self._waiters[topic].discard(signal)
            if not self._waiters[topic]:
                del self._waiters[topic]

    def close(self) -> None:
        """The broker stops: every wait answers with the present state."""
        self.closing = True
        self.publish_all()
