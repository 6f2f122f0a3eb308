"""Records of the pool's reviewers.

The pool reports starts and stops. Claims and verdicts are recorded in the same transactions that make them, so that the
statistics match the broker's own records.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from gsd_review_broker.domain.model import ApprovalPolicy, Change, Identity, Milliseconds, NewEvent, Review, ReviewId
from gsd_review_broker.domain.rules import claims, pool, transitions
from gsd_review_broker.domain.rules.pool import JUDGED, Reviewer, Usage, Work
from gsd_review_broker.domain.tally import display_name
from gsd_review_broker.domain.text import BROKER, same_identity
from gsd_review_broker.domain.words import EndReason, EventType, ReviewerState, Status, WorkOutcome
from gsd_review_broker.ports.store import Reader, ReviewFilter, Transaction, list_position
from gsd_review_broker.ports.world import POOL, QUEUE
from gsd_review_broker.service.access import Access, event_without_review
from gsd_review_broker.service.approvals import can_add
from gsd_review_broker.service.core import Core

DAY_MILLISECONDS = 24 * 3_600_000
# A broker that has not been heard of for this long is dead.
SILENCE_MILLISECONDS = 30_000
_LONGEST_QUEUE = 10_000
_LOOKED_AT_ONCE = 200
# A report of tokens is divided among this many of its last reviews.
_LAST_WORK = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What the pool needs to know to decide."""

    pending: int
    paused: bool
    spawns_today: int
    tokens_today: int
    # What each one is working on, and those whose claim was taken back while they ran.
    holding: dict[Identity, ReviewId]
    lost_a_claim: frozenset[Identity]
    idle_since: dict[Identity, Milliseconds]
    # When a running reviewer last gave a verdict.
    judged_at: Milliseconds | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    reason: EndReason
    exit_code: int | None
    # How long the pool leaves a review alone after this many failures.
    pause: Callable[[int], int]
    # What it said about its failure.
    last_words: str = ""


class PoolRecords:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def known(self) -> None:
        """Reserve, at the start, the names of all reviewers that the pool ever had."""
        ids = await self._core.store.read(lambda reader: reader.reviewer_ids())
        self._core.access.remember(ids)

    async def left_running(self) -> list[Reviewer]:
        """Find, at the start, rows of this broker that still say running, although it was not running.

        Where no other broker can be, every row is left over: the database may have been moved here.
        """
        store = self._core.store
        running = await store.read(lambda reader: reader.running_reviewers())
        return [one for one in running if not store.is_shared or pool.is_left_to(one, store.broker_id)]

    async def beat(self) -> None:
        """Tell the other brokers of the database that this one is running."""
        await self._core.store.write(lambda tx: tx.save_heartbeat(self._core.store.broker_id, tx.now))

    async def meet(self) -> None:
        """Reserve the names of all brokers' reviewers: no other caller acts under them here, or by their claims."""
        running = await self._core.store.read(lambda reader: reader.running_reviewers())
        self._core.access.remember(one.id for one in running)

    async def orphaned(self) -> list[Identity]:
        """Reviewers of other brokers that have not been heard of for long."""
        before = Milliseconds(self._core.clock.now() - SILENCE_MILLISECONDS)
        return await self._core.store.read(lambda reader: reader.reviewers_of_silent_brokers(before))

    async def situation(self, agent: str | None = None) -> Workload:
        """Return the workload; without the reviews that the agent to be started could not claim."""
        now, policy = self._core.clock.now(), self._core.policy.approvals

        def look(reader: Reader) -> Workload:
            whole = _situation(reader, now)
            if agent is None or policy.is_one_reviewer:
                return whole
            return replace(whole, pending=whole.pending - _waiting_for_others(reader, agent, policy, now))

        return await self._core.store.read(look)

    async def begun(self, reviewer: Reviewer) -> None:
        def command(tx: Transaction) -> None:
            started = replace(reviewer, started_at=tx.now, broker_id=self._core.store.broker_id)
            tx.save_reviewer(started)
            names = ("display_name", "agent", "model", "project", "pid")
            tx.append(_event(EventType.REVIEWER_SPAWNED, started, tx.now, **_facts(started, names)))
            tx.announce(POOL)

        await self._core.store.write(command)

    async def draining(self, reviewer_id: Identity, reason: EndReason) -> None:
        """Grant it no more claims; if it is waiting for one, it is answered at once."""
        self._core.access.drain(reviewer_id)

        def command(tx: Transaction) -> None:
            reviewer = tx.lock_reviewer(reviewer_id)
            if reviewer is None or reviewer.state is not ReviewerState.ACTIVE:
                return
            tx.save_reviewer(replace(reviewer, state=ReviewerState.DRAINING, drained_at=tx.now, end_reason=reason))
            tx.append(_event(EventType.REVIEWER_DRAIN_START, reviewer, tx.now, reason=reason))
            tx.announce(POOL)
            tx.announce(QUEUE)

        await self._core.store.write(command)

    async def ended(self, reviewer_id: Identity, ending: Ending) -> bool:
        """Revoke its token, return its reviews to the queue and record why, in one transaction.

        Returns whether it failed: whether it stopped without the verdict that it was started for.
        """
        self._core.access.dismiss(reviewer_id)
        return await self._core.store.write(lambda tx: _end(tx, reviewer_id, ending))

    async def failed_to_start(self, display_name: str, why: str, pause: Callable[[int], int]) -> None:
        def command(tx: Transaction) -> None:
            changes = [_blame(tx, one, f"{display_name}: {why}", pause) for one in _held(tx, _next_up(tx)).values()]
            for change in filter(None, changes):
                tx.save(change)

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


