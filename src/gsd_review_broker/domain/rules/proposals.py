"""The proposer's side: creating, revising, closing."""

from dataclasses import replace

from gsd_review_broker.domain.model import (
    Change,
    Finding,
    Identity,
    Milliseconds,
    NewEvent,
    Origin,
    Policy,
    Review,
    Revision,
    field_names,
    values_of,
)
from gsd_review_broker.domain.rules.transitions import (
    FACTS,
    Command,
    call_human_if_stuck,
    cleared_claim,
    followed_by,
    hash_of_revision,
    no_human_needed,
    record,
    require,
)
from gsd_review_broker.domain.text import is_human, same_identity
from gsd_review_broker.domain.words import CounterPatchStatus, EventType, Outcome, Priority, Role, Status
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep

RESERVATION_MILLISECONDS = 60_000
# A path on this machine: it is not for all observers.
NOT_IN_EVENTS = frozenset({"workspace"})
# What creation fixes and the first event records.
FIXED = ("priority", *(name for name in field_names(Origin) if name not in NOT_IN_EVENTS))


def priority_of(agent_type: str, phase: str) -> Priority:
    if "planner" in agent_type.lower():
        return Priority.CRITICAL
    return Priority.LOW if "verify" in phase.lower() else Priority.NORMAL


def create(*, origin: Origin, revision: Revision, now: Milliseconds) -> Change:
    review = Review(
        **values_of(origin),
        id=revision.review_id,
        status=Status.PENDING,
        version=1,
        revision=revision.number,
        round=1,
        claim_generation=0,
        priority=priority_of(origin.agent_type, origin.phase),
        created_at=now,
        intent=revision.intent,
        has_diff=revision.diff is not None,
        author=revision.author,
        digest=None,
        updated_at=now,
        entered_at=now,
    )
    return Change(review=review, events=(_creation(review, revision),), revision=revision)


def _creation(review: Review, revision: Revision) -> NewEvent:
    """Record everything that a replay starts from."""
    return NewEvent(
        event_type=EventType.REVIEW_CREATED,
        actor=review.author,
        review_id=review.id,
        old_status=None,
        new_status=review.status,
        timestamp=review.created_at,
        metadata={
            **{name: getattr(review, name) for name in (*FACTS, *FIXED)},
            "content_hash": hash_of_revision(revision),
        },
    )


def require_proposer(review: Review, caller: Identity | None, *, is_administrator: bool = False) -> Identity:
    """Return the identity that acts for the proposer. For a review with a proposer_id, that is the proposer itself,
    a person or an administrator."""
    if review.proposer_id is None:
        return caller or review.proposer
    may_act_for_others = caller is not None and (is_administrator or is_human(caller))
    if caller is not None and (may_act_for_others or same_identity(caller, review.proposer_id)):
        return caller
    detail = f"not to {caller}" if caller else "and this call names no proposer_id"
    raise BrokerError(
        Code.FORBIDDEN,
        f"review {review.id} belongs to {review.proposer_id}, {detail}",
        NextStep(Next.ACT_AS_PROPOSER),
    )


def revise(
    review: Review,
    *,
    revision: Revision,
    caller: Identity | None,
    is_administrator: bool = False,
    findings: tuple[Finding, ...],
    reviewer_alive: bool,
    policy: Policy,
    now: Milliseconds,
) -> Change:
    """Replace the content. Claimant and verdict are cleared; the previous reviewer may claim it first."""
    require_proposer(review, caller, is_administrator=is_administrator)
    target = require(review, Command.REVISE)
    return renew(
        review,
        EventType.REVIEW_REVISED,
        revision=revision,
        target=target,
        settled=_superseded(review),
        findings=findings,
        reviewer_alive=reviewer_alive,
        policy=policy,
        now=now,
    )


def renew(
    review: Review,
    event_type: EventType,
    *,
    revision: Revision,
    target: Status,
    settled: CounterPatchStatus | None,
    findings: tuple[Finding, ...],
    reviewer_alive: bool,
    policy: Policy,
    now: Milliseconds,
) -> Change:
    """Give the review new content. An auto-rejected revision had no claimant, so its round does not change."""
    if review.revision >= policy.limits.revisions:
        raise BrokerError(
            Code.TOO_LARGE,
            f"review {review.id} has {review.revision} revisions, and the limit is {policy.limits.revisions}",
            NextStep(Next.CONTINUE_IN_ANOTHER),
        )
    last_reviewer = review.claimed_by
    # The author of the new content may not judge it, so it is not reserved for the author.
    keep = last_reviewer is not None and reviewer_alive and not same_identity(last_reviewer, revision.author)
    change = record(
        review,
        event_type,
        actor=revision.author,
        now=now,
        metadata={
            "written_by": revision.written_by,
            "old_claimant": last_reviewer,
            "content_hash": hash_of_revision(revision),
        },
        status=target,
        revision=revision.number,
        round=review.round + (last_reviewer is not None),
        intent=revision.intent,
        has_diff=revision.diff is not None,
        author=revision.author,
        digest=None,
        verdict=None,
        verdict_reason=None,
        counter_patch_status=settled or review.counter_patch_status,
        reserved_for=last_reviewer if keep else None,
        reserved_until=Milliseconds(now + RESERVATION_MILLISECONDS) if keep else None,
        **cleared_claim(review),
    )
    change = replace(change, revision=revision, findings=findings, counter_patch_settled=settled and (settled, None))
    return call_human_if_stuck(change, policy, now)


def close(
    review: Review,
    *,
    closer_role: Role,
    caller: Identity | None,
    is_administrator: bool = False,
    reason: str | None,
    now: Milliseconds,
) -> Change:
    if closer_role is Role.REVIEWER:
        raise BrokerError(
            Code.FORBIDDEN,
            "a reviewer does not close a review",
            "Give a verdict or release the claim; the proposer closes.",
        )
    actor = require_proposer(review, caller, is_administrator=is_administrator)
    target = require(review, Command.CLOSE)
    outcome = {
        Status.APPROVED: Outcome.APPROVED,
        Status.CHANGES_REQUESTED: Outcome.CHANGES_REQUESTED,
    }.get(review.status, Outcome.WITHDRAWN)
    settled = _superseded(review)
    withdrawn = cleared_claim(review) if review.is_claim_live else {}
    # A closed review needs no person.
    answered = no_human_needed(review, actor=actor, now=now)
    change = record(
        answered.review if answered else review,
        EventType.REVIEW_CLOSED,
        actor=actor,
        now=now,
        metadata={"reason": reason, "old_claimant": review.claimed_by},
        status=target,
        outcome=outcome,
        closed_at=now,
        reserved_for=None,
        reserved_until=None,
        counter_patch_status=settled or review.counter_patch_status,
        **withdrawn,
    )
    whole = followed_by(answered, change) if answered else change
    return replace(whole, counter_patch_settled=settled and (settled, None))


def _superseded(review: Review) -> CounterPatchStatus | None:
    is_open = review.counter_patch_status is CounterPatchStatus.PENDING
    return CounterPatchStatus.SUPERSEDED if is_open else None
