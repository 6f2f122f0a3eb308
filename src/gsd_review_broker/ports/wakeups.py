"""Hints that something may have changed."""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from gsd_review_broker.domain.model import ReviewId

# The topic of reviewers that wait for work.
QUEUE = "queue"
# The topic of the pool's supervisor.
POOL = "pool"
# The topic of viewers of all events: each commit with an event.
EVENTS = "events"


def review_topic(review_id: ReviewId) -> str:
    return f"review:{review_id}"


class Wakeups(Protocol):
    """Hints that something may have changed; the waiter reads again."""

    @property
    def waiting(self) -> int: ...

    @property
    def closing(self) -> bool: ...

    def publish(self, topics: Iterable[str]) -> None: ...

    def publish_all(self) -> None:
        """Wake everybody: something may have been missed."""
        ...

    def listening(self, topic: str, *, counted: bool = True) -> AbstractContextManager[asyncio.Event]: ...
