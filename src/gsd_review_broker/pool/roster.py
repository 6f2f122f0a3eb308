"""The running reviewers: each from its start to its end, whatever happens between."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator

import structlog

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.rules.pool import Reviewer, Usage
from gsd_review_broker.domain.words import EndReason
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.pool import tree
from gsd_review_broker.pool.agents import readers_of
from gsd_review_broker.pool.launcher import MARKER, Launcher
from gsd_review_broker.pool.output import AgentOutput, in_one_line
from gsd_review_broker.pool.policy import PoolMember
from gsd_review_broker.pool.process import Child, Output
from gsd_review_broker.pool.tree import ProcessFound, end_all
from gsd_review_broker.ports.world import POOL, Clock, Wakeups
from gsd_review_broker.service.access import Access
from gsd_review_broker.service.pool_records import Ending, PoolRecords
from gsd_review_broker.settings.names import Agent

# Of the lines that arrive together, only this many are read: a flood is not worth more.
_LINES_READ = 200
# Processes that remain after their leader exited by itself have no work to finish.
STRAGGLER_GRACE_SECONDS = 2.0


class RunningReviewer:
    def __init__(self, reviewer: Reviewer, child: Child, now: Milliseconds) -> None:
        self.reviewer = reviewer
        self.child = child
        self._mark = f"{MARKER}={reviewer.id}".encode()
        self._events = AgentOutput(readers_of(reviewer.agent))
        self._known: frozenset[tuple[int, str]] = frozenset()
        self.started_at = now
        self.free_since: Milliseconds | None = now
        self.free_mark: Milliseconds | None = None
        self.draining_since: Milliseconds | None = None
        self.reason: EndReason | None = None
        self.lost_a_claim = False
        self.doing: str | None = None
        self.last_output_at: Milliseconds | None = None
        # Its last line that is not an event, and the last failure that it reported itself.
        self._last_line = ""
        self._failure: str | None = None
        self.gone = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    @property
    def id(self) -> Identity:
        return self.reviewer.id

    @property
    def is_ending(self) -> bool:
        return self._ending is not None

    def as_member(self) -> PoolMember:
        return PoolMember(
            id=self.id,
            started_at=self.started_at,
            free_since=self.free_since,
            draining_since=self.draining_since,
            ending=self.is_ending,
            lost_a_claim=self.lost_a_claim,
        )

    def note_work(self, now: Milliseconds, *, holds: bool, free_mark: Milliseconds | None) -> None:
        """Note it from the records. A claim and verdict between two looks appear as a new idle time."""
        if holds:
            self.free_since = None
        elif self.free_since is None or free_mark != self.free_mark:
            self.free_since = now
        self.free_mark = free_mark

    def read(self, output: Output) -> Usage | None:
        """Read what it is doing and what it spent."""
        spent: Usage | None = None
        self.last_output_at = Milliseconds(time.time_ns() // 1_000_000)
        for line in output.lines[-_LINES_READ:]:
            report = self._events.read(line)
            self.doing = report.doing or self.doing
            self._failure = report.failure or self._failure
            if not line.startswith(b"{"):
                self._last_line = in_one_line(line.decode("utf-8", "replace")) or self._last_line
            if report.usage is not None:
                spent = report.usage if spent is None else spent + report.usage
        return spent

    @property
    def last_words(self) -> str:
        """Return why it failed, as far as it said so."""
        return self._failure or self._last_line

    def remember_descendants(self) -> None:
        """Remember those that may leave the tree and clear their environment later. This blocks."""
        self._known |= tree.descendants(self.child.pid)

    def begin_to_end(self, reason: EndReason | None, grace: float) -> None:
        """Send TERM, then KILL: in the background, once."""
        if reason is not None and (self.reason is None or reason is EndReason.HUNG):
            self.reason = reason
        if self._ending is None:
            self._ending = asyncio.create_task(asyncio.to_thread(self._end, grace))

    async def end_what_is_left(self) -> None:
        """Stop all other processes: the leader has exited, and is not reaped yet."""
        if self._ending is not None:
            await self._ending
        await asyncio.to_thread(self._end, STRAGGLER_GRACE_SECONDS)
        await self.child.reap()
        await asyncio.to_thread(tree.reap_strays)

    def _end(self, grace: float) -> None:
        self.remember_descendants()
        stubborn = end_all(self.child.pid, self._members, grace=grace)
        if stubborn:
            log.error("reviewer_left_processes", reviewer=self.id, pids=[one.pid for one in stubborn])

    def _members(self) -> list[ProcessFound]:
        return tree.members(self.child.pid, self._known, self._mark)


log = structlog.get_logger()

# When the broker itself stops, its reviewers have less time.
SHUTDOWN_GRACE_SECONDS = 3.0
_TRIES_TO_RECORD = 5


class Roster:
    def __init__(
        self,
        launcher: Launcher,
        *,
        records: PoolRecords,
        access: Access,
        clock: Clock,
        wakeups: Wakeups,
        pause: Callable[[int], int],
    ) -> None:
        self._launcher = launcher
        self._records = records
        self._access = access
        self._clock = clock
        self._wakeups = wakeups
        self._pause = pause
        self._roster: dict[Identity, RunningReviewer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopping = False
        self.last_spawn_at: Milliseconds | None = None
        self.failures = 0
        # By the steady clock, and by the wall clock that verdicts are recorded with.
        self.last_failure: tuple[Milliseconds, Milliseconds] | None = None
        self.problem: str | None = None

    def __iter__(self) -> Iterator[RunningReviewer]:
        return iter(list(self._roster.values()))

    def get(self, reviewer_id: Identity) -> RunningReviewer | None:
        return self._roster.get(reviewer_id)

    async def start(self, agent: Agent, project: str | None) -> RunningReviewer:
        """Start a reviewer. The caller makes sure that two never start at once."""
        self.last_spawn_at = self._clock.steady()
        taken = {running.reviewer.display_name for running in self}
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
        # The cooldown begins when the process has started, however long that took.
        self.last_spawn_at = self._clock.steady()
        running = self._roster[identity] = RunningReviewer(started.reviewer, started.child, self.last_spawn_at)
        # Recorded before it gets its prompt: no unknown reviewer ever works.
        recorded = asyncio.create_task(self._records.begun(started.reviewer))
        task = asyncio.create_task(self._look_after(running, recorded))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(recorded)
        started.child.feed(started.prompt)
        if not self.failures:
            self.problem = None
        log.info("reviewer_spawned", reviewer=identity, pid=started.child.pid, agent=agent)
        return running

    async def drain(self, running: RunningReviewer, reason: EndReason) -> None:
        if running.draining_since is None:
            running.draining_since = self._clock.steady()
            running.reason = reason
            await self._records.draining(running.id, reason)

    async def stop(self) -> None:
        """Send TERM to all, KILL after a short grace; return when nothing is running and all is recorded."""
        for running in self:
            running.begin_to_end(EndReason.BROKER_STOPPED, SHUTDOWN_GRACE_SECONDS)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def kill_at_once(self) -> None:
        """Kill, as the last resort without time to stop: nothing is awaited or recorded."""
        if self._roster and sys.platform != "win32":
            for running in self:
                running.child.signal(signal.SIGKILL)
            for one in tree.marked(self._launcher.mark):
                tree.tell(one, signal.SIGKILL)

    def forgive(self) -> None:
        """Forget earlier failures, after a verdict."""
        self.failures, self.last_failure, self.problem = 0, None, None

    def ending(self, reason: EndReason, code: int | None, last_words: str = "") -> Ending:
        return Ending(reason=reason, exit_code=code, pause=self._pause, last_words=last_words)

    async def _look_after(self, running: RunningReviewer, recorded: "asyncio.Task[None]") -> None:
        code: int | None = None
        try:
            await recorded
        except Exception:
            log.exception("reviewer_not_recorded", reviewer=running.id)
            running.begin_to_end(EndReason.BROKER_STOPPED, 0)
        try:
            async for event in running.child.events():
                if isinstance(event, Output):
                    await self._read(running, event)
                else:
                    code = event.code
        finally:
            await self._record_the_end(running, code)

    async def _read(self, running: RunningReviewer, output: Output) -> None:
        spent = running.read(output)
        if spent is not None:
            try:
                await self._records.spent(running.id, spent)
            except BrokerError as error:
                log.warning("spending_not_recorded", reviewer=running.id, error=error.message)

    async def _record_the_end(self, running: RunningReviewer, code: int | None) -> None:
        """Return its reviews at once; then stop the processes it left behind."""
        # When the broker is stopping, its reviewers stop too, each in its own time.
        by_itself = EndReason.BROKER_STOPPED if self.stopping or self._wakeups.closing else EndReason.EXITED
        reason = running.reason or by_itself
        failed = await self._try_to_record_the_end(running, reason, code)
        if failed:
            last_words = f": {running.last_words}" if running.last_words else ""
            name = running.reviewer.display_name
            self._fail(f"{name} ended without a verdict ({reason.value}, exit code {code}){last_words}")
        log.info("reviewer_terminated", reviewer=running.id, reason=reason.value, exit_code=code, failed=failed)
        await running.end_what_is_left()
        del self._roster[running.id]
        running.gone.set()
        self._wakeups.publish([POOL])
        await self._launcher.tidy(running.id, [one.id for one in self])

    async def _try_to_record_the_end(self, running: RunningReviewer, reason: EndReason, code: int | None) -> bool:
        """Record the end; if that fails, the broker's next start does it."""
        for attempt in range(_TRIES_TO_RECORD):
            try:
                return await self._records.ended(running.id, self.ending(reason, code, running.last_words))
            except BrokerError as error:
                log.warning("end_not_recorded", reviewer=running.id, error=error.message, attempt=attempt)
                await asyncio.sleep(0.2 if self.stopping else 1)
        return False

    def _fail(self, problem: str) -> None:
        self.failures += 1
        self.last_failure = self._clock.steady(), self._clock.now()
        self.problem = problem
        log.warning("reviewer_failed", problem=problem, in_a_row=self.failures)
