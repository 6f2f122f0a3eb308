"""What is recorded of the pool's reviewers. Starts and ends come from the pool; claims and verdicts are seen in the
very transactions that make them, so that the statistics are what the broker recorded and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gsd_review_broker.domain import rules
from gsd_review_broker.domain.model import (
    BROKER,
    Change,
    EventType,
    Identity,
    Milliseconds,
    NewEvent,
    Review,
    ReviewId,
    Status,
    same_identity,
)
from gsd_review_broker.domain.pool import (
    FAILURES_THAT_NEED_A_PERSON,
    JUDGED,
    EndReason,
    Failure,
    Reviewer,
    ReviewerState,
    Usage,
    Work,
    WorkOutcome,
)
from gsd_review_broker.ports import POOL, QUEUE, Reader, ReviewFilter, Transaction
from gsd_review_broker.service.access import Access
from gsd_review_broker.service.core import Core

DAY_MILLISECONDS = 24 * 3_600_000
_LONGEST_QUEUE = 10_000
# Among so many of its last reviews a report of tokens is divided.
_LAST_WORK = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What the pool needs to know to decide."""

    pending: int
    paused: bool
    spawns_today: int
    tokens_today: int
    # What each is working on, and those whose claim was taken back while they ran.
    holding: dict[Identity, ReviewId]
    lost_a_claim: frozenset[Identity]
    idle_since: dict[Identity, Milliseconds]
    # When one of those who run last gave a verdict.
    judged_at: Milliseconds | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    reason: EndReason
    exit_code: int | None
    # How long the pool leaves a review alone after so many failures.
    pause: Callable[[int], int]


class PoolRecords:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def known(self) -> None:
        """At the start: the names of all who ever were the pool's."""
        ids = await self._core.store.read(lambda reader: reader.reviewer_ids())
        self._core.access.remember(ids)

    async def left_running(self) -> list[Reviewer]:
        """At the start: rows that say running although this database had no broker until now."""
        return await self._core.store.read(lambda reader: reader.running_reviewers())

    async def situation(self) -> Workload:
        return await self._core.store.read(lambda reader: _situation(reader, self._core.clock.now()))

    async def begun(self, reviewer: Reviewer) -> None:
        def command(tx: Transaction) -> None:
            started = replace(reviewer, started_at=tx.now)
            tx.save_reviewer(started)
            said = ("display_name", "agent", "model", "project", "pid")
            tx.append(_event(EventType.REVIEWER_SPAWNED, started, tx.now, **_facts(started, said)))
            tx.announce(POOL)

        await self._core.store.write(command)

    async def draining(self, reviewer_id: Identity, reason: EndReason) -> None:
        """From now on it is granted no claim; a wait for one is answered at once."""
        self._core.access.drain(reviewer_id)

        def command(tx: Transaction) -> None:
            reviewer = tx.reviewer(reviewer_id)
            if reviewer is None or reviewer.state is not ReviewerState.ACTIVE:
                return
            tx.save_reviewer(replace(reviewer, state=ReviewerState.DRAINING, drained_at=tx.now, end_reason=reason))
            tx.append(_event(EventType.REVIEWER_DRAIN_START, reviewer, tx.now, reason=reason))
            tx.announce(POOL)
            tx.announce(QUEUE)

        await self._core.store.write(command)

    async def ended(self, reviewer_id: Identity, ending: Ending) -> bool:
        """Its token is dead, what it held is pending again, and the audit says why: one transaction. Says whether it
        failed: it ended without the verdict that it was started for."""
        self._core.access.dismiss(reviewer_id)
        return await self._core.store.write(lambda tx: _end(tx, reviewer_id, ending))

    async def failed_to_start(self, display_name: str, why: str, pause: Callable[[int], int]) -> None:
        def command(tx: Transaction) -> None:
            for review_id in _started_for(tx):
                _blame(tx, review_id, f"{display_name}: {why}", pause)

        await self._core.store.write(command)

    def last_call(self, reviewer_id: Identity) -> tuple[Milliseconds, str] | None:
        return self._core.access.last_call(reviewer_id)

    async def spent(self, reviewer_id: Identity, usage: Usage) -> None:
        await self._core.store.write(lambda tx: _book(tx, reviewer_id, usage))

    async def pause(self, paused: bool) -> None:
        def command(tx: Transaction) -> None:
            tx.pause_pool(paused)
            tx.announce(POOL)

        await self._core.store.write(command)


