"""After an approval: a ticket for the commit that is expected next, so that the gate's hook need not ask."""

import asyncio

import structlog

from gsd_review_broker.domain.model import ReviewId
from gsd_review_broker.domain.words import Status
from gsd_review_broker.ports.world import TicketIssuer
from gsd_review_broker.service.applies import Applicability
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.wire.reviews import AutoRejected, VerdictResult

log = structlog.get_logger()


class Tickets:
    def __init__(self, core: Core, applies: Applicability, office: TicketIssuer) -> None:
        self._core = core
        self._applies = applies
        self._office = office

    async def after(self, result: VerdictResult | AutoRejected) -> None:
        """Without a ticket the hook asks, so nothing here is an error."""
        review_id = ReviewId(result["review_id"])
        checked = self._applies.last(review_id) if result["status"] == Status.APPROVED else None
        if checked is None or checked.base is None:
            return
        base = checked.base
        change = await self._core.store.glance(lambda reader: reader.reviewed_change(review_id))
        if change is None or change.approved_at is None or change.digest != checked.digest:
            return
        try:
            await asyncio.to_thread(self._office.issue, change, base)
        except OSError as error:
            log.warning("ticket_failed", review_id=review_id, error=str(error))
