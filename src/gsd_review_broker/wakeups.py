"""Who waits for what. A wake-up is a hint: the waiter re-reads, so a lost or needless one does no harm."""

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

    @contextmanager
    def listening(self, topic: str, *, counted: bool = True) -> Generator[asyncio.Event]:
        """Begins before the first look, so that nothing that happens after the look is missed. The broker's own
        listeners are not counted among those who wait."""
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
        """The broker ends: every wait answers with what is."""
        self.closing = True
        self.publish(list(self._waiters))
