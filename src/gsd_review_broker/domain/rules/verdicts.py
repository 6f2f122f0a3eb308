"""Verdicts: the fence, the identity, the judgement, and how many approvals a revision needs (ADR 14)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gsd_review_broker.domain.gate.policy import Patterns
from gsd_review_broker.domain.model import (
    ApprovalPolicy,
    Change,
    CounterPatch,
    Finding,
    Identity,
    Milliseconds,
    NewEvent,
    Policy,
    Review,
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
from gsd_review_broker.domain.tally import kind_of
from gsd_review_broker.domain.text import BROKER, identity_key, is_human, same_identity
from gsd_review_broker.domain.words import VENDORS, CounterPatchStatus, EventType, Fence, Verdict, either
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep, changed_since


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalsSoFar:
    """Who approved this content so far, and which files it touches."""

    approvers: tuple[Identity, ...] = ()
    touched: tuple[str, ...] = ()

    def with_approver(self, reviewer: Identity) -> "ApprovalsSoFar":
        return ApprovalsSoFar(approvers=(*self.approvers, reviewer), touched=self.touched)


class MissingKind(StrEnum):
    APPROVALS = "approvals"
    VENDOR = "vendor"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class MissingApproval:
    """An approval that the policy still asks for. Rules read the kind, people read the text."""

    kind: MissingKind
    text: str


NO_APPROVALS = ApprovalsSoFar()


def approvers_in(events: Iterable[NewEvent], review: Review, digest: str | None) -> tuple[Identity, ...]:
    """Find the approvals of this revision and digest that were given before the policy was met."""
    return tuple(
        event.actor
        for event in events
        if event.event_type is EventType.VERDICT_COMMENT
        and event.metadata.get("verdict") == Verdict.APPROVED
        and event.metadata.get("revision") == review.revision
        and event.metadata.get("digest") == digest
    )


def vendor_of(reviewer: Identity) -> str | None:
    """Read the vendor off the first word of the name; each person is a vendor. None: the vendor is unknown, and its
    approval does not differ from any other's."""
    if is_human(reviewer):
        return identity_key(reviewer)
    return VENDORS.get(identity_key(kind_of(reviewer)).split("-")[0])


def missing_approvals(policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> tuple[MissingApproval, ...]:
    """List what the approvals so far lack. Empty if the policy is met."""
    approvers = {identity_key(name): name for name in so_far.approvers}
    lacking: list[MissingApproval] = []
    short = policy.required - len(approvers)
    if short > 0:
        lacking.append(MissingApproval(MissingKind.APPROVALS, f"{short} more approval{'s' if short > 1 else ''}"))
    if policy.distinct_vendors and short <= 0:
        lacking += _missing_vendors(policy, approvers.values())
    path = _path_for_a_person(policy, so_far.touched)
    if path is not None and not any(is_human(name) for name in approvers.values()):
        lacking.append(MissingApproval(MissingKind.PERSON, f"a person's approval, for {path}"))
    return tuple(lacking)


def _missing_vendors(policy: ApprovalPolicy, approvers: Iterable[Identity]) -> list[MissingApproval]:
    """Count only known vendors. A single approval has nothing to differ from."""
    unknown = sorted(name for name in approvers if vendor_of(name) is None)
    vendors = {vendor for name in approvers if (vendor := vendor_of(name)) is not None}
    if policy.required == 1 or len(vendors) >= policy.required:
        return []
    what = (
        f"an approval from another vendor than {', '.join(sorted(vendors))}"
        if vendors
        else f"approvals from {policy.required} vendors"
    )
    text = f"{what} ({_unknown_vendor(', '.join(unknown))})" if unknown else what
    return [MissingApproval(MissingKind.VENDOR, text)]


def _unknown_vendor(name: str) -> str:
    known = tuple(word for word, vendor in VENDORS.items() if vendor is not None)
    return f"the vendor of {name} is unknown; a reviewer's name has to begin with {either(known)}"


def only_a_person_is_missing(lacking: Sequence[MissingApproval]) -> bool:
    return [one.kind for one in lacking] == [MissingKind.PERSON]


def texts_of(lacking: Iterable[MissingApproval]) -> list[str]:
    return [one.text for one in lacking]


def refuse_useless_approver(review: Review, reviewer: Identity, policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> None:
    """Refuse a reviewer that has approved this content already, or that cannot add what is missing."""
    why = _why_useless(reviewer, policy, so_far)
    if why is None:
        return
    needs = " and ".join(texts_of(missing_approvals(policy, so_far)))
    raise BrokerError(
        Code.INVALID_TRANSITION,
        f"review {review.id} is {review.status}: {why}; it needs {needs}",
        NextStep(Next.ANOTHER_REVIEWER),
    )


def can_add_approval(reviewer: Identity, policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> bool:
    return _why_useless(reviewer, policy, so_far) is None


def _why_useless(reviewer: Identity, policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> str | None:
    if any(same_identity(name, reviewer) for name in so_far.approvers):
        return f"{reviewer} has approved this revision already"
    if not so_far.approvers or is_human(reviewer):
        return None
    if policy.distinct_vendors and policy.required > 1:
        vendor = vendor_of(reviewer)
        if vendor is None:
            return _unknown_vendor(reviewer)
        if vendor in {vendor_of(name) for name in so_far.approvers}:
            return f"{vendor} has approved it already"
    return f"{reviewer} is not a person" if only_a_person_is_missing(missing_approvals(policy, so_far)) else None


def _path_for_a_person(policy: ApprovalPolicy, touched: Sequence[str]) -> str | None:
    if not policy.human_paths:
        return None
    patterns = Patterns(policy.human_paths)
    return next((path for path in touched if patterns.match(path.encode("utf-8", "surrogateescape"))), None)


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
    """Give the live claimant's verdict on the claimed revision. A stale or foreign one is refused and recorded.

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
    lacking = missing_approvals(policy.approvals, so_far.with_approver(reviewer)) if verdict is Verdict.APPROVED else ()
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
    """Let the next reviewer claim; call a person if only a person can help."""
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
    """Record a verdict that refuse_verdict refused. Raises if the refusal is not recorded."""
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
    """Refuse a verdict on another digest. An approval has to name the digest; other verdicts may leave it out."""
    if seen.digest is None and seen.is_complete and review.digest is not None and approves:
        raise changed_since(f"the page that you approved showed no digest, and it has one: {review.digest}")
    if seen.digest is not None and seen.digest != review.digest:
        now = review.digest or "without a digest"
        raise changed_since(f"you saw {seen.digest}, but it would be {now} now: its base has changed")


def _refuse_news(review: Review, counter_patch: CounterPatch | None, findings: tuple[Finding, ...]) -> None:
    """Refuse new content in a repeated verdict: it would be lost."""
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
    # An approval is of the proposal without the open counter-patch, which is superseded.
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
    """Record the finding in this verdict's words: a finding that is raised again takes the new words."""
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
    """Offer a counter-patch; an older open one is superseded."""
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
