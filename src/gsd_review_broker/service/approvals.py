"""The approvals that a review has and lacks, what the gate has to know of them, and their receipts."""

from dataclasses import replace
from typing import Any

from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.model import ApprovalPolicy, Change, Identity, Review
from gsd_review_broker.domain.rules import verdicts
from gsd_review_broker.domain.rules.verdicts import NO_APPROVALS, ApprovalsSoFar, MissingApproval
from gsd_review_broker.domain.words import EventType, Status, Verdict
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Reader, Transaction
from gsd_review_broker.ports.world import Applies, Signer
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.wire.broker import approval_document, override_document

# Events of one review that are looked at; a review with so many rounds has long called for a person.
_MOST_EVENTS = 2_000
_OPEN = frozenset({Status.PENDING, Status.CLAIMED, Status.IN_REVIEW})


def approvals_so_far(reader: Reader, review: Review, policy: ApprovalPolicy, *, digest: str | None) -> ApprovalsSoFar:
    """Read the approvals of the content with this digest, if the policy asks for more than one reviewer."""
    if policy.is_one_reviewer:
        return NO_APPROVALS
    events = reader.events(review_id=review.id, after=0, limit=_MOST_EVENTS)
    revision = reader.revision(review.id, review.revision, with_diff=False)
    files = revision.affected_files if revision else ()
    touched = dict.fromkeys(name for file in files for name in (file.path, file.old_path) if name is not None)
    return ApprovalsSoFar(approvers=verdicts.approvers_in(events, review, digest), touched=tuple(touched))


def can_add(reader: Reader, review: Review, policy: ApprovalPolicy, reviewer: Identity) -> bool:
    """Say whether the policy lets this reviewer claim it. A review with one event has no approval yet."""
    if policy.is_one_reviewer or review.version == 1:
        return True
    return verdicts.can_add_approval(reviewer, policy, approvals_so_far(reader, review, policy, digest=review.digest))


def missing_in(
    reader: Reader, review: Review, policy: ApprovalPolicy
) -> tuple[ApprovalsSoFar, tuple[MissingApproval, ...]] | None:
    """List what an open review still lacks. None if the policy asks for one reviewer, or the review is judged."""
    if policy.is_one_reviewer or review.status not in _OPEN:
        return None
    so_far = approvals_so_far(reader, review, policy, digest=review.digest)
    return so_far, verdicts.missing_approvals(policy, so_far)


def keep_reviewed_change(tx: Transaction, review: Review, checked: Applies) -> None:
    """Keep the exact change that is claimed: in the transaction of the claim, from git's answer about it."""
    if checked.digest is None or checked.records is None or checked.folder is None:
        return
    tx.save_reviewed_change(
        ReviewedChange(
            review_id=review.id,
            revision=review.revision,
            digest=checked.digest,
            repository=checked.repository,
            folder=checked.folder,
            records=checked.records,
        )
    )


class ApprovalWatcher:
    """Sees each approval in its transaction; from then on its content passes the gate."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def __call__(self, tx: Transaction, change: Change) -> None:
        for event in change.events:
            if event.event_type is EventType.VERDICT_SUBMITTED and event.metadata.get("verdict") == Verdict.APPROVED:
                self._approve(tx, change.review)

    def _approve(self, tx: Transaction, review: Review) -> None:
        kept = tx.reviewed_change(review.id)
        # What was claimed may be another revision's, or git could not say what it changes: that never passes.
        if kept is None or kept.digest != review.digest or kept.revision != review.revision:
            return
        approved = replace(kept, proposer=review.author, reviewer=review.claimed_by, approved_at=tx.now)
        document = approval_document(approved)
        receipt = self._signer.sign(document) if document else None
        tx.save_reviewed_change(replace(approved, receipt=receipt))


class ReceiptQueries:
    def __init__(self, core: Core, signer: Signer) -> None:
        self._core = core
        self._signer = signer

    async def of_review(self, review_id: str) -> dict[str, Any]:
        review = await self._core.find(review_id)
        change = await self._core.store.glance(lambda reader: reader.reviewed_change(review.id))
        if change is None or change.approved_at is None:
            raise BrokerError(
                Code.NOT_FOUND,
                f"review {review.id} has no approval that the gate knows",
                "Only an approved review with a digest has a receipt.",
            )
        if change.receipt is None:
            raise BrokerError(
                Code.NOT_FOUND,
                f"the approval of review {review.id} was not signed",
                "A repository without a commit has no receipts; later approvals are signed.",
            )
        return {"review_id": review.id, "receipt": change.receipt}

    async def of_override(self, folder: str, commit: str) -> dict[str, Any]:
        """Signed when it is asked for: the record of a commit that landed does not change."""
        landed, override = await self._core.store.read(lambda reader: _overridden(reader, folder, commit))
        document = override_document(landed, override)
        if document is None:
            raise BrokerError(
                Code.UNAVAILABLE,
                f"the override of {commit} cannot be signed",
                "The repository's root commit was not known: it was a shallow clone, or had no commit.",
            )
        return {"commit": commit, "receipt": self._signer.sign(document)}


def _overridden(reader: Reader, folder: str, commit: str) -> tuple[LandedCommit, GateOverride]:
    landed = reader.landed_commit(folder, commit)
    override = reader.gate_override(landed.override_id) if landed and landed.override_id is not None else None
    if landed is None or override is None:
        raise BrokerError(
            Code.NOT_FOUND,
            f"no override let commit {commit} through",
            "`tandem gate status` lists those that have one. An approved commit has the receipt of its review.",
        )
    return landed, override