def _situation(reader: Reader, now: Milliseconds) -> Workload:
    running = reader.running_reviewers()
    holding = {work.reviewer_id: work.review_id for work in reader.work_under_way()}
    spawns, tokens = reader.spent_since(Milliseconds(now - DAY_MILLISECONDS))
    last = {one.id: work[0] for one in running if (work := reader.work_of(one.id, 1))}
    return Workload(
        pending=reader.pending_for_pool(now, at_most=_LONGEST_QUEUE),
        paused=reader.is_pool_paused(),
        spawns_today=spawns,
        tokens_today=tokens,
        holding=holding,
        lost_a_claim=frozenset(id_ for id_, work in last.items() if work.outcome is WorkOutcome.RECLAIMED),
        judged_at=max((work.ended_at or now for work in last.values() if work.outcome in JUDGED), default=None),
        idle_since={
            one.id: (work.ended_at or now) if (work := last.get(one.id)) else one.started_at for one in running
        },
    )


def _end(tx: Transaction, reviewer_id: Identity, ending: Ending) -> bool:
    reviewer = tx.reviewer(reviewer_id)
    if reviewer is None or reviewer.state is ReviewerState.TERMINATED:
        return False
    held = [work.review_id for work in tx.work_under_way() if work.reviewer_id == reviewer_id]
    how = f"exit code {ending.exit_code}" if ending.exit_code is not None else ending.reason.value
    for review_id in held:
        review = tx.lock_review(review_id)
        if review is not None and review.is_claim_live and same_identity(review.claimed_by, reviewer_id):
            tx.save(rules.reclaim(review, reason=f"the process of {reviewer_id} ended ({how})", now=tx.now))
    failed_on = _failed_on(tx, reviewer, ending.reason, held)
    for review_id in failed_on:
        _blame(tx, review_id, f"{reviewer.display_name}, {how}", ending.pause)
    # Read again: giving back what it held was recorded with it.
    reviewer = tx.reviewer(reviewer_id) or reviewer
    ended = replace(
        reviewer,
        state=ReviewerState.TERMINATED,
        ended_at=tx.now,
        end_reason=ending.reason,
        exit_code=ending.exit_code,
    )
    tx.save_reviewer(ended)
    said = ("exit_code", "reviews_completed", "input_tokens", "output_tokens", "cost_usd")
    tx.append(_event(EventType.REVIEWER_TERMINATED, ended, tx.now, reason=ending.reason, **_facts(ended, said)))
    tx.announce(POOL)
    return bool(failed_on)


def _failed_on(tx: Transaction, reviewer: Reviewer, reason: EndReason, held: list[ReviewId]) -> list[ReviewId]:
    """Which reviews it should have judged and did not. Who was told to end did not fail."""
    match reason:
        case EndReason.EXITED:
            return held or ([] if reviewer.reviews_completed else _started_for(tx))
        case EndReason.HUNG:
            return held or [work.review_id for work in tx.work_of(reviewer.id, 1)]
        case EndReason.IDLE:
            # It did not even begin, although there was work.
            return [] if reviewer.reviews_completed or tx.work_of(reviewer.id, 1) else _started_for(tx)
        case EndReason.TTL | EndReason.MANUAL | EndReason.BROKER_STOPPED | EndReason.BROKER_DIED:
            return []


def _started_for(tx: Transaction) -> list[ReviewId]:
    """One that never claimed anything failed on what it would have claimed first."""
    wanted = ReviewFilter(status=Status.PENDING, for_pool=True, claimable_at=tx.now)
    return [review.id for review, _ in tx.reviews(wanted, after=None, limit=1)]


def _blame(tx: Transaction, review_id: ReviewId, last: str, pause: Callable[[int], int]) -> None:
    review = tx.lock_review(review_id)
    if review is None:
        return
    before = tx.failure(review_id)
    failures = before.failures if before else 0
    if failures >= FAILURES_THAT_NEED_A_PERSON and review.needs_human is None:
        # A person has looked since: it begins anew.
        failures = 0
    failures += 1
    tx.save_failure(Failure(review_id=review_id, failures=failures, retry_at=Milliseconds(tx.now + pause(failures))))
    if failures >= FAILURES_THAT_NEED_A_PERSON and review.needs_human is None and review.status is Status.PENDING:
        reason = f"{failures} reviewers ended without a verdict, the last of them {last}"
        tx.save(rules.call_human(review, reason=reason, now=tx.now))