def _waiting_for_others(reader: Reader, agent: str, policy: ApprovalPolicy, now: Milliseconds) -> int:
    """Count reviews that lack an approval which no reviewer of this agent can add."""
    next_one = Identity(f"{agent}-r0-00000000")
    wanted = ReviewFilter(status=Status.PENDING, claimable_by=next_one, claimable_at=now, for_pool=True)
    count, seen, position = 0, 0, None
    while seen < _LONGEST_QUEUE:
        page = reader.reviews(wanted, after=position, limit=_LOOKED_AT_ONCE)
        count += sum(not can_add(reader, review, policy, next_one) for review in page)
        seen += len(page)
        if len(page) < _LOOKED_AT_ONCE:
            break
        position = list_position(page[-1])
    return count


def _end(tx: Transaction, reviewer_id: Identity, ending: Ending) -> bool:
    reviewer = tx.reviewer(reviewer_id)
    if reviewer is None or reviewer.state is ReviewerState.TERMINATED:
        return False
    held = [work.review_id for work in tx.work_under_way() if work.reviewer_id == reviewer_id]
    failed_on = pool.failed_on(
        reviewer,
        ending.reason,
        held=held,
        worked_on=[work.review_id for work in tx.work_of(reviewer_id, 1)],
        next_up=_next_up(tx),
    )
    reviews = _held(tx, [*held, *failed_on])
    how = f"exit code {ending.exit_code}" if ending.exit_code is not None else ending.reason.value
    changes: list[Change | None] = []
    for review_id, review in reviews.items():
        given_back = _given_back(tx, review, reviewer_id, how)
        changes.append(given_back)
        if review_id in failed_on:
            now = given_back.review if given_back else review
            words = f": {ending.last_words}" if ending.last_words else ""
            changes.append(_blame(tx, now, f"{reviewer.display_name}, {how}{words}", ending.pause))
    for change in filter(None, changes):
        tx.save(change)
    _terminate(tx, reviewer_id, ending)
    return bool(failed_on)


def _terminate(tx: Transaction, reviewer_id: Identity, ending: Ending) -> None:
    """Write what it did until now, together with the return of its reviews."""
    reviewer = tx.lock_reviewer(reviewer_id)
    if reviewer is None:
        return
    ended = replace(
        reviewer,
        state=ReviewerState.TERMINATED,
        ended_at=tx.now,
        end_reason=ending.reason,
        exit_code=ending.exit_code,
    )
    tx.save_reviewer(ended)
    names = ("exit_code", "reviews_completed", "input_tokens", "output_tokens", "cost_usd")
    tx.append(_event(EventType.REVIEWER_TERMINATED, ended, tx.now, reason=ending.reason, **_facts(ended, names)))
    tx.announce(POOL)


