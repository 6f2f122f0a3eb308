"""Judging: the fence, the identity, the verdict."""

from dataclasses import replace
from typing import Any

from gsd_review_broker.domain.model import (
    BROKER,
    Change,
    CounterPatch,
    CounterPatchStatus,
    EventType,
    Fence,
    Finding,
    Identity,
    Milliseconds,
    Review,
    Verdict,
    same_identity,
)
from gsd_review_broker.domain.rules.claims import refuse_self_review, refuse_stale
from gsd_review_broker.domain.rules.contents import hash_of_counter_patch
from gsd_review_broker.domain.rules.convergence import call_human_if_stuck, clear_human
from gsd_review_broker.domain.rules.transitions import Command, followed_by, invalid_transition, record, require
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep

_COMMANDS = {
    Verdict.APPROVED: Command.APPROVE,
    Verdict.CHANGES_REQUESTED: Command.REQUEST_CHANGES,
    Verdict.COMMENT: Command.COMMENT,
}
_RECORDED = {Code.STALE_CLAIM, Code.NOT_CLAIMANT, Code.SELF_REVIEW}


def give_verdict(
    review: Review,
    *,
    verdict: Verdict,
    reason: str | None,
    reviewer_id: Identity | None,
    claim_generation: int | None,
    counter_patch: CounterPatch | None,
    findings: tuple[Finding, ...],
    open_finding_count: int,
    fence: Fence,
    pool_managed: bool,
    timeout: int,
    max_rounds: int,
    now: Milliseconds,
) -> Change:
    """What the live claimant says of the claimed revision. A stale or foreign verdict is refused and recorded."""
    _refuse_incomplete(verdict, reason, counter_patch)
    bare_allowed = fence is Fence.MANAGED and not pool_managed
    try:
        reviewer = _claimant(review, reviewer_id, claim_generation, bare_allowed=bare_allowed)
        refuse_self_review(review, reviewer)
    except BrokerError as error:
        if error.code not in _RECORDED:
            raise
        return _refused(review, verdict, error, reviewer_id, claim_generation, now)
    if review.verdict is verdict and verdict is not Verdict.COMMENT and review.status.value == verdict.value:
        _refuse_news(review, counter_patch, findings)
        return Change(review=review, events=())
    change = _said(
        review,
        reviewer,
        verdict,
        reason,
        deadline=Milliseconds(now + timeout) if verdict is Verdict.COMMENT else None,
        findings=findings,
        open_finding_count=open_finding_count,
        has_counter_patch=counter_patch is not None,
        now=now,
    )
    if counter_patch is not None:
        change = _offered(change, counter_patch, reviewer, now)
    if verdict is Verdict.CHANGES_REQUESTED:
        change = call_human_if_stuck(change, max_rounds=max_rounds, now=now)
    return clear_human(change, actor=reviewer, now=now)


def _refuse_news(review: Review, counter_patch: CounterPatch | None, findings: tuple[Finding, ...]) -> None:
    """The same verdict again is answered again; one that brings something new would lose it."""
    new_patch = counter_patch is not None and review.counter_patch_status is not CounterPatchStatus.PENDING
    if new_patch or any(finding.times_raised == 1 for finding in findings):
        raise invalid_transition(review, None, "the verdict is given; say what is new in a message")


def _said(
    review: Review,
    reviewer: Identity,
    verdict: Verdict,
    reason: str | None,
    *,
    deadline: Milliseconds | None,
    findings: tuple[Finding, ...],
    open_finding_count: int,
    has_counter_patch: bool,
    now: Milliseconds,
) -> Change:
    target = require(review, _COMMANDS[verdict])
    is_comment = verdict is Verdict.COMMENT
    # An approval is of the proposal as it is: what was offered instead is off the table.
    declined = verdict is Verdict.APPROVED and review.counter_patch_status is CounterPatchStatus.PENDING
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
            "findings": [_remark(finding) for finding in findings],
        },
        status=target,
        verdict=review.verdict if is_comment else verdict,
        verdict_reason=reason,
        claim_expires_at=deadline,
        open_finding_count=open_finding_count,
        counter_patch_status=CounterPatchStatus.SUPERSEDED if declined else review.counter_patch_status,
    )
    settled = (CounterPatchStatus.SUPERSEDED, None) if declined else None
    return replace(change, findings=findings, counter_patch_settled=settled)


def _remark(finding: Finding) -> dict[str, Any]:
    """As it was said this time: a finding that is raised again takes the new words."""
    said = ("path", "line_start", "line_end", "side", "severity", "title", "body", "suggestion", "confidence")
    return {"finding_id": finding.id, **{name: getattr(finding, name) for name in said}}


def _refuse_incomplete(verdict: Verdict, reason: str | None, counter_patch: CounterPatch | None) -> None:
    if verdict is not Verdict.APPROVED and not (reason and reason.strip()):
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"reason: a verdict of {verdict} needs one",
            "Say what should change, or what you noticed; only approved may be bare.",
        )
    if verdict is Verdict.APPROVED and counter_patch is not None:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            "counter_patch: an approval cannot carry one",
            "Offer the counter-patch with changes_requested or comment.",
        )


def _claimant(
    review: Review, reviewer_id: Identity | None, claim_generation: int | None, *, bare_allowed: bool
) -> Identity:
    if claim_generation is not None:
        refuse_stale(review, claim_generation)
    claimed_by = review.claimed_by
    if claimed_by is None:
        raise invalid_transition(review, None, "nothing is claimed")
    if reviewer_id is not None and not same_identity(reviewer_id, claimed_by):
        raise BrokerError(
            Code.NOT_CLAIMANT,
            f"review {review.id} is claimed by {claimed_by}, not by {reviewer_id}",
            NextStep(Next.SEND_MESSAGE),
        )
    if reviewer_id is None and claim_generation is None and not bare_allowed:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            "claim_generation: a verdict names its claim, and this one has neither claim_generation nor reviewer_id",
            NextStep(Next.NAME_THE_CLAIM),
        )
    return claimed_by


def _refused(
    review: Review,
    verdict: Verdict,
    error: BrokerError,
    reviewer_id: Identity | None,
    claim_generation: int | None,
    now: Milliseconds,
) -> Change:
    change = record(
        review,
        EventType.VERDICT_REFUSED,
        actor=reviewer_id or BROKER,
        now=now,
        metadata={
            "refused_verdict": verdict,
            "code": error.code,
            "refused_generation": claim_generation,
        },
    )
    return replace(change, refusal=error)


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
