"""Looks after the reviewers: starts them, watches them, ends them. What to do is the policy's; what happened is
recorded by the service; this only carries out."""

import asyncio
import contextlib
import signal
import sys
from dataclasses import replace

import structlog

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.model import Identity, Milliseconds
from gsd_review_broker.pool import policy, tree
from gsd_review_broker.pool.launcher import Launcher, host_name
from gsd_review_broker.pool.leftovers import end_leftovers
from gsd_review_broker.pool.log_file import tail
from gsd_review_broker.pool.policy import Drain, End, Limits, Spawn
from gsd_review_broker.pool.process import Exited, Output
from gsd_review_broker.pool.ward import Ward
from gsd_review_broker.pool_settings import AGENTS, Agent, PoolSettings
from gsd_review_broker.ports import POOL, QUEUE, Clock, Wakeups
from gsd_review_broker.reviewer import EndReason, Reviewer
from gsd_review_broker.service.access import Access
from gsd_review_broker.service.reviewer_records import Ending, ReviewerRecords, Situation
from gsd_review_broker.service.reviewers import PoolFacts

log = structlog.get_logger()

# Checks that come together are one.
_BREATH_SECONDS = 0.05
# When the broker itself ends, its reviewers have less time.
SHUTDOWN_GRACE_SECONDS = 3.0
_DESCENDANTS_EVERY = 5_000
_LONGEST_WAIT_FOR_COOLDOWN = 25_000
_TRIES_TO_RECORD = 5
_WHY_NOT = {
    "paused": ("the pool is paused", "Resume it first."),
    "spawns": ("the pool has started as many reviewers as max_spawns_per_day allows", "Raise it, or wait."),
    "tokens": ("the pool has spent as many tokens as max_tokens_per_day allows", "Raise it, or wait."),
    "room": ("the pool is full", "End a reviewer, or raise max_pool_size."),
}


