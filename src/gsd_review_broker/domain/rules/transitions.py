"""The state table, the only place where a review moves along it, and what its events record."""

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gsd_review_broker.domain.model import (
    AffectedFile,
    Change,
    CounterPatch,
    Identity,
    Message,
    Milliseconds,
    NewEvent,
    Policy,
    Review,
    Revision,
)
from gsd_review_broker.domain.text import BROKER, canonical, compact, is_human
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
class Transition:
    """From which states a command is possible, and where it leads (None: the state stays)."""

    sources: frozenset[Status]
    target: Status | None


def _transition(*sources: Status, to: Status | None = None) -> Transition:
    return Transition(frozenset(sources), to)


_PENDING, _CLAIMED, _IN_REVIEW = Status.PENDING, Status.CLAIMED, Status.IN_REVIEW
_APPROVED, _CHANGES_REQUESTED, _CLOSED = Status.APPROVED, Status.CHANGES_REQUESTED, Status.CLOSED
_UNDER_REVIEW = (_CLAIMED, _IN_REVIEW)

STEPS: dict[Command, Transition] = {
    Command.CLAIM: _transition(_PENDING, to=_CLAIMED),
    Command.AUTO_REJECT: _transition(_PENDING, to=_CHANGES_REQUESTED),
    # The first message after the claim leads to in_review; later ones change nothing.
    Command.SEND_MESSAGE: _transition(*_UNDER_REVIEW, _APPROVED, _CHANGES_REQUESTED),
    Command.APPROVE: _transition(*_UNDER_REVIEW, to=_APPROVED),
    Command.REQUEST_CHANGES: _transition(*_UNDER_REVIEW, to=_CHANGES_REQUESTED),
    Command.COMMENT: _transition(*_UNDER_REVIEW),
    Command.RELEASE: _transition(*_UNDER_REVIEW, to=_PENDING),
    Command.RECLAIM: _transition(*_UNDER_REVIEW, to=_PENDING),
    Command.TAKE_OVER: _transition(*_UNDER_REVIEW, to=_CLAIMED),
    Command.REVISE: _transition(_CHANGES_REQUESTED, to=_PENDING),
    Command.ACCEPT_COUNTER_PATCH: _transition(*_UNDER_REVIEW, _CHANGES_REQUESTED, to=_PENDING),
    Command.REJECT_COUNTER_PATCH: _transition(*_UNDER_REVIEW, _CHANGES_REQUESTED),
    Command.RESOLVE_FINDING: _transition(_PENDING, *_UNDER_REVIEW, _APPROVED, _CHANGES_REQUESTED),
    Command.CLOSE: _transition(_PENDING, *_UNDER_REVIEW, _APPROVED, _CHANGES_REQUESTED, to=_CLOSED),
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
    has_offer = review.counter_patch_status is CounterPatchStatus.PENDING
    named = [name for name in possible_now(review.status) if not name.startswith("(")]
    possible = [name for name in named if has_offer or name not in _NEED_COUNTER_PATCH]
    after = NextStep(Next.POSSIBLE_NOW, commands=tuple(possible))
    return BrokerError(
        Code.INVALID_TRANSITION,
        f"review {review.id} is {review.status}: {where}" + (f" ({because})" if because else ""),
        after if possible else "A closed review is final: create another.",
    )


def require(review: Review, command: Command) -> Status:
    """Return the state that the command leads to. Raises if the table does not allow the command."""
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
    """Change these fields of the review, and record the event with them."""
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
    """Note when the review entered its state, and the first and last times of what happened."""
    reached: dict[str, Any] = {}
    if fields.get("status", review.status) is not review.status:
        reached["entered_at"] = now
    if event_type is EventType.REVIEW_CLAIMED and review.first_claimed_at is None:
        reached["first_claimed_at"] = now
    # An automatic rejection is not a reviewer's verdict.
    if event_type is EventType.VERDICT_SUBMITTED:
        reached["last_verdict"] = fields["verdict"]
        if review.first_verdict_at is None:
            reached["first_verdict_at"] = now
    return reached


def followed_by(first: Change, second: Change) -> Change:
    """Join two steps; the second starts where the first ends. At most one of them adds rows."""
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
    """Clear the claimant. The generation grows, so that a late verdict is recognized as stale."""
    return {
        "claimed_by": None,
        "claimed_at": None,
        "claim_expires_at": None,
        "claim_generation": review.claim_generation + (review.claimed_by is not None),
    }


# Hashes of content that is too large for an event. They reveal a change of the stored rows.


def hash_of_revision(revision: Revision) -> str:
    fields = [
        revision.number,
        revision.intent,
        revision.description,
        int(revision.skip_diff_validation),
        files_text(revision.affected_files),
        revision.author,
        revision.written_by,
    ]
    return _hash(fields, revision.diff)


def hash_of_message(message: Message) -> str:
    fields = [
        message.round,
        message.sender_role,
        message.sender,
        message.body,
        message.path,
        message.line,
        message.in_reply_to,
        message.metadata,
    ]
    return _hash(fields, None)


def hash_of_counter_patch(patch: CounterPatch) -> str:
    return _hash([patch.revision, patch.round, patch.offered_by, files_text(patch.affected_files)], patch.diff)


def files_text(files: tuple[AffectedFile, ...]) -> str:
    """Write the files in the form that is stored."""
    rows = [(f.path, f.operation, f.added, f.removed, f.old_path, f.binary, f.old_mode, f.new_mode) for f in files]
    return compact(rows)


def _hash(fields: list[Any], diff: bytes | None) -> str:
    # A lone surrogate in a caller's text must not prevent hashing.
    whole = hashlib.sha256(canonical(fields).encode("utf-8", "surrogatepass"))
    if diff is not None:
        whole.update(b"\0")
        whole.update(diff)
    return whole.hexdigest()


# When the agents do not converge, a person is asked. Agents may go on meanwhile.

# The same finding raised this often means that the two sides do not agree on it.
REPEATS_THAT_NEED_A_PERSON = 3


def call_human_if_stuck(change: Change, policy: Policy, now: Milliseconds) -> Change:
    """Call a person from max_rounds on, or when a finding came back a third time."""
    review = change.review
    if review.needs_human is not None:
        return change
    repeated = [f for f in change.findings if f.times_raised >= REPEATS_THAT_NEED_A_PERSON]
    if repeated:
        reason = f"finding {repeated[0].id} was raised {repeated[0].times_raised} times: {repeated[0].title}"
    elif review.round >= policy.max_rounds:
        reason = f"round {review.round} of at most {policy.max_rounds} without an approval"
    else:
        return change
    return followed_by(change, call_human(review, reason=reason, now=now))


def call_human(review: Review, *, reason: str, now: Milliseconds) -> Change:
    """Call a person because the pool failed too often to get a verdict."""
    return record(
        review, EventType.HUMAN_REQUESTED, actor=BROKER, now=now, metadata={"reason": reason}, needs_human=reason
    )


def clear_human(change: Change, *, actor: Identity, now: Milliseconds) -> Change:
    """Withdraw the call for a person if a person gave this verdict or message."""
    answered = no_human_needed(change.review, actor=actor, now=now) if is_human(actor) else None
    return followed_by(change, answered) if answered else change


def no_human_needed(review: Review, *, actor: Identity, now: Milliseconds) -> Change | None:
    """Withdraw the call for a person. None if there was no call."""
    if review.needs_human is None:
        return None
    return record(review, EventType.HUMAN_CLEARED, actor=actor, now=now, metadata={"reason": None}, needs_human=None)


def record_landed(review: Review, *, metadata: dict[str, Any], now: Milliseconds) -> Change:
    """Record that a commit with the review's content is on a guarded branch. No state changes."""
    return record(review, EventType.COMMIT_LANDED, actor=BROKER, now=now, metadata=metadata)
