"""The broker inside the test's own process: real SQLite file and real git, with a clock that tests move."""

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from gsd_review_broker.app import Application
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.mcp.tools import REGISTRY
from gsd_review_broker.service.wire.hints import Wording, envelope
from gsd_review_broker.settings import config
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store import migrations
from tests.support.mcp import ToolError

PROPOSAL: dict[str, Any] = {
    "intent": "Say hello in French",
    "agent_type": "gsd-executor",
    "agent_role": "proposer",
    "phase": "1",
}

_NUMBERS = itertools.count()


class MovableClock:
    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self._wall = now
        self._steady = 5_000_000

    def now(self) -> Milliseconds:
        return Milliseconds(self._wall)

    def steady(self) -> Milliseconds:
        return Milliseconds(self._steady)

    def pass_time(self, seconds: float) -> None:
        self._wall += int(seconds * 1000)
        self._steady += int(seconds * 1000)

    def step_wall(self, seconds: float) -> None:
        """The wall clock is set."""
        self._wall += int(seconds * 1000)


class LocalBroker:
    """Calls tools as the MCP server does, without HTTP in between."""

    def __init__(self, application: Application, clock: MovableClock, database: Database, folder: Path) -> None:
        self.application = application
        self.clock = clock
        self._database = database
        self._folder = folder
        self._tools = REGISTRY.shown_to(Audience.ALL)

    @property
    def database(self) -> Path:
        """The SQLite file; of a PostgreSQL database, a copy of it as it is now."""
        if self._database.url is None:
            return self._database.path
        from gsd_review_broker.store.postgres import copying

        copy = self._folder / f"snapshot-{next(_NUMBERS)}.sqlite3"
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, copying.snapshot(self._database, copy)).result()
        return copy

    @property
    def archives(self) -> list[Path]:
        """What a prune made, oldest first."""
        return sorted(self.archive("2027-01-15").parent.glob(f"{self._database.name}.archive-*[0-9]"))

    def archive(self, day: str) -> Path:
        """Where a prune of what was closed before this day puts it."""
        folder = self._database.path.parent if self._database.url is None else self.store._archives
        return folder / f"{self._database.name}.archive-{day}"

    @property
    def store(self) -> Any:
        return self.application.store

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        try:
            return await self._tools[tool](self.application.broker, arguments)
        except BrokerError as error:
            raise ToolError(envelope(error, Wording.TOOLS)) from error

    async def create(self, **arguments: Any) -> Any:
        return await self("create_review", **{**PROPOSAL, **arguments})

    async def page(self, address: str, *, status: int = 200) -> str:
        """What a browser gets, without a socket in between."""
        path, _, query = address.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1:8321")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8321),
        }
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.application.asgi(scope, receive, send)
        assert sent[0]["status"] == status
        return b"".join(message.get("body", b"") for message in sent[1:]).decode()

    async def sweep(self) -> list[Any]:
        return await self.application.broker.sweep.once()


@cache
def _empty_database() -> bytes:
    """What the migrations make of a new file. Made once: they take most of the time in which such a broker starts."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrations.upgrade(connection)
        return connection.serialize()


# The PostgreSQL database that brokers in this process use, instead of a file; set by the fixture `database_kind`.
postgres_url: str | None = None


@contextlib.asynccontextmanager
async def local_broker(
    folder: Path, *, root: Path | None = None, clock: MovableClock | None = None, **settings: Any
) -> AsyncGenerator[LocalBroker]:
    database = folder / "broker.sqlite3"
    if postgres_url is not None:
        settings.setdefault("db", postgres_url)
    elif not settings.get("db") and not database.exists():
        database.write_bytes(_empty_database())
    configuration = config.load(root=root, flags={"db": str(database), **settings}, environment={})
    clock = clock or MovableClock()
    application = Application(configuration, port=8321, clock=clock)
    application.store.open()
    try:
        yield LocalBroker(application, clock, configuration.database, folder)
    finally:
        application.wakeups.close()
        await application.store.close()
