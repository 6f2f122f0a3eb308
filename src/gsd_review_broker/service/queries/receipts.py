"""Receipts: of an approval as it was signed then, and of an override as the record says."""

from typing import Any

from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Reader
from gsd_review_broker.ports.world import Signer
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.wire.gate import override_document


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
