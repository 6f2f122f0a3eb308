"""Reviews: their status, claims and verdicts, lists of them, and their events.

Results are plain dictionaries at run time: nothing is converted on the way to the wire.
"""

from typing import Any, NotRequired, TypedDict, cast

from gsd_review_broker.domain.model import Change, Event, Review, Revision
from gsd_review_broker.domain.rules.claims import AUTO_REJECTED
from gsd_review_broker.ports.store import ReviewSummary
from gsd_review_broker.ports.world import Offset
from gsd_review_broker.service.wire.content import (
    AffectedFileResult,
    FindingResult,
    OffsetResult,
    OfReview,
    OfRevision,
    affected_files,
    of_review,
    of_revision,
    offset_results,
)
from gsd_review_broker.service.wire.encoding import iso, moment, shortened

LIST_INTENT_CHARACTERS = 500


class ReviewStatus(OfRevision):
    claimed_by: str | None
    verdict: str | None
    verdict_reason: str | None
    open_finding_count: int
    counter_patch_status: str | None
    needs_human: str | None
    updated_at: str
    changed: bool
    # With an approval policy of more than one reviewer: who approved this content, and what is still missing.
    approved_by: NotRequired[list[str]]
    missing: NotRequired[list[str]]


class NothingNew(OfReview):
    """A wait that ran out: an answer, not an error."""

    changed: bool


class Claim(OfRevision):
    claimed_by: str | None
    claimed_at: str | None
    claim_generation: int
    claim_expires_at: str | None
    intent: str
    description: str | None
    category: str | None
    priority: str
    project: str | None
    affected_files: list[AffectedFileResult]
    has_diff: bool
    digest: str | None
    # Only where there are some.
    offsets: NotRequired[list[OffsetResult]]
    open_findings: list[FindingResult]
    claimed: NotRequired[bool]


class AutoRejected(OfReview):
    """The diff does not apply, so no reviewer has to read it."""

    auto_rejected: bool
    validation_error: str


class NotClaimed(TypedDict):
    claimed: bool


class VerdictResult(OfReview):
    verdict: str | None
    verdict_reason: str | None
    revision: int
    round: int
    claim_generation: int
    digest: str | None
    # What the approval policy still asks for, if this approval did not make the review approved.
    missing: NotRequired[list[str]]


class Released(OfReview):
    claim_generation: int


class Closed(OfReview):
    outcome: str


class ReviewRow(TypedDict):
    id: str
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
    created_at: str
    updated_at: str


class ReviewList(TypedDict):
    reviews: list[ReviewRow]
    next_cursor: str | None
    changed: NotRequired[bool]


class FeedRow(ReviewRow):
    message_count: int
    last_message_at: str | None
    last_message_preview: str | None


class ActivityFeed(TypedDict):
    reviews: list[FeedRow]
    next_cursor: str | None


class EventResult(TypedDict):
    id: int
    review_id: str | None
    event_type: str
    actor: str
    old_status: str | None
    new_status: str | None
    metadata: dict[str, Any]
    timestamp: str


class AuditLog(TypedDict):
    events: list[EventResult]
    next_cursor: int | None


class Timeline(TypedDict):
    review_id: str
    intent: str
    current_status: str
    category: str | None
    version: int
    events: list[EventResult]
    event_count: int
    next_cursor: int | None


def review_status(review: Review, *, changed: bool) -> ReviewStatus:
    return {
        **of_revision(review),
        "claimed_by": review.claimed_by,
        "verdict": review.verdict.value if review.verdict else None,
        "verdict_reason": review.verdict_reason,
        "open_finding_count": review.open_finding_count,
        "counter_patch_status": review.counter_patch_status.value if review.counter_patch_status else None,
        "needs_human": review.needs_human,
        "updated_at": iso(review.updated_at),
        "changed": changed,
    }


def nothing_new(review: Review) -> NothingNew:
    return {**of_review(review), "changed": False}


def claim_result(
    review: Review, revision: Revision, open_findings: list[FindingResult], known: tuple[Offset, ...] = ()
) -> Claim:
    result: Claim = {
        **of_revision(review),
        "claimed_by": review.claimed_by,
        "claimed_at": moment(review.claimed_at),
        "claim_generation": review.claim_generation,
        "claim_expires_at": moment(review.claim_expires_at),
        "intent": review.intent,
        "description": revision.description,
        "category": review.category.value if review.category else None,
        "priority": review.priority.value,
        "project": review.project,
        "affected_files": affected_files(revision.affected_files),
        "has_diff": review.has_diff,
        "digest": review.digest,
        "open_findings": open_findings,
    }
    if known:
        result["offsets"] = offset_results(known)
    return result


def auto_rejected(review: Review) -> AutoRejected:
    return {
        **of_review(review),
        "auto_rejected": True,
        "validation_error": (review.verdict_reason or "").removeprefix(AUTO_REJECTED),
    }


def verdict_result(change: Change, given: str) -> VerdictResult:
    review = change.review
    result: VerdictResult = {
        **of_review(review),
        "verdict": given,
        "verdict_reason": review.verdict_reason,
        "revision": review.revision,
        "round": review.round,
        "claim_generation": review.claim_generation,
        "digest": review.digest,
    }
    lacking = [event.metadata["missing"] for event in change.events if "missing" in event.metadata]
    if lacking:
        result["missing"] = lacking[0]
    return result


def released(review: Review) -> Released:
    return {**of_review(review), "claim_generation": review.claim_generation}


def closed(review: Review) -> Closed:
    return {**of_review(review), "outcome": review.outcome.value if review.outcome else ""}


def feed_row(review: ReviewSummary) -> FeedRow:
    """Return the summary as it is, but for its moments and a long intent."""
    row = review._asdict() | {
        "intent": shortened(review.intent, LIST_INTENT_CHARACTERS),
        "has_diff": bool(review.has_diff),
        "created_at": iso(review.created_at),
        "updated_at": iso(review.updated_at),
        "last_message_at": moment(review.last_message_at),
    }
    return cast("FeedRow", row)


def review_row(review: ReviewSummary) -> ReviewRow:
    """Return the row without the messages, which only the feed shows."""
    row: dict[str, Any] = {**feed_row(review)}
    for name in ("message_count", "last_message_at", "last_message_preview"):
        del row[name]
    return cast("ReviewRow", row)


def event_result(event: Event) -> EventResult:
    return {
        "id": event.id,
        "review_id": event.review_id,
        "event_type": event.event_type.value,
        "actor": event.actor,
        "old_status": event.old_status.value if event.old_status else None,
        "new_status": event.new_status.value if event.new_status else None,
        "metadata": event.metadata,
        "timestamp": iso(event.timestamp),
    }
