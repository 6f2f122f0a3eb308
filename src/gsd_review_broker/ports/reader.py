"""Reads of one snapshot of the store."""

from typing import Any, Protocol

from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.model import (
    CounterPatch,
    Event,
    Finding,
    Identity,
    Message,
    Milliseconds,
    Review,
    ReviewId,
    Revision,
)
from gsd_review_broker.domain.pool import Failure, Reviewer, Work
from gsd_review_broker.domain.tally import EVERYTHING, Totals
from gsd_review_broker.domain.tokens import Token
from gsd_review_broker.ports.idempotency import IdempotencyKey
from gsd_review_broker.ports.lists import FeedPosition, ListPosition, ReviewFilter, ReviewSummary


class ReviewerReader(Protocol):
    """Records of the pool's reviewers."""

    def reviewer(self, reviewer_id: Identity) -> Reviewer | None: ...

    def reviewer_ids(self) -> list[Identity]: ...

    def running_reviewers(self) -> list[Reviewer]: ...

    def ended_reviewers(self, limit: int) -> list[Reviewer]:
        """The last ones first."""
        ...

    def work_under_way(self) -> list[Work]: ...

    def work_on(self, review_id: ReviewId) -> list[Work]: ...

    def work_of(self, reviewer_id: Identity, limit: int) -> list[Work]:
        """The last ones first."""
        ...

    def failure(self, review_id: ReviewId) -> Failure | None: ...

    def pending_for_pool(self, now: Milliseconds, *, at_most: int) -> int: ...

    def held_back(self, now: Milliseconds, limit: int) -> list[tuple[Failure, str | None]]:
        """Pending reviews that the pool leaves alone after failures, each with why a person was asked, if one was."""
        ...

    def spent_since(self, moment: Milliseconds) -> tuple[int, int]:
        """Starts and tokens."""
        ...

    def reviewers_of_silent_brokers(self, before: Milliseconds) -> list[Identity]:
        """Reviewers that still count as running, and whose broker was last heard of before this moment."""
        ...

    def is_pool_paused(self) -> bool: ...


class GateReader(Protocol):
    """What the gate knows of approvals, overrides and landed commits."""

    def reviewed_change(self, review_id: ReviewId) -> ReviewedChange | None: ...

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]:
        """Approved changes that change this object at this path."""
        ...

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]: ...

    def approved_and_never_landed(self, limit: int) -> list[ReviewedChange]: ...

    def overrides_valid_at(self, moment: Milliseconds, limit: int) -> list[GateOverride]: ...

    def gate_override(self, override_id: int) -> GateOverride | None: ...

    def latest_overrides(self, limit: int) -> list[GateOverride]: ...

    def landed_commit(self, folder: str, commit_id: str) -> LandedCommit | None: ...

    def landed_commits(self, limit: int) -> list[LandedCommit]: ...

    def landed_without_approval(self, limit: int) -> list[LandedCommit]: ...


class TokenReader(Protocol):
    def token(self, token_hash: str) -> Token | None: ...

    def tokens(self, limit: int) -> list[Token]:
        """The newest first."""
        ...


class Reader(ReviewerReader, GateReader, TokenReader, Protocol):
    """Reads of one snapshot."""

    def review(self, review_id: ReviewId) -> Review | None: ...

    def ids_with_prefix(self, prefix: str, limit: int) -> list[ReviewId]: ...

    def revision(self, review_id: ReviewId, number: int, *, with_diff: bool) -> Revision | None: ...

    def reviews(self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int) -> list[Review]: ...

    def summaries(self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int) -> list[ReviewSummary]:
        """The same reviews, and of each what a page shows."""
        ...

    def expired_claims(self, now: Milliseconds, limit: int) -> list[Review]: ...

    def reservation_ended(self, *, after: Milliseconds, until: Milliseconds) -> bool:
        """Did the reservation of a review end between these two moments?"""
        ...

    def events(self, *, review_id: ReviewId | None, after: int, limit: int) -> list[Event]: ...

    def pending_by_priority(self, scope: str = EVERYTHING) -> dict[str, int]:
        """In a project, or everywhere."""
        ...

    def oldest_pending_at(self) -> Milliseconds | None: ...

    def last_event_at(self) -> Milliseconds | None: ...

    def messages(self, review_id: ReviewId, *, round_: int | None, after: int, limit: int) -> list[Message]: ...

    def findings(self, review_id: ReviewId) -> list[Finding]: ...

    def counter_patches(self, review_id: ReviewId) -> list[CounterPatch]: ...

    def open_counter_patch(self, review_id: ReviewId) -> CounterPatch | None: ...

    def counter_patch_of(self, review_id: ReviewId, revision: int) -> CounterPatch | None:
        """The newest one that was offered on this revision, whatever became of it."""
        ...

    def recall(self, key: IdempotencyKey, now: Milliseconds) -> dict[str, Any] | None: ...

    def feed(self, wanted: ReviewFilter, *, after: FeedPosition | None, limit: int) -> list[ReviewSummary]:
        """Last updated first. Only status, category and project of the filter are used."""
        ...

    def totals(self, scope: str, *, most: int) -> Totals:
        """The statistics of a project, or of everything; at most `most` reviewers and pairs."""
        ...

    # Additional queries of the dashboard.

    def last_event_id(self) -> int: ...

    def events_before(self, *, review_id: ReviewId | None, before: int | None, limit: int) -> list[Event]:
        """Newest first."""
        ...

    def last_message(self, review_id: ReviewId) -> Message | None: ...
