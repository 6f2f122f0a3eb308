"""The store: commands in transactions, reads of snapshots, archives."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.model import Change, Identity, Milliseconds, NewEvent, Review, ReviewId
from gsd_review_broker.domain.pool import Failure, Reviewer, Work
from gsd_review_broker.domain.tokens import SignInLink, Token
from gsd_review_broker.ports.idempotency import IdempotencyKey
from gsd_review_broker.ports.reader import Reader

T = TypeVar("T")


class Transaction(Reader, Protocol):
    """One command: reads and writes that happen together or not at all, with one `now`."""

    @property
    def now(self) -> Milliseconds: ...

    def lock_review(self, review_id: ReviewId) -> Review | None: ...

    def save(self, change: Change) -> int | None:
        """Save the review, its rows and its events together. Returns the id of the change's message."""
        ...

    def put_off(self, review: Review) -> None: ...

    def shift_deadlines(self, by: int) -> None: ...

    def take(self, key: IdempotencyKey) -> dict[str, Any] | None:
        """Take the key for this call. Returns the answer of the call that took it before, if there is one."""
        ...

    def remember(self, key: IdempotencyKey, result: dict[str, Any]) -> None:
        """Store the answer of the call that took the key."""
        ...

    def forget_keys_before(self, moment: Milliseconds) -> None: ...

    def append(self, *new_events: NewEvent) -> None:
        """Append events that belong to no review."""
        ...

    def announce(self, topic: str) -> None:
        """Wake the waiters of the topic after the commit."""
        ...

    def lock_reviewer(self, reviewer_id: Identity) -> Reviewer | None: ...

    def lock_open_work(self, review_id: ReviewId) -> Work | None: ...

    def lock_work_of(self, reviewer_id: Identity, limit: int) -> list[Work]:
        """The last ones first."""
        ...

    def save_reviewer(self, reviewer: Reviewer) -> None: ...

    def save_work(self, work: Work) -> None: ...

    def save_failure(self, failure: Failure) -> None: ...

    def save_heartbeat(self, broker_id: str, now: Milliseconds) -> None: ...

    def pause_pool(self, paused: bool) -> None: ...

    def save_reviewed_change(self, change: ReviewedChange) -> None: ...

    def save_override(self, override: GateOverride) -> int: ...

    def save_landed(self, commit: LandedCommit) -> None: ...

    def lock_token(self, name: str) -> Token | None:
        """The token of this name that was not revoked; it may have expired."""
        ...

    def save_token(self, token: Token) -> None: ...

    def revoke_token(self, token: Token, now: Milliseconds) -> None: ...

    def save_sign_in_link(self, link: SignInLink, now: Milliseconds) -> None:
        """Links that have expired are removed."""
        ...

    def take_sign_in_link(self, code_hash: str) -> SignInLink | None:
        """Removed with this: of several that take one link, one gets it. It may have expired."""
        ...


# Sees each change inside its transaction, and may add to it.
Watcher = Callable[[Transaction, Change], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Archived:
    # How many were found, and how many of them had not changed meanwhile and were moved.
    found: int
    moved: int


class Store(Protocol):
    @property
    def broker_id(self) -> str:
        """The id of this broker among those of the database; it stays the same after a restart."""
        ...

    @property
    def is_shared(self) -> bool:
        """May other brokers use the database too? Then the time is the database's."""
        ...

    def alone(self) -> AbstractAsyncContextManager[bool]:
        """Is this broker the one that does the work of all brokers now? Then no other is, until it is done."""
        ...

    async def is_ready(self) -> bool:
        """Can it be used now?"""
        ...

    async def write(self, command: Callable[[Transaction], T]) -> T:
        """Returns only when the command is on disk; then the waiters are woken.

        The command may be run more than once, and only its last run is stored.
        """
        ...

    async def read(self, query: Callable[[Reader], T]) -> T:
        """Runs off the event loop: for lists, pages, anything that grows."""
        ...

    async def archive(self, *, closed_before: Milliseconds, said_as: str, into: str) -> Archived:
        """Move the next few reviews that were closed before this moment into an archive file beside the database."""
        ...

    async def glance(self, query: Callable[[Reader], T]) -> T:
        """By primary key only: quick enough to run on the event loop."""
        ...


class OwnedStore(Store, Protocol):
    """A store as the program that opens it sees it."""

    # Each watcher sees every change inside its transaction.
    watchers: list[Watcher]

    def open(self) -> None:
        """Brings the schema up to date. Raises StartError."""
        ...

    async def start(self) -> None:
        """In the event loop: begin what runs beside the commands."""
        ...

    async def close(self) -> None:
        """Finishes the commands that are under way."""
        ...
