"""Brokers on one database: each says that it is alive, and one of them stops the reviewers of a dead one."""

import asyncio

import structlog

from gsd_review_broker.domain.words import EndReason
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.pool.roster import Roster
from gsd_review_broker.ports.store import Store
from gsd_review_broker.service.pool.records import SILENCE_MILLISECONDS, PoolRecords

log = structlog.get_logger()

# Several are missed before a broker counts as dead.
BEAT_SECONDS = SILENCE_MILLISECONDS / 1000 / 6


class Neighbours:
    def __init__(self, store: Store, records: PoolRecords, roster: Roster) -> None:
        self._store = store
        self._records = records
        self._roster = roster

    async def run(self) -> None:
        """Runs until it is cancelled. A failure is logged, and the next turn tries again."""
        while self._store.is_shared:
            try:
                await self.once()
            except BrokerError as error:
                # The database cannot be reached; its store has reported it.
                log.debug("heartbeat_failed", error=str(error))
            except Exception:
                log.exception("heartbeat_failed")
            await asyncio.sleep(BEAT_SECONDS)

    async def once(self) -> None:
        await self._records.beat()
        await self._records.meet()
        async with self._store.alone() as is_alone:
            for reviewer_id in await self._records.orphaned() if is_alone else ():
                log.warning("broker_is_silent", reviewer=reviewer_id)
                await self._records.ended(reviewer_id, self._roster.ending(EndReason.BROKER_DIED, None))
