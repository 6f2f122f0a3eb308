"""The pool as its users see it: the reviewers, and the switches."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.rules.pool import Reviewer, Work
from gsd_review_broker.domain.words import ReviewerState
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.ports.store import Reader
from gsd_review_broker.service import validation
from gsd_review_broker.service.core import Core, Repeat, once
from gsd_review_broker.service.pool_records import PoolRecords
from gsd_review_broker.service.project_store import whole_broker_only
from gsd_review_broker.service.wire.broker import (
    KilledReviewer,
    LoginState,
    PoolState,
    ReviewerList,
    ReviewerLog,
    ReviewerRow,
    SpawnedReviewer,
    WorkRow,
    held_back_row,
    reviewer_row,
    work_row,
)
from gsd_review_broker.service.wire.encoding import moment

R = TypeVar("R")

LARGEST_POOL = 10
_ENDED_SHOWN = 20
_LONGEST_TAIL = 200_000
_HELD_BACK_SHOWN = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolFacts:
    """Facts that only the pool itself knows."""

    enabled: bool
    agent: str
    model: str | None
    max_pool_size: int
    max_spawns_per_day: int
    max_tokens_per_day: int | None
    next_spawn_at: Milliseconds | None
    problem: str | None
    login: LoginState


@dataclass(slots=True)
class _UnderWay:
    """Calls with the same key: one runs, the others wait for its answer."""

    callers: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pool(Protocol):
    """Starts and stops the processes."""

    def facts(self) -> PoolFacts: ...

    def doing(self, reviewer_id: Identity) -> str | None: ...

    def last_activity_at(self, reviewer_id: Identity) -> Milliseconds | None: ...

    async def spawn(self, agent: str | None, project: str | None) -> Reviewer: ...

    async def kill(self, reviewer_id: Identity, *, force: bool) -> None: ...

    def scale(self, max_pool_size: int) -> None: ...

    async def tail(self, reviewer_id: Identity, characters: int) -> tuple[str, bool]: ...


class PoolControl:
    def __init__(self, core: Core, records: PoolRecords) -> None:
        self._core = core
        self.records = records
        self._pool: Pool | None = None
        # Calls with a key that are running: starting or stopping a process takes longer than a transaction.
        self._under_way: dict[tuple[str, str], _UnderWay] = {}

    def attach(self, pool: Pool) -> None:
        """Attach the pool, which is a layer above the services."""
        self._pool = pool

    def share(self, other: "PoolControl") -> None:
        """Let the other one control the same pool, as far as its caller may."""
        if self._pool is not None:
            other.attach(self._pool)

    async def listed(self) -> ReviewerList:
        running, ended, work = await self._core.store.read(
            lambda reader: (reader.running_reviewers(), reader.ended_reviewers(_ENDED_SHOWN), reader.work_under_way())
        )
        return {"reviewers": [self._row(one, work) for one in (*running, *ended)]}

    async def running(self) -> list[ReviewerRow]:
        """List the running reviewers, on the event loop: few run at once."""
        if not self._core.access.guards:
            return []
        running, work = await self._core.store.glance(
            lambda reader: (reader.running_reviewers(), reader.work_under_way())
        )
        return [self._row(one, work) for one in running]

    async def state(self) -> PoolState:
        listed = await self.listed()
        situation = await self.records.situation()
        held_back = await self._core.store.read(
            lambda reader: reader.held_back(self._core.clock.now(), _HELD_BACK_SHOWN)
        )
        facts = self._attached().facts()
        return {
            "enabled": facts.enabled,
            "paused": situation.paused,
            "agent": facts.agent,
            "model": facts.model,
            "max_pool_size": facts.max_pool_size,
            "pending": situation.pending,
            "held_back": [held_back_row(failure, asked) for failure, asked in held_back],
            "spawns_today": situation.spawns_today,
            "max_spawns_per_day": facts.max_spawns_per_day,
            "tokens_today": situation.tokens_today,
            "max_tokens_per_day": facts.max_tokens_per_day,
            "next_spawn_at": moment(facts.next_spawn_at),
            "problem": facts.problem,
            "login": facts.login,
            "reviewers": listed["reviewers"],
        }

    async def spawn(
        self, agent: str | None = None, project: str | None = None, *, repeat: Repeat | None = None
    ) -> SpawnedReviewer:
        project = self._core.project_of(validation.project(project, self._core.policy.limits))
        pool = self._switched_on()

        async def start() -> SpawnedReviewer:
            started = await pool.spawn(agent, project)
            return {"reviewer_id": started.id, "display_name": started.display_name, "pid": started.pid}

        return await self._once(repeat, start)

    async def kill(self, reviewer_id: str, force: bool = False, *, repeat: Repeat | None = None) -> KilledReviewer:
        pool = self._switched_on()

        async def stop() -> KilledReviewer:
            reviewer = await self._find(reviewer_id)
            if reviewer.state is not ReviewerState.TERMINATED:
                await pool.kill(reviewer.id, force=force)
            now = await self._find(reviewer.id)
            return {"reviewer_id": now.id, "display_name": now.display_name, "state": now.state.value}

        return await self._once(repeat, stop)

    async def pause(self) -> PoolState:
        return await self._paused(True)

    async def resume(self) -> PoolState:
        return await self._paused(False)

    async def _paused(self, paused: bool) -> PoolState:
        self._refuse_one_project("pausing the pool")
        self._switched_on()
        await self.records.pause(paused)
        return await self.state()

    async def scale(self, max_pool_size: int) -> PoolState:
        self._refuse_one_project("the size of the pool")
        pool = self._switched_on()
        validation.between("max_pool_size", max_pool_size, 1, LARGEST_POOL)
        pool.scale(max_pool_size)
        return await self.state()

    async def log(self, reviewer_id: str, characters: int = 20_000) -> ReviewerLog:
        validation.between("characters", characters, 1, _LONGEST_TAIL)
        reviewer = await self._find(reviewer_id)
        text, left_out = await self._attached().tail(reviewer.id, characters)
        return {
            "reviewer_id": reviewer.id,
            "display_name": reviewer.display_name,
            "text": text,
            "left_out": left_out,
        }

    async def work_on(self, review_id: str) -> list[WorkRow]:
        review = await self._core.find(review_id)
        return [work_row(one) for one in await self._core.store.read(lambda reader: reader.work_on(review.id))]

    async def _once(self, repeat: Repeat | None, do: Callable[[], Awaitable[R]]) -> R:
        """Run the same call once: a second one at the same time waits and gets the same answer."""
        if repeat is None:
            return await do()
        name = repeat.tool, repeat.key
        same = self._under_way.setdefault(name, _UnderWay())
        same.callers += 1
        try:
            async with same.turn:
                kept = await self._core.recalled(repeat, None)
                if kept is not None:
                    return kept
                result = await do()
                return await self._core.store.write(lambda tx: once(tx, self._core, repeat, None, lambda: result))
        finally:
            same.callers -= 1
            if not same.callers:
                del self._under_way[name]

    async def _find(self, name: str) -> Reviewer:
        reviewer = await self._core.store.read(lambda reader: _found(reader, name.strip()))
        if reviewer is None:
            raise BrokerError(
                Code.NOT_FOUND,
                f"the broker did not start a reviewer {name[:64]!r}",
                NextStep(Next.LIST_OWN_REVIEWERS),
            )
        return reviewer

    def _refuse_one_project(self, action: str) -> None:
        if self._core.project is not None:
            raise whole_broker_only(action, self._core.project)

    def _row(self, reviewer: Reviewer, under_way: list[Work]) -> ReviewerRow:
        pool = self._pool
        return reviewer_row(
            reviewer,
            under_way,
            doing=pool.doing(reviewer.id) if pool else None,
            last_activity_at=pool.last_activity_at(reviewer.id) if pool else None,
        )

    def _attached(self) -> Pool:
        if self._pool is None:
            raise _off()
        return self._pool

    def _switched_on(self) -> Pool:
        pool = self._attached()
        if not pool.facts().enabled:
            raise _off()
        return pool


def _found(reader: Reader, name: str) -> Reviewer | None:
    exact = reader.reviewer(Identity(name))
    if exact is not None:
        return exact
    # A display name means the newest reviewer with it: a running one, or the last that stopped.
    known = (*reversed(reader.running_reviewers()), *reader.ended_reviewers(_ENDED_SHOWN))
    return next((one for one in known if one.display_name == name), None)


def _off() -> BrokerError:
    return BrokerError(
        Code.UNAVAILABLE,
        "the reviewer pool is off, so no reviewer is started",
        "Turn it on with `tandem pool enable` and restart the broker, or start a reviewer by hand.",
    )
