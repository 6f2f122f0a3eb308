"""What proves an approval to those who cannot ask the broker."""

from typing import Protocol

from gsd_review_broker.domain.gate.ledger import GateOverride, LandedCommit, ReviewedChange


class Signer(Protocol):
    """Signs what was approved, so that it can be proved without a broker."""

    def receipt(self, approved: ReviewedChange) -> str | None:
        """A JSON document; None where the repository has no root commit yet."""
        ...

    def override_receipt(self, landed: LandedCommit, override: GateOverride) -> str | None:
        """Of a commit that an override let through."""
        ...


class TicketOffice(Protocol):
    """Tells the gate's hook in advance which commit it may let through."""

    def issue(self, approved: ReviewedChange, base: str) -> bool:
        """For this change on this commit. False where the hook has to ask. Raises OSError."""
        ...
