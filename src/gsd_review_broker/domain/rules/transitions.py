"""The state table, and the only place where a review moves along it."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gsd_review_broker.domain.model import Change, Identity, Milliseconds, NewEvent, Review
from gsd_review_broker.domain.words import CounterPatchStatus, EventType, Status
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep


class Command(StrEnum):
    """The commands on a review; the value is the name a caller knows."""

    CLAIM = "claim_review"
    AUTO_REJECT = "(the broker rejects a diff that does not apply)"
    SEND_MESSAGE = "add_message"
    APPROVE = "submit_verdict approved"
    REQUEST_CHANGES = "submit_verdict changes_requested"
    COMMENT = "submit_verdict comment"
    RELEASE = "release_claim"
    RECLAIM = "(the broker reclaims at the deadline)"
    TAKE_OVER = "(a person takes over)"
    REVISE = "create_review with review_id"
    ACCEPT_COUNTER_PATCH = "accept_counter_patch"
    REJECT_COUNTER_PATCH = "reject_counter_patch"
    RESOLVE_FINDING = "resolve_finding"
    CLOSE = "close_review"


@dataclass(frozen=True, slots=True)
class Step:
    """From which states a command is possible, and where it leads (None: the state stays)."""

    sources: frozenset[Status]
    target: Status | None


def _step(*sources: Status, to: Status | None = None) -> Step:
    return Step(frozenset(sources), to)


_PENDING, _CLAIMED, _IN_REVIEW = Status.PENDING, Status.CLAIMED, Status.IN_REVIEW
_APPROVED, _CHANGES_REQUESTED, _CLOSED = Status.APPROVED, Status.CHANGES_REQUESTED, Status.CLOSED
_UNDER_REVIEW = (_CLAIMED, _IN_REVIEW)

STEPS: dict[Command, Step] = {
    Command.CLAIM: _step(_PENDING, to=_CLAIMED),
    Command.AUTO_REJECT: _step(_PENDING, to=_CHANGES_REQUESTED),
    # The first message after the claim leads to in_review; later ones change nothing.
    Command.SEND_MESSAGE: _step(*_UNDER_REVIEW, _APPROVED, _CHANGES_REQUESTED),
    Command.APPROVE: _step(*_UNDER_REVIEW, to=_APPROVED),
    Command.REQUEST_CHANGES: _step(*_UNDER_REVIEW, to=_CHANGES_REQUESTED),
    Command.COMMENT: _step(*_UNDER_REVIEW),
    Command.RELEASE: _step(*_UNDER_REVIEW, to=_PENDING),
    Command.RECLAIM: _step(*_UNDER_REVIEW, to=_PENDING),
    Command.TAKE_OVER: _step(*_UNDER_REVIEW, to=_CLAIMED),
    Command.REVISE: _step(_CHANGES_REQUESTED, to=_PENDING),
    Command.ACCEPT_COUNTER_PATCH: _step(*_UNDER_REVIEW, _CHANGES_REQUESTED, to=_PENDING),
    Command.REJECT_COUNTER_PATCH: _step(*_UNDER_REVIEW, _CHANGES_REQUESTED),
    Command.RESOLVE_FINDING: _step(_PENDING, *_UNDER_REVIEW, _APPROVED, _CHANGES_REQUESTED),
    Command.CLOSE: _step(_PENDING, *_UNDER_REVIEW, _APPROVED, _CHANGES_REQUESTED, to=_CLOSED),
}

# Each event that changes a review records these fields; replaying them gives the stored state.
FACTS = (
    "revision",
    "round",
    "claim_generation",
    "claimed_by",
    "verdict",
    "digest",
    "intent",
    "author",
    "has_diff",
    "outcome",
    "open_finding_count",
    "counter_patch_status",
    "needs_human",
)


_NEED_COUNTER_PATCH = {Command.ACCEPT_COUNTER_PATCH, Command.REJECT_COUNTER_PATCH}


def possible_now(status: Status) -> list[str]:
    return [command.value for command, step in STEPS.items() if status in step.sources]


def invalid_transition(review: Review, wanted: Status | None, because: str = "") -> BrokerError:
    # "From closed to closed" would say nothing.
    is_a_move = wanted not in {None, review.status}
    where = f"cannot go from {review.status} to {wanted}" if is_a_move else f"not possible while {review.status}"
    closed_off: set[Command] = (
        set() if review.counter_patch_status is CounterPatchStatus.PENDING else _NEED_COUNTER_PATCH
    )
    possible = [name for name in possible_now(review.status) if not name.startswith("(") and name not in closed_off]
    after = NextStep(Next.POSSIBLE_NOW, commands=tuple(possible))
    return BrokerError(
        Code.INVALID_TRANSITION,
        f"review {review.id} is {review.status}: {where}" + (f" ({because})" if because else ""),
        after if possible else "A closed review is final: create another.",
    )


def require(review: Review, command: Command) -> Status:
    """The state that the command leads to from here. Raises if the table does not allow it."""
    step = STEPS[command]
    if review.status not in step.sources:
        raise invalid_transition(review, step.target)
    return step.target or review.status


def record(
    review: Review,
    event_type: EventType,
    *,
    actor: Identity,
    now: Milliseconds,
    metadata: dict[str, Any] | None = None,
    **fields: Any,
) -> Change:
    """The review with these fields changed, and the event that records it."""
    fields |= _milestones(review, event_type, fields, now)
    after = replace(review, version=review.version + 1, updated_at=now, **fields)
    changed = {name: value for name in FACTS if (value := getattr(after, name)) != getattr(review, name)}
    event = NewEvent(
        event_type=event_type,
        actor=actor,
        review_id=review.id,
        old_status=review.status,
        new_status=after.status,
        timestamp=now,
        metadata={**changed, **(metadata or {})},
    )
    return Change(review=after, events=(event,))


def _milestones(review: Review, event_type: EventType, fields: dict[str, Any], now: Milliseconds) -> dict[str, Any]:
    """When it entered its state, and the first and last time of what happened."""
    reached: dict[str, Any] = {}
    if fields.get("status", review.status) is not review.status:
        reached["entered_at"] = now
    if event_type is EventType.REVIEW_CLAIMED and review.first_claimed_at is None:
        reached["first_claimed_at"] = now
    # An automatic rejection is not a verdict that somebody gave.
    if event_type is EventType.VERDICT_SUBMITTED:
        reached["last_verdict"] = fields["verdict"]
        if review.first_verdict_at is None:
            reached["first_verdict_at"] = now
    return reached


def followed_by(first: Change, second: Change) -> Change:
    """Two steps in one transaction; the second starts where the first ends. At most one of them adds rows."""
    return Change(
        review=second.review,
        events=first.events + second.events,
        revision=second.revision or first.revision,
        message=second.message or first.message,
        counter_patch_settled=second.counter_patch_settled or first.counter_patch_settled,
        counter_patch=second.counter_patch or first.counter_patch,
        findings=second.findings or first.findings,
        refusal=second.refusal or first.refusal,
    )


def cleared_claim(review: Review) -> dict[str, Any]:
    """The review without its claimant. The generation grows, so that a late verdict is recognized as stale."""
    return {
        "claimed_by": None,
        "claimed_at": None,
        "claim_expires_at": None,
        "claim_generation": review.claim_generation + (review.claimed_by is not None),
    }