def _book(tx: Transaction, reviewer_id: Identity, usage: Usage) -> None:
    """On the reviewer, and on the reviews it worked on since the last report (some agents report only at the end:
    then each review has an equal share); else on its last."""
    reviewer = tx.reviewer(reviewer_id)
    if reviewer is None:
        return
    tx.save_reviewer(replace(reviewer, **_more(reviewer, usage)))
    work = tx.work_of(reviewer_id, _LAST_WORK)
    unbooked = [one for one in work if one.input_tokens is None] or work[:1]
    for index, one in enumerate(unbooked):
        tx.save_work(replace(one, **_more(one, usage.share(index, len(unbooked)))))


def _more(had: Reviewer | Work, usage: Usage) -> dict[str, Any]:
    so_far = Usage(input_tokens=had.input_tokens or 0, output_tokens=had.output_tokens or 0, cost_usd=had.cost_usd)
    total = so_far + usage
    return {"input_tokens": total.input_tokens, "output_tokens": total.output_tokens, "cost_usd": total.cost_usd}


def _event(event_type: EventType, reviewer: Reviewer, now: Milliseconds, **metadata: Any) -> NewEvent:
    return NewEvent(
        event_type=event_type,
        actor=BROKER,
        review_id=None,
        old_status=None,
        new_status=None,
        timestamp=now,
        metadata={"reviewer_id": reviewer.id, **metadata},
    )


def _facts(reviewer: Reviewer, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(reviewer, name) for name in names}


_ENDS = {
    EventType.REVIEW_RELEASED: WorkOutcome.RELEASED,
    EventType.REVIEW_RECLAIMED: WorkOutcome.RECLAIMED,
    EventType.COUNTER_PATCH_ACCEPTED: WorkOutcome.SUPERSEDED,
    EventType.REVIEW_CLOSED: WorkOutcome.WITHDRAWN,
}


class WorkWatcher:
    """Sees every change in its transaction, and keeps the pool's part of it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def __call__(self, tx: Transaction, change: Change) -> None:
        if self._access.guards:
            for event in change.events:
                self._see(tx, change.review, event)
        if change.review.status is Status.PENDING:
            tx.announce(POOL)

    def _see(self, tx: Transaction, review: Review, event: NewEvent) -> None:
        if event.event_type is EventType.REVIEW_CLAIMED:
            if self._access.standing(event.actor) is not None:
                _begin_work(tx, review, event)
            return
        if event.event_type is EventType.VERDICT_SUBMITTED:
            _forgive(tx, review.id)
            outcome = WorkOutcome(str(event.metadata["verdict"]))
        elif event.event_type in _ENDS:
            outcome = _ENDS[event.event_type]
        else:
            return
        work = tx.open_work(review.id)
        if work is not None:
            taken = outcome is WorkOutcome.RECLAIMED and review.is_claim_live
            _end_work(tx, work, WorkOutcome.TAKEN_OVER if taken else outcome)


def _begin_work(tx: Transaction, review: Review, event: NewEvent) -> None:
    work = Work(
        review_id=review.id,
        claim_generation=event.metadata["claim_generation"],
        reviewer_id=event.actor,
        claimed_at=tx.now,
    )
    tx.save_work(work)
    tx.announce(POOL)


def _end_work(tx: Transaction, work: Work, outcome: WorkOutcome) -> None:
    tx.save_work(replace(work, ended_at=tx.now, outcome=outcome))
    tx.announce(POOL)
    reviewer = tx.reviewer(work.reviewer_id)
    if reviewer is None or outcome not in JUDGED:
        return
    tx.save_reviewer(
        replace(
            reviewer,
            reviews_completed=reviewer.reviews_completed + 1,
            reviews_approved=reviewer.reviews_approved + (outcome is WorkOutcome.APPROVED),
            review_milliseconds=reviewer.review_milliseconds + max(0, tx.now - work.claimed_at),
        )
    )


def _forgive(tx: Transaction, review_id: ReviewId) -> None:
    """It was judged after all."""
    failure = tx.failure(review_id)
    if failure is not None and failure.failures:
        tx.save_failure(replace(failure, failures=0, retry_at=tx.now))
