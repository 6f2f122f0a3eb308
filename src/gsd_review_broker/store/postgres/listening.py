"""Wake-ups between brokers: each commit notifies the others. LISTEN needs a session, so it has its own connection."""

import asyncio
import contextlib
import importlib
import json
import secrets
from collections.abc import Iterable
from functools import partial
from typing import Any

import sqlalchemy as sa
import structlog

from gsd_review_broker.ports.world import Wakeups
from gsd_review_broker.store.postgres.engine import APPLICATION_NAME, PATIENCE_SECONDS
from gsd_review_broker.store.statements import Statements, parameter

log = structlog.get_logger()
# Imported by name: it is an extra, and has no types.
asyncpg: Any = importlib.import_module("asyncpg")

CHANNEL = "tandem_topics"
# Whatever was missed is read after this time.
REREAD_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
# PostgreSQL takes less than 8,000 bytes.
_LONGEST_PAYLOAD = 7_500
_EVERYTHING = "*"
_NOTIFY = sa.select(sa.func.pg_notify(sa.literal_column(f"'{CHANNEL}'"), sa.cast(parameter("payload"), sa.Text)))


def _set(event: asyncio.Event, _connection: Any) -> None:
    event.set()


class Listener:
    """Publishes here what other brokers committed. A lost connection is made again, and then everybody is woken."""

    def __init__(self, url: str, wakeups: Wakeups) -> None:
        self._url = url
        self._wakeups = wakeups
        # Our own commits wake our waiters directly.
        self._name = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None
        # For tests and for a start that waits: set while the connection is there.
        self.is_listening = asyncio.Event()

    def notify(self, statements: Statements, topics: Iterable[str]) -> None:
        """In the transaction: sent with its commit, or not at all."""
        unique = sorted(set(topics))
        if not unique:
            return
        payload = json.dumps([self._name, *unique])
        if len(payload) > _LONGEST_PAYLOAD:
            payload = json.dumps([self._name, _EVERYTHING])
        statements.rows(_NOTIFY, {"payload": payload})

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                connection = await asyncpg.connect(
                    self._url, timeout=PATIENCE_SECONDS, server_settings={"application_name": APPLICATION_NAME}
                )
                try:
                    await connection.add_listener(CHANNEL, self._heard)
                    pause = _FIRST_PAUSE_SECONDS
                    await self._listen(connection)
                finally:
                    self.is_listening.clear()
                    connection.terminate()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
                log.warning("not_listening", reason=str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _listen(self, connection: Any) -> None:
        """Until the connection is lost, which raises. The slow re-read notices that, too."""
        self.is_listening.set()
        lost = asyncio.Event()
        connection.add_termination_listener(partial(_set, lost))
        while True:
            self._wakeups.publish_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REREAD_SECONDS):
                    await lost.wait()
            await connection.execute("SELECT 1", timeout=PATIENCE_SECONDS)

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: Any) -> None:
        sender, *topics = json.loads(payload)
        if sender == self._name:
            return
        if topics == [_EVERYTHING]:
            self._wakeups.publish_all()
        else:
            self._wakeups.publish(topics)
