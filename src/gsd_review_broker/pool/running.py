"""One running reviewer, as the supervisor sees it."""

import asyncio
import time

import structlog

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.pool import EndReason, Reviewer, Usage
from gsd_review_broker.pool.child import tree
from gsd_review_broker.pool.child.agent_output import AgentOutput, in_one_line
from gsd_review_broker.pool.child.ending import end_all
from gsd_review_broker.pool.child.process import Child, Output
from gsd_review_broker.pool.child.tree import ProcessFound
from gsd_review_broker.pool.launch.recipe import MARKER
from gsd_review_broker.pool.policy import PoolMember

log = structlog.get_logger()

# Of the lines that arrive together, only this many are read: a flood is not worth more.
_LINES_READ = 200
# Processes that remain after their leader exited by itself have no work to finish.
STRAGGLER_GRACE_SECONDS = 2.0


class RunningReviewer:
    def __init__(self, reviewer: Reviewer, child: Child, now: Milliseconds) -> None:
        self.reviewer = reviewer
        self.child = child
        self._mark = f"{MARKER}={reviewer.id}".encode()
        self._events = AgentOutput()
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

    def seen(self) -> PoolMember:
        return PoolMember(
            id=self.id,
            started_at=self.started_at,
            free_since=self.free_since,
            draining_since=self.draining_since,
            ending=self.is_ending,
            lost_a_claim=self.lost_a_claim,
        )

    def note_work(self, now: Milliseconds, *, holds: bool, free_mark: Milliseconds | None) -> None:
        """From the records. A claim and verdict between two looks appear as a new idle time."""
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
        """Why it failed, as far as it said so."""
        return self._failure or self._last_line

    def remember_descendants(self) -> None:
        """Blocks. A process that leaves the tree later and clears its environment is still known."""
        self._known |= tree.descendants(self.child.pid)

    def begin_to_end(self, reason: EndReason | None, grace: float) -> None:
        """TERM, then KILL: in the background, once."""
        if reason is not None and (self.reason is None or reason is EndReason.HUNG):
            self.reason = reason
        if self._ending is None:
            self._ending = asyncio.create_task(asyncio.to_thread(self._end, grace))

    async def end_what_is_left(self) -> None:
        """The leader has exited and is not reaped yet. All other processes are stopped too."""
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
