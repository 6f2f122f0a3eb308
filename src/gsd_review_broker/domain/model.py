"""The words of the product: a review, its revisions, claims, verdicts, findings, messages and events.

Times are milliseconds since 1970, UTC; they become ISO 8601 where they leave the broker.
"""

import secrets
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, NewType, cast

from gsd_review_broker.domain.text import Identity
from gsd_review_broker.domain.words import (
    CLAIM_IS_LIVE,
    Anchor,
    Category,
    CounterPatchStatus,
    Disposition,
    EventType,
    Fence,
    Operation,
    Outcome,
    Priority,
    Role,
    Severity,
    Side,
    Status,
    Verdict,
)
from gsd_review_broker.errors import BrokerError

ReviewId = NewType("ReviewId", str)
Milliseconds = NewType("Milliseconds", int)


@dataclass(frozen=True, kw_only=True, slots=True)
class AffectedFile:
    path: str
    operation: Operation
    added: int
    removed: int
    old_path: str | None = None
    binary: bool = False
    old_mode: str | None = None
    new_mode: str | None = None

    @property
    def mode_change(self) -> bool:
        return self.old_mode is not None and self.new_mode is not None and self.old_mode != self.new_mode


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """The content of a proposal before it has a number. A field that is added here reaches every revision."""

    intent: str
    description: str | None
    diff: bytes | None
    skip_diff_validation: bool
    affected_files: tuple[AffectedFile, ...]
    author: Identity
    written_by: Identity


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision(Draft):
    """One version of the proposal's content. It is never changed once it is written."""

    review_id: ReviewId
    number: int
    created_at: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a proposal comes from: what its creation fixes.

    A field that is added here reaches the tool, the rule, the review, its row and its first event. Tests name the few
    other places that have to follow.
    """

    agent_type: str
    agent_role: Role
    phase: str
    plan: str | None = None
    task: str | None = None
    category: Category | None = None
    project: str | None = None
    workspace: str | None = None
    proposer_id: Identity | None = None
    parent_id: ReviewId | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Review(Origin):
    id: ReviewId
    status: Status
    version: int
    revision: int
    round: int
    claim_generation: int
    priority: Priority
    created_at: Milliseconds
    # From the newest revision.
    intent: str
    has_diff: bool
    author: Identity
    digest: str | None
    # The claim, the verdict and the end.
    claimed_by: Identity | None = None
    claimed_at: Milliseconds | None = None
    claim_expires_at: Milliseconds | None = None
    reserved_for: Identity | None = None
    reserved_until: Milliseconds | None = None
    verdict: Verdict | None = None
    verdict_reason: str | None = None
    outcome: Outcome | None = None
    open_finding_count: int = 0
    counter_patch_status: CounterPatchStatus | None = None
    needs_human: str | None = None
    updated_at: Milliseconds
    closed_at: Milliseconds | None = None
    # Progress, for statistics: when it entered its state, and the first and last times of what happened to it.
    entered_at: Milliseconds
    first_claimed_at: Milliseconds | None = None
    first_verdict_at: Milliseconds | None = None
    last_verdict: Verdict | None = None
    message_count: int = 0
    last_message_at: Milliseconds | None = None
    last_message_preview: str | None = None

    @property
    def proposer(self) -> Identity:
        return self.proposer_id or Identity(self.agent_type)

    @property
    def is_claim_live(self) -> bool:
        """Check that a reviewer is judging it now: it is claimed and has no verdict yet."""
        return self.status in CLAIM_IS_LIVE


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """Append-only: what one side said to the other."""

    id: int | None = None
    review_id: ReviewId
    round: int
    sender_role: Role
    sender: Identity
    body: str
    path: str | None
    line: int | None
    in_reply_to: int | None
    metadata: dict[str, Any] | None
    created_at: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterPatch:
    """A diff that a reviewer offers instead. If there are several, the newest is the open one."""

    id: int | None = None
    review_id: ReviewId
    revision: int
    round: int
    diff: bytes
    affected_files: tuple[AffectedFile, ...]
    offered_by: Identity
    status: CounterPatchStatus
    reason: str | None
    created_at: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One inline remark. Its id stays over all revisions; its place follows the lines it is about."""

    id: str
    review_id: ReviewId
    # The order in which reviewers gave them, from 1.
    position: int
    raised_by: Identity
    raised_in_round: int
    raised_at_revision: int
    times_raised: int
    path: str | None
    line_start: int | None
    line_end: int | None
    side: Side
    severity: Severity
    title: str
    body: str
    suggestion: str | None
    confidence: float | None
    anchor: Anchor
    # The text of the lines it is about; it is used to find them in the next revision.
    anchor_text: str | None
    disposition: Disposition
    note: str | None
    created_at: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEvent:
    """An event before the store numbers and chains it."""

    event_type: EventType
    actor: Identity
    review_id: ReviewId | None
    old_status: Status | None
    new_status: Status | None
    timestamp: Milliseconds
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Event(NewEvent):
    id: int
    previous_hash: str
    hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A review's next state, and the events that record it. Neither can be stored without the other."""

    review: Review
    events: tuple[NewEvent, ...]
    revision: Revision | None = None
    message: Message | None = None
    # What this change does to the open counter-patch, before a new one is offered.
    counter_patch_settled: tuple[CounterPatchStatus, str | None] | None = None
    counter_patch: CounterPatch | None = None
    findings: tuple[Finding, ...] = ()
    # Some refusals are recorded: the events are stored, then this is raised.
    refusal: BrokerError | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """In bytes of UTF-8, or as a number of items. Anything over a limit is refused with too_large."""

    body: int
    diff: int
    diff_files: int
    unpacked: int
    text: int
    intent: int
    # Not a setting.
    name: int = 256
    findings: int
    revisions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalPolicy:
    """What makes a review approved."""

    required: int
    # The approvals come from different vendors' programs, or from people.
    distinct_vendors: bool
    # In gitignore syntax: a change of such a file needs a person's approval too.
    human_paths: tuple[str, ...]

    @property
    def is_one_reviewer(self) -> bool:
        """Check that one approval by any reviewer is enough."""
        return self.required == 1 and not self.human_paths


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How reviews are handled, from the configuration, which has the defaults."""

    # In milliseconds.
    claim_timeout: int
    max_rounds: int
    fence: Fence
    limits: Limits
    approvals: ApprovalPolicy


def new_review_id() -> ReviewId:
    """Make 64 random bits: short enough for a prompt. No time is in front, so that short prefixes are distinct."""
    return ReviewId(secrets.token_hex(8))


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """List the fields of a dataclass. Inherited ones come first."""
    return tuple(one.name for one in fields(kind))


def values_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name. Unlike asdict, it does not convert the values."""
    return {name: getattr(value, name) for name in field_names(cast("type[Any]", type(value)))}
