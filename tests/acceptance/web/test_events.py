"""`/events`: told in order, numbered like the audit, to many at once, and to nobody's harm."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Generator
from typing import Any, Self

import aiohttp
import psutil
import pytest

from tests.support.dashboard import PROPOSAL, propose
from tests.support.mcp import AsyncMcp, Mcp
from tests.support.processes import BrokerProcess
from tests.support.waiting import PATIENCE

DEADLINE = PATIENCE


class Stream:
    """One viewer: reads events as a browser would."""

    def __init__(self, port: int, query: str = "", last: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        head = f"GET /events{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n"
        self._socket.sendall((head + (f"Last-Event-ID: {last}\r\n" if last is not None else "") + "\r\n").encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        while self._file.readline().strip():
            pass

    def next(self) -> dict[str, Any]:
        """The next event that says anything; chunk sizes and signs of life are passed over."""
        said: dict[str, Any] = {}
        while line := self._file.readline():
            text = line.decode().strip()
            name, colon, value = text.partition(": ")
            if colon and name in {"id", "event", "data"}:
                said[name] = json.loads(value) if name == "data" else value
            elif not text and "data" in said:
                return said
        raise EOFError

    def ready(self) -> list[dict[str, Any]]:
        """What is told at the beginning, up to the word that all was told."""
        told: list[dict[str, Any]] = []
        while (event := self.next()).get("event") != "ready":
            told.append(event)
        return told

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def agent(process: BrokerProcess) -> Mcp:
    return process.client()


@pytest.fixture
def stream(process: BrokerProcess) -> Generator[Stream]:
    with Stream(process.port) as viewer:
        assert viewer.ready() == []
        yield viewer


def test_every_event_is_told_with_its_number(stream: Stream, agent: Mcp) -> None:
    review_id = propose(agent, diff=None)
    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    events = agent("get_audit_log")["events"]
    for event in events:
        told = stream.next()
        assert told["id"] == str(event["id"])
        assert told["data"] == {name: event[name] for name in told["data"]}
        # A hint, and no more: what it is about is asked for.
        assert "metadata" not in told["data"]


def test_a_viewer_of_one_review_hears_of_no_other(process: BrokerProcess, agent: Mcp) -> None:
    first, second = propose(agent, diff=None), propose(agent, diff=None)
    with Stream(process.port, f"?review={second[:8]}") as viewer:
        viewer.ready()
        agent("claim_review", review_id=first, reviewer_id="codex-r1")
        agent("claim_review", review_id=second, reviewer_id="codex-r1")
        assert viewer.next()["data"]["review_id"] == second


def test_who_comes_back_is_told_what_was_missed(process: BrokerProcess, agent: Mcp, stream: Stream) -> None:
    propose(agent, diff=None)
    last = stream.next()["id"]
    stream.close()
    missed = [propose(agent, diff=None) for _ in range(3)]
    with Stream(process.port, last=last) as viewer:
        assert [event["data"]["review_id"] for event in viewer.ready()] == missed
    with Stream(process.port, f"?after={last}&review={missed[1]}") as viewer:
        assert [event["data"]["review_id"] for event in viewer.ready()] == [missed[1]]


@pytest.mark.parametrize("last", ["nonsense", "-1", "99999999999999999999999", "1e3", "9999"])
def test_a_number_that_is_none_begins_with_what_comes(process: BrokerProcess, agent: Mcp, last: str) -> None:
    propose(agent, diff=None)
    with Stream(process.port, last=last) as viewer:
        assert viewer.ready() == []
        new = propose(agent, diff=None)
        assert viewer.next()["data"]["review_id"] == new


def test_who_missed_too_much_is_told_to_look_at_everything(process: BrokerProcess) -> None:
    async def many() -> None:
        async with aiohttp.ClientSession() as session:
            client = AsyncMcp(session, process.port)
            await asyncio.gather(*(client("create_review", **PROPOSAL, intent=str(n)) for n in range(520)))

    asyncio.run(many())
    with Stream(process.port, last="1") as viewer:
        told = viewer.next()
        assert (told["event"], told["id"]) == ("reset", "520")


def test_no_such_review_is_told_before_the_stream_begins(process: BrokerProcess) -> None:
    with Stream(process.port, "?review=nosuchreview") as viewer:
        assert viewer.status == 404


def test_streams_end_at_once_when_the_broker_does(process: BrokerProcess) -> None:
    with contextlib.ExitStack() as stack:
        viewers = [stack.enter_context(Stream(process.port)) for _ in range(20)]
        for viewer in viewers:
            viewer.ready()
        assert process.stop() == 0
        for viewer in viewers:
            with pytest.raises(EOFError):
                viewer.next()


# Many, and half of them asleep.


@contextlib.asynccontextmanager
async def watching(session: aiohttp.ClientSession, port: int, heard: list[int]) -> AsyncGenerator[None]:
    """A hundred who read and a hundred who do not."""
    asleep = [socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) for _ in range(100)]
    for connection in asleep:
        connection.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())

    ready = asyncio.Semaphore(0)

    async def read(index: int) -> None:
        async with session.get(f"http://127.0.0.1:{port}/events") as answer:
            async for line in answer.content:
                if line.startswith(b"event: ready"):
                    ready.release()
                heard[index] += line.startswith(b"id: ")

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(read(index)) for index in range(100)]
        async with asyncio.timeout(DEADLINE):
            for _ in readers:
                await ready.acquire()
        yield
        for reader in readers:
            reader.cancel()
    for connection in asleep:
        connection.close()


async def test_two_hundred_streams_take_little_memory_and_miss_nothing(process: BrokerProcess) -> None:
    """What they cost others is counted in tests/integration/web/test_events.py."""
    assert process.process is not None
    broker = psutil.Process(process.process.pid)
    heard = [0] * 100
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        client = AsyncMcp(session, process.port)
        for _ in range(100):
            await client("create_review", **PROPOSAL, intent="before")
        memory = broker.memory_info().rss
        async with watching(session, process.port, heard):
            for _ in range(20):
                await asyncio.gather(*(client("create_review", **PROPOSAL, intent="many") for _ in range(50)))
            async with asyncio.timeout(DEADLINE):
                # Each hears of all that happened since it came.
                while min(heard) < 1_000:
                    await asyncio.sleep(0.02)
            grown = broker.memory_info().rss - memory
    assert grown < 40 * 1024 * 1024
