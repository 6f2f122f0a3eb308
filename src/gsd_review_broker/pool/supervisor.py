"""Runs the pool. The policy decides, the service records, and this module carries it out."""

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.rules.pool import Reviewer
from gsd_review_broker.domain.words import AGENTS, EndReason
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.pool import policy, tree
from gsd_review_broker.pool.launcher import Launcher, host_name
from gsd_review_broker.pool.output import tail
from gsd_review_broker.pool.policy import Drain, End, PoolLimits, Spawn
from gsd_review_broker.pool.roster import SHUTDOWN_GRACE_SECONDS, Roster
from gsd_review_broker.pool.tree import end_all, end_leftovers
from gsd_review_broker.ports.store import Store
from gsd_review_broker.ports.world import POOL, QUEUE, Clock, Wakeups
from gsd_review_broker.service.access import Access
from gsd_review_broker.service.pool_control import PoolFacts
from gsd_review_broker.service.pool_records import SILENCE_MILLISECONDS, PoolRecords, Workload
from gsd_review_broker.settings.names import Agent
from gsd_review_broker.settings.schema import PoolSettings

T = TypeVar("T")
log = structlog.get_logger()

# Checks that are requested together run once.
_BREATH_SECONDS = 0.05
_DESCENDANTS_EVERY = 5_000
_LONGEST_WAIT_FOR_COOLDOWN = 25_000
_WHY_NOT: dict[policy.Hindrance, tuple[str, str]] = {
    "paused": ("the pool is paused", "Resume it first."),
    "spawns": ("the pool has started as many reviewers as max_spawns_per_day allows", "Raise it, or wait."),
    "tokens": ("the pool has spent as many tokens as max_tokens_per_day allows", "Raise it, or wait."),
    "room": ("the pool is full", "Stop a reviewer, or raise max_pool_size."),
}


def limits_of(settings: PoolSettings) -> PoolLimits:
    return PoolLimits(
        max_pool_size=settings.max_pool_size,
        scaling_ratio=settings.scaling_ratio,
        spawn_cooldown=settings.spawn_cooldown_seconds * 1000,
        idle_timeout=settings.idle_timeout_seconds * 1000,
        max_ttl=settings.max_ttl_seconds * 1000,
        overtime=settings.claim_timeout_seconds * 1000,
        failure_pause=settings.spawn_cooldown_seconds * 1000,
        max_spawns_per_day=settings.max_spawns_per_day,
        max_tokens_per_day=settings.max_tokens_per_day,
        check_interval=settings.background_check_interval_seconds * 1000,
    )


