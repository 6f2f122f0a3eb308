"""A broker with a pool, in the test's own process and on a real port. Limits may be shorter than a user's."""

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import uvicorn

from gsd_review_broker.app import Application
from gsd_review_broker.pool.policy import PoolLimits
from gsd_review_broker.settings import config
from tests.support.local import PROPOSAL
from tests.support.mcp import AsyncMcp
from tests.support.policies import pool_limits
from tests.support.waiting import PATIENCE

PROGRAMS = Path(__file__).parent / "reviewers"
QUICK = pool_limits(
    spawn_cooldown=50, idle_timeout=60_000, exit_grace=1_000, failure_pause=100, check_interval=200, max_pool_size=3
)


def program(name: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / f"{name}.py")]


def script(folder: Path, text: str) -> list[str]:
    """A program of the test; it can import `client`."""
    path = folder / f"reviewer_{abs(hash(text))}.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(PROGRAMS)!r})\n{text}")
    return [sys.executable, str(path)]


def user_file(home: Path, **pool: Any) -> Path:
    path = home / "config" / "gsd-review-broker" / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"reviewer_pool": pool}))
    return path


def pool_of(command: list[str], **pool: Any) -> dict[str, Any]:
    return {"agent": "command", "agents": {"command": {"command": command}}, **pool}


class PoolBroker:
    def __init__(self, application: Application, port: int, session: aiohttp.ClientSession, database: Path) -> None:
        self.application = application
        self.port = port
        self.session = session
        self.database = database
        self.call = AsyncMcp(session, port)

    @property
    def pool(self) -> Any:
        return self.application.broker.pool

    async def create(self, **arguments: Any) -> str:
        return (await self.call("create_review", **{**PROPOSAL, **arguments}))["review_id"]

    async def listed(self) -> list[dict[str, Any]]:
        return (await self.call("list_reviewers"))["reviewers"]

    async def events(self, *kinds: str) -> list[dict[str, Any]]:
        collected: list[dict[str, Any]] = []
        after = 0
        while True:
            page = await self.call("get_audit_log", after=after, limit=500)
            collected += page["events"]
            if page["next_cursor"] is None:
                return [event for event in collected if not kinds or event["event_type"] in kinds]
            after = page["next_cursor"]

    async def until(self, done: Callable[[], Awaitable[Any]], seconds: float = PATIENCE) -> Any:
        """What `done` returns, as soon as it is true."""
        deadline = time.monotonic() + seconds
        while not (result := await done()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {await self.pool.state()}")
            await asyncio.sleep(0.02)
        return result

    async def change_limits(self, **limits: Any) -> None:
        """When this returns, the pool has read the new limits."""
        pool = self.application.pool
        pool._limits = replace(pool._limits, **limits)
        await pool.look()

    async def status(self, review_id: str) -> str:
        return (await self.call("get_review_status", review_id=review_id))["status"]

    async def until_status(self, review_id: str, *wanted: str, seconds: float = PATIENCE) -> str:
        async def look() -> str | None:
            status = await self.status(review_id)
            return status if status in wanted else None

        return await self.until(look, seconds)

    async def until_state(self, state: str, count: int = 1, seconds: float = PATIENCE) -> list[dict[str, Any]]:
        async def look() -> list[dict[str, Any]]:
            matching = [one for one in await self.listed() if one["state"] == state]
            return matching if len(matching) >= count else []

        return await self.until(look, seconds)


@contextlib.asynccontextmanager
async def pool_broker(
    folder: Path,
    home: Path,
    root: Path,
    command: list[str],
    *,
    limits: PoolLimits = QUICK,
    fence: str | None = None,
    **pool: Any,
) -> AsyncGenerator[PoolBroker]:
    user_file(home, **pool_of(command, **pool))
    # The settings take precedence over the limits.
    limits = replace(limits, **{name: pool[name] for name in ("max_pool_size", "max_spawns_per_day") if name in pool})
    database = folder / "broker.sqlite3"
    configuration = config.load(root=root, flags={"db": str(database), "fence": fence}, environment={})
    # Named TCP, so that asyncio disables Nagle's delay of small answers.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        application = Application(configuration, port=port, pool_limits=limits)
        application.store.open()
        server = uvicorn.Server(
            uvicorn.Config(
                application.asgi,
                lifespan="on",
                log_config=None,
                access_log=False,
                ws="none",
                # Many connections of one test are idle for a while.
                timeout_keep_alive=120,
                timeout_graceful_shutdown=1,
            )
        )
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not server.started:
                assert not serving.done(), serving.result()
                await asyncio.sleep(0.01)
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                yield PoolBroker(application, port, session, database)
        finally:
            application.wakeups.close()
            server.should_exit = True
            await serving


def alive(mark: str, value: str | None = None) -> list[int]:
    """Processes with the mark in their environment: those that a pool started, and their children."""
    pids: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            if mark in environment and value in {None, environment[mark]} and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return [pid for pid in pids if pid != os.getpid()]
