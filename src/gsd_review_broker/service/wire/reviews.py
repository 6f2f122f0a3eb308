"""What each call gives. Plain dictionaries at run time: nothing is converted on the way to the wire."""

from typing import Any, NotRequired, TypedDict

from gsd_review_broker.service.wire.pool import ReviewerRow


class AffectedFileResult(TypedDict):
    path: str
    operation: str
    added: int
    removed: int
    old_path: str | None
    binary: bool
    mode_change: bool
    new_mode: NotRequired[str]


class FindingResult(TypedDict):
    finding_id: str
    path: str | None
    line_start: int | None
    line_end: int | None
    side: str
    severity: str
    title: str
    body: str
    suggestion: str | None
    confidence: float | None
    anchor: str
    disposition: str
    note: str | None
    raised_by: str
    round: int
    times_raised: int


class ResolvedFinding(FindingResult):
    review_id: str
    status: str
    version: int


class MessageResult(TypedDict):
    message_id: int
    round: int
    sender_role: str
    sender_id: str
    body: str
    path: str | None
    line: int | None
    in_reply_to: int | None
    metadata: dict[str, Any] | None
    created_at: str


class SentMessage(TypedDict):
    review_id: str
    status: str
    version: int
    message_id: int
    round: int


class CounterPatchResult(TypedDict):
    counter_patch_id: int
    revision: int
    round: int
    offered_by: str
    status: str
    reason: str | None
    paths: list[str]
    # Null where it did not fit into the answer.
    diff: str | None
    created_at: str


class Discussion(TypedDict):
    review_id: str
    status: str
    version: int
    round: int
    messages: list[MessageResult]
    findings: list[FindingResult]
    findings_left_out: int
    counter_patches: list[CounterPatchResult]
    next_cursor: str | None
    changed: bool


class CreatedReview(TypedDict):
    review_id: str
    status: str
    version: int
    revision: int
    round: int
    priority: str
    affected_files: list[AffectedFileResult]


class ReviewStatus(TypedDict):
    review_id: str
    status: str
    version: int
    revision: int
    round: int
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


class NothingNew(TypedDict):
    """A wait that ran out: an answer, not an error."""

    review_id: str
    status: str
    version: int
    changed: bool


class OffsetResult(TypedDict):
    """A hunk (counted from 1) of an older diff that applies so many lines below its own line; above, if negative."""

    path: str
    hunk: int
    offset: int


class Claim(TypedDict):
    review_id: str
    status: str
    version: int
    revision: int
    round: int
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


class AutoRejected(TypedDict):
    """The diff does not apply; nobody has to read it."""

    review_id: str
    status: str
    version: int
    auto_rejected: bool
    validation_error: str


class NotClaimed(TypedDict):
    claimed: bool


class Proposal(TypedDict):
    review_id: str
    status: str
    version: int
    revision: int
    round: int
    intent: str
    description: str | None
    agent_type: str
    agent_role: str
    phase: str
    plan: str | None
    task: str | None
    category: str | None
    priority: str
    project: str | None
    workspace: str | None
    proposer_id: str | None
    parent_id: str | None
    affected_files: list[AffectedFileResult]
    has_diff: bool
    skip_diff_validation: bool
    digest: str | None
    # Only where there are some.
    offsets: NotRequired[list[OffsetResult]]
    since_revision: NotRequired[int]
    diff: str | None
    next_cursor: str | None
    counter_patch: str | None
    counter_patch_next_cursor: str | None
    counter_patch_affected_files: list[AffectedFileResult] | None
    counter_patch_status: str | None


class ProposalPage(TypedDict):
    """What follows the first page of a large diff."""

    review_id: str
    status: str
    version: int
    revision: int
    since_revision: NotRequired[int]
    diff: str
    next_cursor: str | None


class VerdictResult(TypedDict):
    review_id: str
    status: str
    version: int
    verdict: str | None
    verdict_reason: str | None
    revision: int
    round: int
    claim_generation: int
    digest: str | None
    # What the approval policy still asks for, if this approval did not make the review approved.
    missing: NotRequired[list[str]]


class Released(TypedDict):
    review_id: str
    status: str
    version: int
    claim_generation: int


class Closed(TypedDict):
    review_id: str
    status: str
    version: int
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


class BrokerStatus(TypedDict):
    version: str
    serves: str
    uptime_seconds: int
    queue: dict[str, int]
    oldest_pending_at: str | None
    last_activity_at: str | None
    waiting: int
    reviewers: list[ReviewerRow]


class FeedRow(ReviewRow):
    message_count: int
    last_message_at: str | None
    last_message_preview: str | None


class ActivityFeed(TypedDict):
    reviews: list[FeedRow]
    next_cursor: str | None


class Pruned(TypedDict):
    closed_before: str
    archive: str
    reviews: int
    more: bool
