"""What the gate has to know of a review: the exact change that was claimed, and that it was approved."""

from dataclasses import replace

from gsd_review_broker.domain.gate.ledger import ReviewedChange
from gsd_review_broker.domain.model import Change, EventType, Review, Verdict
from gsd_review_broker.ports.store import Transaction
from gsd_review_broker.ports.world import Applies, Signer


def keep_reviewed_change(tx: Transaction, review: Review, checked: Applies) -> None:
    """Called in the transaction of a claim, with git's answer that the claim is about."""
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

    def __init__(self, signer: Signer | None = None) -> None:
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
        receipt = self._signer.receipt(approved) if self._signer else None
        tx.save_reviewed_change(replace(approved, receipt=receipt))