class Supervisor:
    def __init__(
        self,
        settings: PoolSettings,
        launcher: Launcher,
        *,
        records: PoolRecords,
        access: Access,
        clock: Clock,
        wakeups: Wakeups,
        limits: PoolLimits | None = None,
    ) -> None:
        self._settings = settings
        self.launcher = launcher
        self._records = records
        self._clock = clock
        self._wakeups = wakeups
        self._limits = limits or limits_of(settings)
        self.roster = Roster(
            launcher,
            records=records,
            access=access,
            clock=clock,
            wakeups=wakeups,
            pause=lambda failures: policy.pause_after(failures, self._limits),
        )
        self._running: asyncio.Task[None] | None = None
        # Two reviewers never start at once.
        self._spawning = asyncio.Lock()
        # One look after the other, so that the last one has seen the most.
        self._looking = asyncio.Lock()
        self._starting: set[asyncio.Task[Any]] = set()
        self._may_spawn_at: Milliseconds | None = None
        self._hindrance: policy.Hindrance | None = None
        self._descendants_at = clock.steady()

    # Start and stop of the pool.

    async def start(self) -> None:
        """Stop what an earlier broker left behind, always; start the pool only if it is configured."""
        await self._records.known()
        await self._end_leftovers()
        if not self._settings.is_on:
            return
        tree.adopt_orphans()
        self.roster.problem = self.launcher.missing(self._settings.agent)
        if self.roster.problem:
            log.warning("pool_cannot_start_reviewers", problem=self.roster.problem)
        self._running = asyncio.create_task(self._run())
        log.info("pool_on", agent=self._settings.agent, max_pool_size=self._limits.max_pool_size)

    async def stop(self) -> None:
        self.roster.stopping = True
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        async with self._spawning:
            await self.roster.stop()
        if self._settings.is_on:
            await asyncio.to_thread(_end_strays)

    async def _end_leftovers(self) -> None:
        left = await self._records.left_running()
        for reviewer in left:
            await self._records.ended(reviewer.id, self.roster.ending(EndReason.BROKER_DIED, None))
        if left or self._settings.is_on:
            here = [reviewer for reviewer in left if reviewer.host == host_name()]
            await asyncio.to_thread(end_leftovers, here, self.launcher.mark, grace=SHUTDOWN_GRACE_SECONDS)

    async def _run(self) -> None:
        """Runs until it is cancelled. A failure is logged, and the next look tries again."""
        with self._wakeups.listening(POOL, counted=False) as changed:
            while True:
                changed.clear()
                seconds = self._limits.check_interval / 1000
                try:
                    seconds = await self.look()
                except Exception:
                    log.exception("pool_check_failed")
                try:
                    async with asyncio.timeout(seconds):
                        await changed.wait()
                except TimeoutError:
                    # Reviews that failures held back may be free by now, and no commit announces it.
                    self._wakeups.publish([QUEUE])
                await asyncio.sleep(_BREATH_SECONDS)

    async def look(self) -> float:
        """Decide and act once. Returns the seconds until the next decision."""
        async with self._looking:
            return await self._look()

    async def _look(self) -> float:
        await self._remember_descendants()
        recorded = await self._records.situation(self._settings.agent)
        self._note(recorded)
        for action in policy.decide(self._situation(recorded), self._limits):
            await self._act(action, recorded)
        now = self._situation(recorded)
        wanted = policy.is_wanted(now, self._limits)
        self._hindrance = policy.hindrance(now, self._limits) if wanted else None
        at = policy.may_spawn_at(now, self._limits)
        self._may_spawn_at = Milliseconds(self._clock.now() + at - now.now) if wanted and at > now.now else None
        return (policy.next_look(now, self._limits) - now.now) / 1000

    def _note(self, recorded: Workload) -> None:
        now = self._clock.steady()
        for running in self.roster:
            running.note_work(now, holds=running.id in recorded.holding, free_mark=recorded.idle_since.get(running.id))
            running.lost_a_claim = running.id in recorded.lost_a_claim
        failed = self.roster.last_failure
        if failed and recorded.judged_at and recorded.judged_at > failed[1]:
            self.roster.forgive()

    def _situation(self, recorded: Workload) -> policy.Situation:
        failed = self.roster.last_failure
        return policy.Situation(
            pending=recorded.pending,
            reviewers=tuple(running.as_member() for running in self.roster),
            now=self._clock.steady(),
            paused=recorded.paused,
            last_spawn_at=self.roster.last_spawn_at,
            failures_in_a_row=self.roster.failures,
            last_failure_at=failed[0] if failed else None,
            spawns_today=recorded.spawns_today,
            tokens_today=recorded.tokens_today,
        )

    async def _act(self, action: policy.Action, recorded: Workload) -> None:
        match action:
            case Spawn():
                with contextlib.suppress(BrokerError):
                    await self._whole(self._start_one(recorded))
            case Drain(reviewer, reason):
                if running := self.roster.get(reviewer):
                    await self.roster.drain(running, reason)
            case End(reviewer, reason):
                if running := self.roster.get(reviewer):
                    running.begin_to_end(reason, self._settings.kill_grace_seconds)

    async def _start_one(self, recorded: Workload) -> None:
        async with self._spawning:
            # A user may have started one meanwhile, or the broker may be stopping.
            if not self._is_closing and policy.hindrance(self._situation(recorded), self._limits) is None:
                await self.roster.start(self._settings.agent, None)

    @property
    def _is_closing(self) -> bool:
        return self.roster.stopping or self._wakeups.closing

    async def _whole(self, starting: Coroutine[Any, Any, T]) -> T:
        """Complete a start even if its caller goes away; otherwise an unknown process would run."""
        task = asyncio.create_task(starting)
        self._starting.add(task)
        task.add_done_callback(self._started)
        return await asyncio.shield(task)

    def _started(self, task: "asyncio.Task[Any]") -> None:
        self._starting.discard(task)
        if not task.cancelled():
            # Retrieve the exception so that asyncio does not log it.
            task.exception()

    async def _remember_descendants(self) -> None:
        now = self._clock.steady()
        if now - self._descendants_at >= _DESCENDANTS_EVERY:
            self._descendants_at = now
            for running in self.roster:
                await asyncio.to_thread(running.remember_descendants)
            await asyncio.to_thread(tree.reap_strays)

    # Users' requests.

    def facts(self) -> PoolFacts:
        waits = self._hindrance if self._hindrance in {"paused", "spawns", "tokens"} else None
        return PoolFacts(
            enabled=self._settings.is_on,
            agent=self._settings.agent,
            model=self._settings.model_of(self._settings.agent),
            max_pool_size=self._limits.max_pool_size,
            max_spawns_per_day=self._limits.max_spawns_per_day,
            max_tokens_per_day=self._limits.max_tokens_per_day,
            next_spawn_at=self._may_spawn_at,
            problem=_WHY_NOT[waits][0] if waits else self.roster.problem,
            login=self.launcher.login(self._settings.agent),
        )

    def doing(self, reviewer_id: Identity) -> str | None:
        """Return what it reports itself, or else its last call."""
        running, called = self.roster.get(reviewer_id), self._records.last_call(reviewer_id)
        if running is None:
            return None
        return running.doing or (f"calls {called[1]}" if called else "starts")

    def last_activity_at(self, reviewer_id: Identity) -> Milliseconds | None:
        running = self.roster.get(reviewer_id)
        called = self._records.last_call(reviewer_id)
        moments = (running.last_output_at if running else None, called[0] if called else None)
        return max((moment for moment in moments if moment is not None), default=None)

    async def spawn(self, agent: str | None, project: str | None) -> Reviewer:
        """Start a reviewer for a user. Room, caps and cooldown apply; the pause after failures does not."""
        wanted = self._agent(agent)
        started: Reviewer | None = None
        while started is None:
            await self._wait_for_cooldown()
            started = await self._whole(self._start_asked(wanted, project))
        return started

    async def _start_asked(self, agent: Agent, project: str | None) -> Reviewer | None:
        """Return None if another one was started while this one waited."""
        async with self._spawning:
            if self._cooldown_left() > 0:
                return None
            if self._is_closing:
                raise BrokerError(Code.UNAVAILABLE, "the broker is shutting down", "Call again when it is back.")
            why = policy.hindrance(self._situation(await self._records.situation()), self._limits)
            if why is not None and why != "pause":
                raise BrokerError(Code.UNAVAILABLE, *_WHY_NOT[why])
            return (await self.roster.start(agent, project)).reviewer

    def _agent(self, agent: str | None) -> Agent:
        for known in AGENTS:
            if known == (agent or self._settings.agent):
                return known
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"agent: there is no agent {agent!r}", f"Choose one of {', '.join(AGENTS)}."
        )

    def _cooldown_left(self) -> int:
        if self.roster.last_spawn_at is None:
            return 0
        return max(0, self.roster.last_spawn_at + self._limits.spawn_cooldown - self._clock.steady())

    async def _wait_for_cooldown(self) -> None:
        left = self._cooldown_left()
        if left > _LONGEST_WAIT_FOR_COOLDOWN:
            raise BrokerError(
                Code.BUSY, "a reviewer was started a moment ago", f"The next can be started in {left // 1000} s."
            )
        await asyncio.sleep(left / 1000)

    async def kill(self, reviewer_id: Identity, *, force: bool) -> None:
        running = self.roster.get(reviewer_id)
        if running is None:
            raise BrokerError(
                Code.NOT_FOUND, f"{reviewer_id} is not a process of this broker", NextStep(Next.LIST_RUNNING_REVIEWERS)
            )
        if not force:
            await self.roster.drain(running, EndReason.MANUAL)
            return
        running.begin_to_end(EndReason.MANUAL, self._settings.kill_grace_seconds)
        await running.gone.wait()

    def scale(self, max_pool_size: int) -> None:
        self._limits = replace(self._limits, max_pool_size=max_pool_size)
        self._wakeups.publish([POOL])

    async def tail(self, reviewer_id: Identity, characters: int) -> tuple[str, bool]:
        return await asyncio.to_thread(tail, self.launcher.log_path(reviewer_id), characters)


def _end_strays() -> None:
    """Stop adopted processes that cleared their environment and were never seen, once all reviewers are gone."""
    end_all(None, lambda: [one for one in tree.strays() if one.runs], grace=0)
    tree.reap_strays()


# A broker that misses several is taken for dead.
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