def _held(tx: Transaction, ids: Iterable[ReviewId]) -> dict[ReviewId, Review]:
    """Lock everything that a command changes, in one order and before it changes any: no two commands deadlock."""
    locked = {review_id: tx.lock_review(review_id) for review_id in sorted(set(ids))}
    return {review_id: review for review_id, review in locked.items() if review is not None}


def _next_up(tx: Transaction) -> list[ReviewId]:
    """Find the review that the pool's next reviewer would claim first."""
    wanted = ReviewFilter(status=Status.PENDING, for_pool=True, claimable_at=tx.now)
    return [review.id for review in tx.reviews(wanted, after=None, limit=1)]


def _given_back(tx: Transaction, review: Review, reviewer_id: Identity, how: str) -> Change | None:
    if not review.is_claim_live or not same_identity(review.claimed_by, reviewer_id):
        return None
    return claims.reclaim(review, reason=f"the process of {reviewer_id} ended ({how})", now=tx.now)


def _blame(tx: Transaction, review: Review, last: str, pause: Callable[[int], int]) -> Change | None:
    """Count the failure. Returns the call for a person, if one is needed."""
    failures = pool.failures_after(review, tx.failure(review.id))
    failure, reason = pool.blamed(review, failures, last=last, pause=pause(failures), now=tx.now)
    tx.save_failure(failure)
    return transitions.call_human(review, reason=reason, now=tx.now) if reason is not None else None


def _book(tx: Transaction, reviewer_id: Identity, usage: Usage) -> None:
    for work in pool.shared(tx.lock_work_of(reviewer_id, _LAST_WORK), usage):
        tx.save_work(work)
    reviewer = tx.lock_reviewer(reviewer_id)
    if reviewer is not None:
        tx.save_reviewer(pool.booked(reviewer, usage))


def _event(event_type: EventType, reviewer: Reviewer, now: Milliseconds, **metadata: Any) -> NewEvent:
    return event_without_review(event_type, BROKER, now, {"reviewer_id": reviewer.id, **metadata})


def _facts(reviewer: Reviewer, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(reviewer, name) for name in names}


class WorkWatcher:
    """Sees every change in its transaction and records the pool's part of it.

    Reviewers in memory are this broker's own; the rows are those of all brokers.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    def __call__(self, tx: Transaction, change: Change) -> None:
        for event in change.events:
            self._see(tx, change.review, event)
        if change.review.status is Status.PENDING:
            tx.announce(POOL)

    def _see(self, tx: Transaction, review: Review, event: NewEvent) -> None:
        if event.event_type is EventType.REVIEW_CLAIMED:
            if self._is_of_the_pool(tx, event.actor):
                _begin_work(tx, review, event)
            return
        outcome = pool.outcome_of(review, event)
        if outcome is None:
            return
        if outcome in JUDGED:
            _forgive(tx, review.id)
        work = tx.lock_open_work(review.id)
        if work is not None:
            _end_work(tx, work, outcome)

    def _is_of_the_pool(self, tx: Transaction, actor: Identity) -> bool:
        if self._access.pool_state(actor) is not None:
            return True
        # A reviewer of another broker: only names in the pool's own format are looked up.
        return display_name(actor) != actor and tx.reviewer(actor) is not None


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
    reviewer = tx.lock_reviewer(work.reviewer_id) if outcome in JUDGED else None
    if reviewer is not None:
        tx.save_reviewer(pool.credited(reviewer, work, outcome, now=tx.now))


def _forgive(tx: Transaction, review_id: ReviewId) -> None:
    failure = pool.forgiven(tx.failure(review_id), now=tx.now)
    if failure is not None:
        tx.save_failure(failure)
