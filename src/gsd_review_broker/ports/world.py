"""The world outside, as services see it: the time, wake-ups, git, and what proves an approval."""

import asyncio
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from gsd_review_broker.domain.gate.decision import ReviewedChange
from gsd_review_broker.domain.model import Milliseconds, ReviewId


class Clock(Protocol):
    def now(self) -> Milliseconds: ...

    def steady(self) -> Milliseconds: ...


class SystemClock:
    def now(self) -> Milliseconds:
        return Milliseconds(time.time_ns() // 1_000_000)

    def steady(self) -> Milliseconds:
        """Return monotonic time. It stands still while the machine sleeps, and so do the reviewers."""
        return Milliseconds(time.monotonic_ns() // 1_000_000)


# The topic of reviewers that wait for work.
QUEUE = "queue"
# The topic of the pool's supervisor.
POOL = "pool"
# The topic of viewers of all events: each commit with an event.
EVENTS = "events"


def review_topic(review_id: ReviewId) -> str:
    return f"review:{review_id}"


class Wakeups:
    """The waiters of this process, by topic. A wake-up is a hint: the waiter reads again."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self.waiting = 0
        self.closing = False

    def publish(self, topics: Iterable[str]) -> None:
        for topic in set(topics):
            for signal in self._waiters.get(topic, ()):
                signal.set()

    def publish_all(self) -> None:
        """Wake all waiters: something may have been missed."""
        self.publish(list(self._waiters))

    @contextmanager
    def listening(self, topic: str, *, counted: bool = True) -> Generator[asyncio.Event]:
        """Listen from before the first look, so that nothing after it is missed.

        The broker's own listeners are not counted as waiting.
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
        """Stop the broker's waits: each answers with the present state."""
        self.closing = True
        self.publish_all()


@dataclass(frozen=True, kw_only=True, slots=True)
class Offset:
    """A hunk (counted from 1) that applies this many lines below (or above) its line, since the file has changed."""

    path: str
    hunk: int
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Applies:
    """git accepted the diff.

    The digest is None if only the work tree accepted it, or it is not in HEAD. Offsets say how far HEAD has moved from
    the base of an older diff.
    """

    digest: str | None
    offsets: tuple[Offset, ...] = ()
    # What the digest is made of: the sorted records; and where: the root commit and the git folder.
    records: bytes | None = None
    repository: str | None = None
    folder: str | None = None
    # The commit that it was checked against.
    base: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DoesNotApply:
    git_says: str


class Repository(Protocol):
    """git, read only."""

    async def resolve_workspace(self, workspace: str | None) -> str | None:
        """Find the workspace's root. Refuses paths that the configuration does not allow."""
        ...

    async def project_of(self, workspace: str | None) -> str | None:
        """Name the project alike in every clone and work tree; None for the broker's own repository."""
        ...

    async def root_commit(self, workspace: str) -> str | None:
        """Find what all clones of a repository share; None before the first commit, and in a shallow clone."""
        ...

    async def check(self, workspace: str | None, diff: bytes, *, already_applied: bool) -> Applies | DoesNotApply: ...

    async def records_on(self, workspace: str, base: str, diff: bytes) -> bytes | None:
        """Return the records of the diff applied to this commit; None if it does not apply."""
        ...

    async def blob(self, workspace: str, object_id: str, *, most: int) -> bytes:
        """Read a file's content and hash it again. Raises BrokerError if it is missing or larger than `most` bytes."""
        ...


class Signer(Protocol):
    """Signs what was approved, so that it can be proved without a broker."""

    def sign(self, document: dict[str, Any]) -> str:
        """Return the document as JSON, with the key's id and the signature. Raises BrokerError."""
        ...


class TicketIssuer(Protocol):
    """Tells the gate's hook in advance which commit it may let through."""

    def issue(self, approved: ReviewedChange, base: str) -> bool:
        """Issue a ticket for this change on this commit. False where the hook has to ask. Raises OSError."""
        ...
