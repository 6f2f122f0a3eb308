"""The reviewer's exclusive right to judge: claiming, extending, giving back, taking away."""

from dataclasses import replace

from gsd_review_broker.domain.model import Change, Identity, Milliseconds, Policy, Review
from gsd_review_broker.domain.rules.transitions import (
    Command,
    cleared_claim,
    followed_by,
    invalid_transition,
    record,
    require,
)
from gsd_review_broker.domain.text import BROKER, VALIDATOR, is_human, same_identity
from gsd_review_broker.domain.words import EventType, Status, Verdict
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep

# Begins the reason of a rejection by the broker.
AUTO_REJECTED = "Auto-rejected: "


def deadline(policy: Policy, now: Milliseconds) -> Milliseconds:
    return Milliseconds(now + policy.claim_timeout)


def may_claim(review: Review, *, reviewer: Identity, now: Milliseconds) -> bool:
    """Raise why a claim is refused; identity is checked before state. False if the reviewer already holds it."""
    refuse_self_review(review, reviewer)
    if review.is_claim_live:
        if same_identity(review.claimed_by, reviewer):
            return False
        raise BrokerError(
            Code.ALREADY_CLAIMED,
            f"review {review.id} is claimed by {review.claimed_by}",
            NextStep(Next.CLAIM_ANOTHER),
        )
    require(review, Command.CLAIM)
    _refuse_reserved(review, reviewer, now)
    return True


def refuse_self_review(review: Review, reviewer: Identity) -> None:
    """Refuse the proposer and the uploader of this revision: reviewers do not judge their own work."""
    if same_identity(reviewer, review.proposer) or same_identity(reviewer, review.author):
        raise BrokerError(
            Code.SELF_REVIEW,
            f"{reviewer} wrote or accepted revision {review.revision} of review {review.id} and cannot judge it",
            NextStep(Next.ANOTHER_REVIEWER),
        )


def _refuse_reserved(review: Review, reviewer: Identity, now: Milliseconds) -> None:
    if review.reserved_until is None or review.reserved_until <= now:
        return
    if same_identity(review.reserved_for, reviewer):
        return
    seconds = -(-(review.reserved_until - now) // 1000)
    raise BrokerError(
        Code.ALREADY_CLAIMED,
        f"review {review.id} is kept for {review.reserved_for}, who reviewed it before, for {seconds} s more",
        NextStep(Next.CLAIM_ANOTHER_OR_RETRY, seconds=seconds),
    )


def claim(
    review: Review,
    *,
    reviewer: Identity,
    digest: str | None,
    policy: Policy,
    now: Milliseconds,
) -> Change:
    """Begin a claim on what git checked. A later approval names its digest."""
    target = require(review, Command.CLAIM)
    return record(
        review,
        EventType.REVIEW_CLAIMED,
        actor=reviewer,
        now=now,
        metadata={"digest": digest, "claimed_by": reviewer},
        status=target,
        claimed_by=reviewer,
        claimed_at=now,
        claim_expires_at=deadline(policy, now),
        claim_generation=review.claim_generation + 1,
        digest=digest,
        reserved_for=None,
        reserved_until=None,
    )


def auto_reject(review: Review, *, git_says: str, now: Milliseconds) -> Change:
    """Reject a diff that does not apply, before a reviewer spends time on it. Round and generation stay."""
    target = require(review, Command.AUTO_REJECT)
    reason = f"{AUTO_REJECTED}{git_says}"
    return record(
        review,
        EventType.REVIEW_AUTO_REJECTED,
        actor=VALIDATOR,
        now=now,
        metadata={"verdict": Verdict.CHANGES_REQUESTED, "reason": reason},
        status=target,
        verdict=Verdict.CHANGES_REQUESTED,
        verdict_reason=reason,
        reserved_for=None,
        reserved_until=None,
    )


def extend(review: Review, *, caller: Identity, policy: Policy, now: Milliseconds) -> Review | None:
    """Move the claimant's deadline because it called. This is not an event: the review stays the same."""
    if not review.is_claim_live or not same_identity(review.claimed_by, caller):
        return None
    at_least = Milliseconds((review.claim_expires_at or 0) + 1)
    return replace(review, claim_expires_at=max(deadline(policy, now), at_least))


def is_unused(review: Review, policy: Policy) -> bool:
    """Check whether the claimant has done nothing yet: all that it does moves the deadline."""
    if review.status is not Status.CLAIMED or review.claimed_at is None or review.verdict_reason is not None:
        return False
    return review.claim_expires_at == deadline(policy, review.claimed_at)


def release(review: Review, *, claim_generation: int, now: Milliseconds) -> Change:
    refuse_stale(review, claim_generation)
    target = require(review, Command.RELEASE)
    return _give_back(review, EventType.REVIEW_RELEASED, target, reason="released", now=now)


def reclaim(review: Review, *, reason: str, now: Milliseconds) -> Change:
    """Take a claim back for the broker: past its deadline, or when its reviewer's process is gone."""
    target = require(review, Command.RECLAIM)
    return _give_back(review, EventType.REVIEW_RECLAIMED, target, reason=reason, now=now)


def _give_back(review: Review, event_type: EventType, target: Status, *, reason: str, now: Milliseconds) -> Change:
    actor = BROKER if event_type is EventType.REVIEW_RECLAIMED else (review.claimed_by or BROKER)
    return record(
        review,
        event_type,
        actor=actor,
        now=now,
        metadata={"old_claimant": review.claimed_by, "reason": reason},
        status=target,
        verdict_reason=None,
        **cleared_claim(review),
    )


def take_over(review: Review, *, person: Identity, policy: Policy, now: Milliseconds) -> Change:
    """Take the claim back and give it to a person, who takes precedence, in one step."""
    if not is_human(person):
        raise BrokerError(
            Code.FORBIDDEN,
            f"only a person takes a claim over, and {person} is not one",
            "Wait for the claim to end, or ask a person.",
        )
    refuse_self_review(review, person)
    require(review, Command.TAKE_OVER)
    digest = review.digest
    back = reclaim(review, reason=f"taken over by {person}", now=now)
    return followed_by(back, claim(back.review, reviewer=person, digest=digest, policy=policy, now=now))


def refuse_stale(review: Review, claim_generation: int) -> None:
    """Refuse an old generation as stale, whatever state the review is in."""
    if claim_generation != review.claim_generation:
        raise BrokerError(
            Code.STALE_CLAIM,
            f"claim generation {claim_generation} of review {review.id} is over (now {review.claim_generation})",
            NextStep(Next.CLAIM_AGAIN),
        )
    if review.claimed_by is None:
        raise invalid_transition(review, None, "nothing is claimed")