def limits_of(settings: PoolSettings) -> Limits:
    return Limits(
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
        records: ReviewerRecords,
        access: Access,
        clock: Clock,
        wakeups: Wakeups,
        limits: Limits | None = None,
    ) -> None:
        self._settings = settings
        self._launcher = launcher
        self._records = records
        self._access = access
        self._clock = clock
        self._wakeups = wakeups
        self._limits = limits or limits_of(settings)
        self._wards: dict[Identity, Ward] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._spawning = asyncio.Lock()
        self._stopping = False
        self._last_spawn_at: Milliseconds | None = None
        self._failures = 0
        self._last_failure: tuple[Milliseconds, Milliseconds] | None = None
        self._problem: str | None = None
        self._may_spawn_at: Milliseconds | None = None
        self._descendants_at = clock.steady()

    # The life of the pool.

    async def start(self) -> None:
        """What an earlier broker left behind is ended in any case; the pool itself only if it is configured."""
        await self._records.known()
        await self._end_leftovers()
        if not self._settings.is_on:
            return
        tree.adopt_orphans()
        self._problem = self._launcher.missing(self._settings.agent)
        if self._problem:
            log.warning("pool_cannot_start_reviewers", problem=self._problem)
        self._running = asyncio.create_task(self._run())
        log.info("pool_on", agent=self._settings.agent, max_pool_size=self._limits.max_pool_size)

    async def stop(self) -> None:
        """TERM to all, KILL after a short grace; returns when nothing is left and all is recorded."""
        self._stopping = True
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        async with self._spawning:
            for ward in self._wards.values():
                ward.begin_to_end(EndReason.BROKER_STOPPED, SHUTDOWN_GRACE_SECONDS)
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._settings.is_on:
            await asyncio.to_thread(self._end_strays)

    def kill_at_once(self) -> None:
        """The last resort, when there was no time to stop: nothing is asked, nothing recorded."""
        if self._wards and sys.platform != "win32":
            for ward in self._wards.values():
                ward.child.signal(signal.SIGKILL)
            for one in tree.marked(self._launcher.mark):
                tree.tell(one, signal.SIGKILL)

    async def _end_leftovers(self) -> None:
        left = await self._records.left_running(host_name())
        for reviewer in left:
            await self._records.ended(reviewer.id, self._ending(EndReason.BROKER_DIED, None))
        if left or self._settings.is_on:
            await asyncio.to_thread(end_leftovers, left, self._launcher.mark, grace=SHUTDOWN_GRACE_SECONDS)

    def _end_strays(self) -> None:
        """Adopted ones that cleared their environment and were never seen; with all reviewers gone they are known."""
        for one in tree.strays():
            tree.tell(one, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        tree.reap_strays()

    async def _run(self) -> None:
        """For ever; a failure is told and the next look tries again."""
        with self._wakeups.listening(POOL, counted=False) as changed:
            while True:
                changed.clear()
                seconds = self._limits.check_interval / 1000
                try:
                    seconds = await self._look()
                except Exception:
                    log.exception("pool_check_failed")
                try:
                    async with asyncio.timeout(seconds):
                        await changed.wait()
                except TimeoutError:
                    # What failures held back may be free by now, and no commit says so.
                    self._wakeups.publish([QUEUE])
                await asyncio.sleep(_BREATH_SECONDS)

    async def _look(self) -> float:
        """Decide and act once. Gives for how long nothing else is to be decided, in seconds."""
        await self._remember_descendants()
        recorded = await self._records.situation()
        self._note(recorded)
        for action in policy.decide(self._situation(recorded), self._limits):
            await self._act(action)
        now = self._situation(recorded)
        wanted = policy.is_wanted(now, self._limits)
        at = policy.may_spawn_at(now, self._limits) if wanted else now.now
        self._may_spawn_at = Milliseconds(self._clock.now() + at - now.now) if at > now.now else None
        return (policy.next_look(now, self._limits) - now.now) / 1000

    def _note(self, recorded: Situation) -> None:
        now = self._clock.steady()
        for ward in self._wards.values():
            ward.note_work(now, holds=ward.id in recorded.holding, free_mark=recorded.idle_since.get(ward.id))
            ward.lost_a_claim = ward.id in recorded.lost_a_claim
        if self._last_failure and recorded.judged_at and recorded.judged_at > self._last_failure[1]:
            self._failures, self._last_failure = 0, None

    def _situation(self, recorded: Situation) -> policy.Situation:
        return policy.Situation(
            pending=recorded.pending,
            reviewers=tuple(ward.seen() for ward in self._wards.values()),
            now=self._clock.steady(),
            paused=recorded.paused,
            last_spawn_at=self._last_spawn_at,
            failures_in_a_row=self._failures,
            last_failure_at=self._last_failure[0] if self._last_failure else None,
            spawns_today=recorded.spawns_today,
            tokens_today=recorded.tokens_today,
        )

    async def _act(self, action: policy.Action) -> None:
        match action:
            case Spawn():
                async with self._spawning:
                    with contextlib.suppress(BrokerError):
                        await self._spawn(self._settings.agent, None)
            case Drain(reviewer, reason):
                await self._drain(self._wards[reviewer], reason)
            case End(reviewer, reason):
                self._wards[reviewer].begin_to_end(reason, self._settings.kill_grace_seconds)

    async def _remember_descendants(self) -> None:
        now = self._clock.steady()
        if now - self._descendants_at >= _DESCENDANTS_EVERY:
            self._descendants_at = now
            for ward in list(self._wards.values()):
                await asyncio.to_thread(ward.remember_descendants)
            await asyncio.to_thread(tree.reap_strays)

    # One reviewer.

    async def _spawn(self, agent: Agent, project: str | None) -> Ward:
        """Whoever calls holds the lock: two never start at once."""
        self._last_spawn_at = self._clock.steady()
        taken = {ward.reviewer.display_name for ward in self._wards.values()}
        identity, display_name = self._launcher.name(agent, taken)
        token = self._access.admit(identity)
        try:
            started = await self._launcher.start(
                agent, project, identity=identity, display_name=display_name, token=token
            )
        except BrokerError as error:
            self._access.dismiss(identity)
            self._fail(error.message)
            await self._records.failed_to_start(display_name, error.message, self._pause)
            raise
        ward = Ward(started.reviewer, started.child, self._clock.steady())
        self._wards[identity] = ward
        # Recorded before it is told anything: no reviewer works that nobody knows of.
        recorded = asyncio.create_task(self._records.begun(started.reviewer))
        self._keep(asyncio.create_task(self._look_after(ward, recorded)))
        await asyncio.shield(recorded)
        started.child.feed(started.prompt)
        self._problem = None
        log.info("reviewer_spawned", reviewer=identity, pid=started.child.pid, agent=agent)
        return ward

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_after(self, ward: Ward, recorded: "asyncio.Task[None]") -> None:
        """From its start to its end, whatever happens between."""
        code: int | None = None
        try:
            await recorded
        except Exception:
            log.exception("reviewer_not_recorded", reviewer=ward.id)
            ward.begin_to_end(EndReason.BROKER_STOPPED, 0)
        try:
            async for event in ward.child.events():
                match event:
                    case Output():
                        await self._read(ward, event)
                    case Exited(code=code):
                        pass
                    case _:
                        pass
        finally:
            await self._bury(ward, code)

    async def _read(self, ward: Ward, output: Output) -> None:
        spent = ward.read(output)
        if spent is not None:
            try:
                await self._records.spent(ward.id, spent)
            except BrokerError as error:
                log.warning("spending_not_recorded", reviewer=ward.id, error=error.message)

    async def _bury(self, ward: Ward, code: int | None) -> None:
        """What it held is given back at once; then whatever it left behind is ended."""
        # With the broker on its way out, its reviewers go as well, each in its own time.
        by_itself = EndReason.BROKER_STOPPED if self._stopping or self._wakeups.closing else EndReason.EXITED
        reason = ward.reason or by_itself
        failed = await self._record_end(ward, reason, code)
        if failed:
            said = f": {ward.last_words}" if ward.last_words else ""
            name = ward.reviewer.display_name
            self._fail(f"{name} ended without a verdict ({reason.value}, exit code {code}){said}")
        log.info("reviewer_terminated", reviewer=ward.id, reason=reason.value, exit_code=code, failed=failed)
        await ward.end_what_is_left()
        del self._wards[ward.id]
        ward.gone.set()
        self._wakeups.publish([POOL])
        await self._launcher.tidy(ward.id, [one.id for one in self._wards.values()])

    async def _record_end(self, ward: Ward, reason: EndReason, code: int | None) -> bool:
        """Where it cannot be recorded, the next start of the broker makes up for it."""
        for attempt in range(_TRIES_TO_RECORD):
            try:
                return await self._records.ended(ward.id, self._ending(reason, code))
            except BrokerError as error:
                log.warning("end_not_recorded", reviewer=ward.id, error=error.message, attempt=attempt)
                await asyncio.sleep(0.2 if self._stopping else 1)
        return False

    def _ending(self, reason: EndReason, code: int | None) -> Ending:
        return Ending(reason=reason, exit_code=code, pause=self._pause)

    def _pause(self, failures: int) -> int:
        return policy.pause_after(failures, self._limits)

    def _fail(self, problem: str) -> None:
        self._failures += 1
        self._last_failure = self._clock.steady(), self._clock.now()
        self._problem = problem
        log.warning("reviewer_failed", problem=problem, in_a_row=self._failures)

    async def _drain(self, ward: Ward, reason: EndReason) -> None:
        if ward.draining_since is None:
            ward.draining_since = self._clock.steady()
            ward.reason = reason
            await self._records.draining(ward.id, reason)

    # What its users ask for.

    def facts(self) -> PoolFacts:
        return PoolFacts(
            enabled=self._settings.is_on,
            agent=self._settings.agent,
            model=self._settings.model_of(self._settings.agent),
            max_pool_size=self._limits.max_pool_size,
            max_spawns_per_day=self._limits.max_spawns_per_day,
            max_tokens_per_day=self._limits.max_tokens_per_day,
            next_spawn_at=self._may_spawn_at,
            problem=self._problem,
        )

    def doing(self, reviewer_id: Identity) -> str | None:
        ward = self._wards.get(reviewer_id)
        return ward.doing if ward else None

    def last_activity_at(self, reviewer_id: Identity) -> Milliseconds | None:
        ward = self._wards.get(reviewer_id)
        moments = (ward.last_output_at if ward else None, self._records.called_at(reviewer_id))
        return max((moment for moment in moments if moment is not None), default=None)

    async def spawn(self, agent: str | None, project: str | None) -> Reviewer:
        """Asked for by somebody: failures before do not count, room and cooldown do."""
        wanted = self._agent(agent)
        async with self._spawning:
            recorded = await self._records.situation()
            now = self._situation(recorded)
            why = policy.hindrance(now, self._limits)
            if why is not None and why != "pause":
                message, hint = _WHY_NOT[why]
                raise BrokerError(Code.UNAVAILABLE, message, hint)
            await self._wait_for_cooldown()
            return (await self._spawn(wanted, project)).reviewer

    def _agent(self, agent: str | None) -> Agent:
        for known in AGENTS:
            if known == (agent or self._settings.agent):
                return known
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"agent: there is no agent {agent!r}", f"Choose one of {', '.join(AGENTS)}."
        )

    async def _wait_for_cooldown(self) -> None:
        if self._last_spawn_at is None:
            return
        left = self._last_spawn_at + self._limits.spawn_cooldown - self._clock.steady()
        if left > _LONGEST_WAIT_FOR_COOLDOWN:
            raise BrokerError(
                Code.BUSY, "a reviewer was started a moment ago", f"The next may be started in {left // 1000} s."
            )
        await asyncio.sleep(max(0, left) / 1000)

    async def kill(self, reviewer_id: Identity, *, force: bool) -> None:
        ward = self._wards.get(reviewer_id)
        if ward is None:
            raise BrokerError(
                Code.NOT_FOUND, f"{reviewer_id} is no process of this broker", "list_reviewers shows those that run."
            )
        if not force:
            await self._drain(ward, EndReason.MANUAL)
            return
        ward.begin_to_end(EndReason.MANUAL, self._settings.kill_grace_seconds)
        await ward.gone.wait()

    def scale(self, max_pool_size: int) -> None:
        self._limits = replace(self._limits, max_pool_size=max_pool_size)
        self._wakeups.publish([POOL])

    async def tail(self, reviewer_id: Identity, characters: int) -> tuple[str, bool]:
        return await asyncio.to_thread(tail, self._launcher.log_path(reviewer_id), characters)
