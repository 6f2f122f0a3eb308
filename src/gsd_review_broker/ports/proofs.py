"""What proves an approval to those who cannot ask the broker."""

from typing import Any, Protocol

from gsd_review_broker.domain.gate.decision import ReviewedChange


class Signer(Protocol):
    """Signs what was approved, so that it can be proved without a broker."""

    def sign(self, document: dict[str, Any]) -> str:
        """Return the document as JSON, with the key's id and the signature. Raises BrokerError."""
        ...


class TicketOffice(Protocol):
    """Tells the gate's hook in advance which commit it may let through."""

    def issue(self, approved: ReviewedChange, base: str) -> bool:
        """For this change on this commit. False where the hook has to ask. Raises OSError."""
        ...
