"""Verdicts: the fence, the identity, the judgement."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gsd_review_broker.domain.identity import BROKER, same_identity
from gsd_review_broker.domain.model import Change, CounterPatch, Finding, Identity, Milliseconds, Policy, Review
from gsd_review_broker.domain.rules.approvals import (
    NO_APPROVALS,
    ApprovalsSoFar,
    MissingApproval,
    missing,
    only_a_person_is_missing,
    texts_of,
)
from gsd_review_broker.domain.rules.claims import deadline, refuse_self_review, refuse_stale, release
from gsd_review_broker.domain.rules.transitions import (
    STEPS,
    Command,
    call_human,
    call_human_if_stuck,
    clear_human,
    followed_by,
    hash_of_counter_patch,
    invalid_transition,
    record,
    require,
)
from gsd_review_broker.domain.words import CounterPatchStatus, EventType, Fence, Verdict
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep, changed_since

_COMMANDS = {
    Verdict.APPROVED: Command.APPROVE,
    Verdict.CHANGES_REQUESTED: Command.REQUEST_CHANGES,
    Verdict.COMMENT: Command.COMMENT,
}
_RECORDED = {Code.STALE_CLAIM, Code.NOT_CLAIMANT, Code.SELF_REVIEW}


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A reviewer's judgement of a claimed revision, and the claim it is made under."""

    verdict: Verdict
    reason: str | None
    reviewer_id: Identity | None = None
    claim_generation: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What a person had in front of them. Fields that are None are not compared."""

    revision: int | None = None
    digest: str | None = None
    # A page shows the digest whenever there is one, so an approval without a digest was made of something else.
    is_complete: bool = False


def give_verdict(
    review: Review,
    judgement: Judgement,
    *,
    counter_patch: CounterPatch | None,
    findings: tuple[Finding, ...],
    open_finding_count: int,
    pool_managed: bool,
    policy: Policy,
    now: Milliseconds,
    so_far: ApprovalsSoFar = NO_APPROVALS,
) -> Change:
    """The live claimant's verdict on the claimed revision. A stale or foreign verdict is refused and recorded.

    An approval applies when the policy is met with it. Until then it is kept, and the claim goes back for the next
    reviewer."""
    verdict = judgement.verdict
    refuse_incomplete(judgement, has_counter_patch=counter_patch is not None)
    try:
        reviewer = refuse_verdict(review, judgement, pool_managed=pool_managed, policy=policy)
    except BrokerError as error:
        return refused_verdict(review, judgement, error, now)
    if review.verdict is verdict and review.status is STEPS[_COMMANDS[verdict]].target:
        _refuse_news(review, counter_patch, findings)
        return Change(review=review, events=())
    lacking = missing(policy.approvals, so_far.with_approver(reviewer)) if verdict is Verdict.APPROVED else ()
    change = _stated(
        review,
        reviewer,
        judgement,
        lacking=lacking,
        expires_at=deadline(policy, now) if verdict is Verdict.COMMENT else None,
        findings=findings,
        open_finding_count=open_finding_count,
        has_counter_patch=counter_patch is not None,
        now=now,
    )
    if counter_patch is not None:
        change = _offered(change, counter_patch, reviewer, now)
    if verdict is Verdict.CHANGES_REQUESTED:
        change = call_human_if_stuck(change, policy, now)
    change = clear_human(change, actor=reviewer, now=now)
    return _passed_on(change, lacking, now) if lacking else change


def _passed_on(change: Change, lacking: Sequence[MissingApproval], now: Milliseconds) -> Change:
    """The approval alone is not enough: the next reviewer may claim; a person is called if only a person can help."""
    review = change.review
    change = followed_by(change, release(review, claim_generation=review.claim_generation, now=now))
    if change.review.needs_human is None and only_a_person_is_missing(lacking):
        reason = f"the policy needs {lacking[0].text}"
        change = followed_by(change, call_human(change.review, reason=reason, now=now))
    return change


def refuse_verdict(review: Review, judgement: Judgement, *, pool_managed: bool, policy: Policy) -> Identity:
    """Check the fence and the identity, whatever the verdict contains. Returns the claimant."""
    if judgement.claim_generation is not None:
        refuse_stale(review, judgement.claim_generation)
    claimant = review.claimed_by
    if claimant is None:
        raise invalid_transition(review, None, "nothing is claimed")
    if judgement.reviewer_id is not None and not same_identity(judgement.reviewer_id, claimant):
        raise BrokerError(
            Code.NOT_CLAIMANT,
            f"review {review.id} is claimed by {claimant}, not by {judgement.reviewer_id}",
            NextStep(Next.SEND_MESSAGE),
        )
    is_bare = judgement.reviewer_id is None and judgement.claim_generation is None
    if is_bare and (pool_managed or policy.fence is not Fence.MANAGED):
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            "claim_generation: a verdict names its claim, and this one has neither claim_generation nor reviewer_id",
            NextStep(Next.NAME_THE_CLAIM),
        )
    refuse_self_review(review, claimant)
    return claimant


def refused_verdict(review: Review, judgement: Judgement, error: BrokerError, now: Milliseconds) -> Change:
    """The record of a verdict that refuse_verdict refused. Raises if the refusal is not recorded."""
    if error.code not in _RECORDED:
        raise error
    change = record(
        review,
        EventType.VERDICT_REFUSED,
        actor=judgement.reviewer_id or BROKER,
        now=now,
        metadata={
            "refused_verdict": judgement.verdict,
            "code": error.code,
            "refused_generation": judgement.claim_generation,
        },
    )
    return replace(change, refusal=error)


def refuse_other_revision(review: Review, seen: Seen) -> None:
    if seen.revision is not None and seen.revision != review.revision:
        raise changed_since(
            f"you read revision {seen.revision}, and the review is at revision {review.revision} by now"
        )


def refuse_other_digest(review: Review, seen: Seen, *, approves: bool) -> None:
    """An approval names what it approves; other verdicts may leave it out."""
    if seen.digest is None and seen.is_complete and review.digest is not None and approves:
        raise changed_since(f"the page that you approved showed no digest, and it has one: {review.digest}")
    if seen.digest is not None and seen.digest != review.digest:
        now = review.digest or "without a digest"
        raise changed_since(f"you saw {seen.digest}, but it would be {now} now: its base has changed")


def _refuse_news(review: Review, counter_patch: CounterPatch | None, findings: tuple[Finding, ...]) -> None:
    """A repeated verdict gets the same answer. One with new content is refused: the content would be lost."""
    new_patch = counter_patch is not None and review.counter_patch_status is not CounterPatchStatus.PENDING
    if new_patch or any(finding.times_raised == 1 for finding in findings):
        raise invalid_transition(review, None, "the verdict is given; say what is new in a message")


def _stated(
    review: Review,
    reviewer: Identity,
    judgement: Judgement,
    *,
    lacking: Sequence[MissingApproval],
    expires_at: Milliseconds | None,
    findings: tuple[Finding, ...],
    open_finding_count: int,
    has_counter_patch: bool,
    now: Milliseconds,
) -> Change:
    verdict, reason = judgement.verdict, judgement.reason
    # An approval that does not apply yet changes no state by itself, like a comment.
    is_comment = verdict is Verdict.COMMENT or bool(lacking)
    target = require(review, Command.COMMENT if is_comment else _COMMANDS[verdict])
    # An approval is of the proposal as it is; an open counter-patch is superseded.
    declined = verdict is Verdict.APPROVED and not lacking and review.counter_patch_status is CounterPatchStatus.PENDING
    change = record(
        review,
        EventType.VERDICT_COMMENT if is_comment else EventType.VERDICT_SUBMITTED,
        actor=reviewer,
        now=now,
        metadata={
            "verdict": verdict,
            "reason": reason,
            "digest": review.digest,
            "round": review.round,
            "revision": review.revision,
            "claim_generation": review.claim_generation,
            "has_counter_patch": has_counter_patch,
            "findings": [_facts_of(finding) for finding in findings],
            **({"missing": texts_of(lacking)} if lacking else {}),
        },
        status=target,
        verdict=review.verdict if is_comment else verdict,
        verdict_reason=reason,
        claim_expires_at=expires_at,
        open_finding_count=open_finding_count,
        counter_patch_status=CounterPatchStatus.SUPERSEDED if declined else review.counter_patch_status,
    )
    settled = (CounterPatchStatus.SUPERSEDED, None) if declined else None
    return replace(change, findings=findings, counter_patch_settled=settled)


def _facts_of(finding: Finding) -> dict[str, Any]:
    """The finding as it was raised this time: a finding that is raised again takes the new words."""
    names = ("path", "line_start", "line_end", "side", "severity", "title", "body", "suggestion", "confidence")
    return {"finding_id": finding.id, **{name: getattr(finding, name) for name in names}}


def refuse_incomplete(judgement: Judgement, *, has_counter_patch: bool) -> None:
    verdict, reason = judgement.verdict, judgement.reason
    if verdict is not Verdict.APPROVED and not (reason and reason.strip()):
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"reason: a verdict of {verdict} needs one",
            "Say what should change, or what you noticed; only approved needs no reason.",
        )
    if verdict is Verdict.APPROVED and has_counter_patch:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            "counter_patch: an approval cannot carry one",
            "Offer the counter-patch with changes_requested or comment.",
        )


def _offered(change: Change, patch: CounterPatch, reviewer: Identity, now: Milliseconds) -> Change:
    """The newest counter-patch is the open one; an older open one is superseded."""
    review = change.review
    superseded = review.counter_patch_status is CounterPatchStatus.PENDING
    offer = record(
        review,
        EventType.COUNTER_PATCH_OFFERED,
        actor=reviewer,
        now=now,
        metadata={
            "files": [file.path for file in patch.affected_files],
            "counter_patch_status": "pending",
            "content_hash": hash_of_counter_patch(patch),
        },
        counter_patch_status=CounterPatchStatus.PENDING,
    )
    return replace(
        followed_by(change, offer),
        counter_patch=patch,
        counter_patch_settled=(CounterPatchStatus.SUPERSEDED, None) if superseded else None,
    )
