"""A viewer that does not read is dropped, and nothing is kept for it."""

import asyncio
from typing import Any

import pytest

from gsd_review_broker.ports.world import EVENTS
from gsd_review_broker.web import events
from gsd_review_broker.web.events import _MOST_CAUGHT_UP, EventStream
from tests.support.local import LocalBroker

pytestmark = pytest.mark.usefixtures("database_kind")


class Sleeper:
    """A connection that takes the first answer and then nothing, until it is woken."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.awake = asyncio.Event()
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if len(self.taken) >= 2:
            await self.awake.wait()
        self.taken.append(message.get("body", b""))


SCOPE = {"type": "http", "method": "GET", "path": "/events", "query_string": b"", "headers": []}


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_a_viewer_that_sleeps_is_dropped_and_told_so_when_it_wakes(broker: LocalBroker) -> None:
    stream = EventStream(broker.application.broker, broker.application.wakeups, pause=0)
    sleeper = Sleeper()
    watching = asyncio.create_task(stream(SCOPE, sleeper.receive, sleeper.send))
    await until(lambda: len(sleeper.taken) == 2)
    last = 0
    # Batch after batch, until no more is kept for it.
    while any(not viewer.is_over for viewer in stream._viewers):
        await broker.create()
        last += 1
        await asyncio.sleep(0.001)
        assert last < 1_000
    assert last >= 32
    kept = [len(viewer._waiting) for viewer in stream._viewers]
    assert kept == [0]
    # It wakes: what was on its way arrives, then the stream ends, and a new one tells what was missed.
    sleeper.awake.set()
    async with asyncio.timeout(20):
        await watching
    assert stream.viewers == 0
    told = b"".join(sleeper.taken)
    known = max(int(line[4:]) for line in told.split(b"\n") if line.startswith(b"id: "))
    assert known < last
    again = Sleeper()
    again.awake.set()
    scope = {**SCOPE, "headers": [(b"last-event-id", str(known).encode())]}
    watching = asyncio.create_task(stream(scope, again.receive, again.send))
    await until(lambda: b"event: ready" in b"".join(again.taken))
    missed = [int(line[4:]) for line in b"".join(again.taken).split(b"\n") if line.startswith(b"id: ")]
    assert missed == list(range(known + 1, last + 1))
    again.gone.set()
    await watching


@pytest.mark.parametrize("viewers", [1, 100])
async def test_an_event_is_read_and_written_out_once_for_all_viewers(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, viewers: int
) -> None:
    stream = EventStream(broker.application.broker, broker.application.wakeups, pause=0)
    queries, work = broker.application.broker.review_queries, {"reads": 0, "hints": 0}
    read, hint = queries.audit_log, events._hint

    async def counted_read(**arguments: Any) -> Any:
        work["reads"] += 1
        return await read(**arguments)

    def counted_hint(event: Any) -> bytes:
        work["hints"] += 1
        return hint(event)

    monkeypatch.setattr(queries, "audit_log", counted_read)
    monkeypatch.setattr(events, "_hint", counted_hint)
    audience = [Sleeper() for _ in range(viewers)]
    for viewer in audience:
        viewer.awake.set()
    watching = [asyncio.create_task(stream(SCOPE, viewer.receive, viewer.send)) for viewer in audience]
    await until(lambda: all(len(viewer.taken) >= 2 for viewer in audience))
    for number in range(1, 6):
        await broker.create()
        await until(lambda number=number: all(f"id: {number}\n".encode() in b"".join(one.taken) for one in audience))
    for viewer in audience:
        viewer.gone.set()
    await asyncio.gather(*watching)
    # One read finds each event, and one more may find nothing new.
    assert work["hints"] == 5
    assert work["reads"] <= 11


async def test_where_nobody_watches_nothing_runs(broker: LocalBroker) -> None:
    stream = EventStream(broker.application.broker, broker.application.wakeups, pause=0)
    viewer = Sleeper()
    viewer.awake.set()
    watching = asyncio.create_task(stream(SCOPE, viewer.receive, viewer.send))
    wakeups = broker.application.wakeups
    await until(lambda: EVENTS in wakeups._waiters)
    # The stream's own listener is the broker, not a client that waits.
    assert (await broker("broker_status"))["waiting"] == 0
    viewer.gone.set()
    await watching
    await until(lambda: EVENTS not in wakeups._waiters)
    assert stream.viewers == 0


async def test_what_happens_while_a_viewer_catches_up_reaches_it(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is handed out after the catch-up was read and before the viewer's first answer."""
    await broker.create()
    stream = EventStream(broker.application.broker, broker.application.wakeups, pause=0)
    queries = broker.application.broker.review_queries
    read = queries.audit_log

    async def read_and_go_on(**arguments: Any) -> Any:
        page = await read(**arguments)
        if arguments["limit"] == _MOST_CAUGHT_UP:
            await broker.create()
            await until(lambda: stream._last == 2)
        return page

    monkeypatch.setattr(queries, "audit_log", read_and_go_on)
    viewer = Sleeper()
    viewer.awake.set()
    scope = {**SCOPE, "headers": [(b"last-event-id", b"0")]}
    watching = asyncio.create_task(stream(scope, viewer.receive, viewer.send))
    await until(lambda: b"id: 2\n" in b"".join(viewer.taken))
    viewer.gone.set()
    await watching
    assert [line for line in b"".join(viewer.taken).split(b"\n") if line.startswith(b"id: ")] == [b"id: 1", b"id: 2"]


async def test_what_happens_later_reaches_a_viewer(broker: LocalBroker) -> None:
    stream = EventStream(broker.application.broker, broker.application.wakeups, pause=0)
    viewer = Sleeper()
    viewer.awake.set()
    watching = asyncio.create_task(stream(SCOPE, viewer.receive, viewer.send))
    await until(lambda: EVENTS in broker.application.wakeups._waiters)
    for number in range(1, 4):
        await broker.create()
        await until(lambda number=number: f"id: {number}\n".encode() in b"".join(viewer.taken))
    viewer.gone.set()
    await watching
