"""What time brings: claims expire, and on request closed reviews move into an archive.

This is the only place that compares a claim's deadline with the clock.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.domain.rules import claims
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import KEY_LIFETIME_MILLISECONDS, Transaction
from gsd_review_broker.ports.world import QUEUE
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.wire.broker import Pruned
from gsd_review_broker.service.wire.encoding import iso

log = structlog.get_logger()

SWEEP_SECONDS = 1.0
# After a start, claims that expired while no broker was running get this much more time.
GRACE_AFTER_START_MILLISECONDS = 60_000
_KEYS_EVERY_MILLISECONDS = 3_600_000
# A wall clock that gains or loses more than this between two sweeps was moved, or the machine slept.
_STEP_MILLISECONDS = 2_000
_BATCH = 100
# One call of prune moves what fits into this time; the caller repeats it while there is more.
_TURN_MILLISECONDS = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ClockReading:
    wall: Milliseconds
    steady: Milliseconds


def clock_step(before: ClockReading, after: ClockReading) -> int:
    """Return how far the wall clock was moved between two moments; 0 for mere drift."""
    step = (after.wall - before.wall) - (after.steady - before.steady)
    return step if abs(step) > _STEP_MILLISECONDS else 0


class Sweep:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._before = self._moment()
        self._grace_until = self._before.steady
        self._keys_swept: Milliseconds | None = None

    def _moment(self) -> ClockReading:
        return ClockReading(self._core.clock.now(), self._core.clock.steady())

    def begin(self) -> None:
        """Give claimants that could not reach the broker before it started a little time."""
        self._grace_until = Milliseconds(self._moment().steady + GRACE_AFTER_START_MILLISECONDS)

    async def run(self) -> None:
        """Runs until it is cancelled. A failure is logged, and the next sweep tries again."""
        self.begin()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.once()
            except BrokerError as error:
                # The database cannot be reached; its store has reported it.
                log.debug("sweep_failed", error=str(error))
            except Exception:
                log.exception("sweep_failed")

    async def once(self) -> list[ReviewId]:
        """Return overdue reviews to the queue; returns their ids."""
        now = self._moment()
        # Brokers that share a database take the time from it, and one of them must not shift the deadlines of all.
        step = 0 if self._core.store.is_shared else clock_step(self._before, now)
        if step:
            log.info("clock_stepped", by_milliseconds=step)
            await self._core.store.write(lambda tx: tx.shift_deadlines(step))
        await self._wake_for_ended_reservations(Milliseconds(self._before.wall + step), now.wall)
        self._before = now
        async with self._core.store.alone() as is_alone:
            return await self._sweep(now) if is_alone else []

    async def _sweep(self, now: ClockReading) -> list[ReviewId]:
        """Do what one broker does for all that share the database."""
        await self._forget_old_keys(now)
        if now.steady < self._grace_until:
            return []
        overdue = await self._core.store.read(lambda reader: reader.expired_claims(now.wall, _BATCH))
        reclaimed: list[ReviewId] = []
        for review in overdue:
            if await self._core.store.write(lambda tx, id_=review.id: self._reclaim(tx, id_)):
                reclaimed.append(review.id)
                log.info("claim_expired", review_id=review.id, reviewer=review.claimed_by)
        return reclaimed

    def _reclaim(self, tx: Transaction, review_id: ReviewId) -> bool:
        """Reclaim it if it is still overdue: the claimant may have called since."""
        review = tx.lock_review(review_id)
        if review is None or not review.is_claim_live:
            return False
        if review.claim_expires_at is None or review.claim_expires_at > tx.now:
            return False
        tx.save(claims.reclaim(review, reason="the claim's deadline passed", now=tx.now))
        return True

    async def _wake_for_ended_reservations(self, after: Milliseconds, until: Milliseconds) -> None:
        """Wake the queue: an ended reservation opens a review to all reviewers, and no commit announces it."""
        if await self._core.store.glance(lambda reader: reader.reservation_ended(after=after, until=until)):
            self._core.wakeups.publish([QUEUE])

    async def _forget_old_keys(self, now: ClockReading) -> None:
        if self._keys_swept is not None and now.steady - self._keys_swept < _KEYS_EVERY_MILLISECONDS:
            return
        self._keys_swept = now.steady
        before = Milliseconds(now.wall - KEY_LIFETIME_MILLISECONDS)
        await self._core.store.write(lambda tx: tx.forget_keys_before(before))


class Retention:
    """Moves closed reviews into an archive beside the database, on request only."""

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
