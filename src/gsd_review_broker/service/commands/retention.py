"""Retention: on request only, closed reviews move into an archive beside the database."""

from datetime import UTC, datetime

from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.wire.reviews import Pruned
from gsd_review_broker.service.wire.timestamps import iso

# One call moves what fits into this time; the caller repeats it while there is more.
_TURN_MILLISECONDS = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Retention:
    def __init__(self, core: Core, *, database_name: str) -> None:
        self._core = core
        self._database_name = database_name

    async def prune(self, closed_before: str) -> Pruned:
        moment = _moment(closed_before)
        if moment > self._core.clock.now():
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"closed_before: {closed_before} lies in the future",
                "Give a day or a moment that is past.",
            )
        closed_before_text = iso(moment)
        archive = f"{self._database_name}.archive-{closed_before_text[:10]}"
        began, moved = self._core.clock.steady(), 0
        while True:
            batch = await self._core.store.archive(closed_before=moment, said_as=closed_before_text, into=archive)
            moved += batch.moved
            more = batch.found > 0
            if not more or self._core.clock.steady() - began > _TURN_MILLISECONDS:
                return {"closed_before": closed_before_text, "archive": archive, "reviews": moved, "more": more}


def _moment(text: str) -> Milliseconds:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"closed_before: {text[:100]!r} is not a date",
            "Give a day (2026-01-31) or a moment (2026-01-31T12:00:00Z); without a zone it is UTC.",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Nothing was closed before 1970, and such an early moment may not have a year that can be written.
    return Milliseconds(max(0, int((moment - _EPOCH).total_seconds() * 1000)))
