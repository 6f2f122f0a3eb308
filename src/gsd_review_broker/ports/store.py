"""The store: commands in transactions, reads of snapshots, what lists can be asked for, archives."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from gsd_review_broker.domain.caller import SignInLink, Token
from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.model import (
    Change,
    CounterPatch,
    Event,
    Finding,
    Identity,
    Message,
    Milliseconds,
    NewEvent,
    Review,
    ReviewId,
    Revision,
)
from gsd_review_broker.domain.rules.pool import Failure, Reviewer, Work
from gsd_review_broker.domain.tally import EVERYTHING, Totals
from gsd_review_broker.domain.words import Priority, Status


@dataclass(frozen=True, kw_only=True, slots=True)
class IdempotencyKey:
    """One call that may be repeated. The same key with other arguments is a conflict."""

    project: str
    tool: str
    key: str
    arguments_hash: str


KEY_LIFETIME_MILLISECONDS = 24 * 3_600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewFilter:
    status: Status | None = None
    category: str | None = None
    project: str | None = None
    phase: str | None = None
    plan: str | None = None
    proposer_id: str | None = None
    parent_id: str | None = None
    needs_human: bool | None = None
    # Leave out closed reviews.
    only_live: bool = False
    # Leave out reviews that this reviewer may not claim now.
    claimable_by: Identity | None = None
    claimable_at: Milliseconds | None = None
    # Leave out reviews that the pool holds back: reviewers failed on them lately, or so often that a person was asked.
    for_pool: bool = False


class ReviewSummary(NamedTuple):
    """The columns of a review that a page shows. With a whole Review each, a page of 50 takes 1.8 times as long."""

    id: ReviewId
    status: str
    version: int
    revision: int
    round: int
    intent: str
    agent_type: str
    agent_role: str
    phase: str
    plan: str | None
    task: str | None
    category: str | None
    priority: str
    project: str | None
    proposer_id: str | None
    parent_id: str | None
    has_diff: bool
    claimed_by: str | None
    verdict: str | None
    open_finding_count: int
    counter_patch_status: str | None
    needs_human: str | None
    created_at: Milliseconds
    updated_at: Milliseconds
    message_count: int
    last_message_at: Milliseconds | None
    last_message_preview: str | None


# Lists show the smallest rank first.
RANKS: dict[str, int] = {Priority.CRITICAL: 0, Priority.NORMAL: 1, Priority.LOW: 2}
# Where a page of a list ends: the priority's rank, the creation time, the id.
ListPosition = tuple[int, int, str]
# Where a page of the feed ends: the last update, the id.
FeedPosition = tuple[int, str]


def list_position(review: Review | ReviewSummary) -> ListPosition:
    return RANKS[review.priority], review.created_at, review.id


def feed_position(review: ReviewSummary) -> FeedPosition:
    return review.updated_at, review.id


class Reader(Protocol):
    """Reads of one snapshot."""

    def review(self, review_id: ReviewId) -> Review | None: ...

    def ids_with_prefix(self, prefix: str, limit: int) -> list[ReviewId]: ...

    def revision(self, review_id: ReviewId, number: int, *, with_diff: bool) -> Revision | None: ...

    def reviews(self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int) -> list[Review]: ...

    def summaries(self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int) -> list[ReviewSummary]:
        """Return the same reviews in short."""
        ...

    def expired_claims(self, now: Milliseconds, limit: int) -> list[Review]: ...

    def reservation_ended(self, *, after: Milliseconds, until: Milliseconds) -> bool:
        """Check whether a reservation ended between these two moments."""
        ...

    def events(self, *, review_id: ReviewId | None, after: int, limit: int) -> list[Event]: ...

    def pending_by_priority(self, scope: str = EVERYTHING) -> dict[str, int]:
        """Count the pending reviews of a project, or all of them."""
        ...

    def oldest_pending_at(self) -> Milliseconds | None: ...

    def last_event_at(self) -> Milliseconds | None: ...

    def messages(self, review_id: ReviewId, *, round_: int | None, after: int, limit: int) -> list[Message]: ...

    def findings(self, review_id: ReviewId) -> list[Finding]: ...

    def counter_patches(self, review_id: ReviewId) -> list[CounterPatch]: ...

    def open_counter_patch(self, review_id: ReviewId) -> CounterPatch | None: ...

    def counter_patch_of(self, review_id: ReviewId, revision: int) -> CounterPatch | None:
        """Find the newest one that was offered on this revision, in any state."""
        ...

    def recall(self, key: IdempotencyKey, now: Milliseconds) -> dict[str, Any] | None: ...

    def feed(self, wanted: ReviewFilter, *, after: FeedPosition | None, limit: int) -> list[ReviewSummary]:
        """Return the last updated first. Only status, category and project of the filter apply."""
        ...

    def totals(self, scope: str, *, most: int) -> Totals:
        """Return the statistics of a project, or of all, with at most `most` reviewers and pairs."""
        ...

    # Additional queries of the dashboard.

    def last_event_id(self) -> int: ...

    def events_before(self, *, review_id: ReviewId | None, before: int | None, limit: int) -> list[Event]:
        """Return the newest first."""
        ...

    def last_message(self, review_id: ReviewId) -> Message | None: ...

    # The pool's reviewers.

    def reviewer(self, reviewer_id: Identity) -> Reviewer | None: ...

    def reviewer_ids(self) -> list[Identity]: ...

    def running_reviewers(self) -> list[Reviewer]: ...

    def ended_reviewers(self, limit: int) -> list[Reviewer]:
        """Return the newest first."""
        ...

    def work_under_way(self) -> list[Work]: ...

    def work_on(self, review_id: ReviewId) -> list[Work]: ...

    def work_of(self, reviewer_id: Identity, limit: int) -> list[Work]:
        """Return the newest first."""
        ...

    def failure(self, review_id: ReviewId) -> Failure | None: ...

    def pending_for_pool(self, now: Milliseconds, *, at_most: int) -> int: ...

    def held_back(self, now: Milliseconds, limit: int) -> list[tuple[Failure, str | None]]:
        """Find pending reviews that the pool leaves alone after failures, and why a person was asked, if one was."""
        ...

    def spent_since(self, moment: Milliseconds) -> tuple[int, int]:
        """Return the number of starts and of tokens."""
        ...

    def reviewers_of_silent_brokers(self, before: Milliseconds) -> list[Identity]:
        """Find reviewers whose row says running, and whose broker has been silent since this moment."""
        ...

    def is_pool_paused(self) -> bool: ...

    # The gate: approvals, overrides and landed commits.

    def reviewed_change(self, review_id: ReviewId) -> ReviewedChange | None: ...

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]:
        """Find approved changes that change this object at this path."""
        ...

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]: ...

    def approved_and_never_landed(self, limit: int) -> list[ReviewedChange]: ...

    def overrides_valid_at(self, moment: Milliseconds, limit: int) -> list[GateOverride]: ...

    def gate_override(self, override_id: int) -> GateOverride | None: ...

    def latest_overrides(self, limit: int) -> list[GateOverride]: ...

    def landed_commit(self, folder: str, commit_id: str) -> LandedCommit | None: ...

    def landed_commits(self, limit: int) -> list[LandedCommit]: ...

    def landed_without_approval(self, limit: int) -> list[LandedCommit]: ...

    # Tokens.

    def token(self, token_hash: str) -> Token | None: ...

    def tokens(self, limit: int) -> list[Token]:
        """Return the newest first."""
        ...


T = TypeVar("T")


class Transaction(Reader, Protocol):
    """One command: reads and writes that happen together or not at all, with one `now`."""

    @property
    def now(self) -> Milliseconds: ...

    def lock_review(self, review_id: ReviewId) -> Review | None: ...

    def save(self, change: Change) -> int | None:
        """Save the review, its rows and its events together. Returns the id of the change's message."""
        ...

    def extend_claim(self, review: Review) -> None: ...

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
        """Return the newest first."""
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
        """Return the token of this name that was not revoked; it may have expired."""
        ...

    def save_token(self, token: Token) -> None: ...

    def revoke_token(self, token: Token, now: Milliseconds) -> None: ...

    def save_sign_in_link(self, link: SignInLink, now: Milliseconds) -> None:
        """Store the link, and remove links that have expired."""
        ...

    def take_sign_in_link(self, code_hash: str) -> SignInLink | None:
        """Remove and return the link: only one of several callers gets it. It may have expired."""
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
        """Return the id of this broker among those of the database; a restart does not change it."""
        ...

    @property
    def is_shared(self) -> bool:
        """Check whether other brokers may use the database too. Then the time is the database's."""
        ...

    def alone(self) -> AbstractAsyncContextManager[bool]:
        """Become the one broker that does the work of all brokers. False if another one is doing it now."""
        ...

    async def is_ready(self) -> bool: ...

    async def write(self, command: Callable[[Transaction], T]) -> T:
        """Run the command; return when it is on disk. Then the waiters are woken.

        The command may be run more than once, and only its last run is stored.
        """
        ...

    async def read(self, query: Callable[[Reader], T]) -> T:
        """Run the query off the event loop: for lists, pages, anything that grows."""
        ...

    async def archive(self, *, closed_before: Milliseconds, said_as: str, into: str) -> Archived:
        """Move the next few reviews that were closed before this moment into an archive file beside the database."""
        ...

    async def glance(self, query: Callable[[Reader], T]) -> T:
        """Run a query by primary key only, which is quick enough for the event loop."""
        ...


class OwnedStore(Store, Protocol):
    """A store as the program that opens it sees it."""

    # Each watcher sees every change inside its transaction.
    watchers: list[Watcher]

    def open(self) -> None:
        """Bring the schema up to date. Raises StartError."""
        ...

    async def start(self) -> None:
        """Begin, in the event loop, what runs beside the commands."""
        ...

    async def close(self) -> None:
        """Finish the commands that are under way."""
        ...
