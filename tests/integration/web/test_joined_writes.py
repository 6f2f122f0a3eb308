"""An answer's head and body leave together, and a stream's head at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gsd_review_broker.web.connection_limits import BoundedHttpProtocol
from gsd_review_broker.web.joined_writes import JoinedWrites
from tests.support.waiting import PATIENCE

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Recorded(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


async def test_a_head_is_sent_with_the_body_that_follows_it() -> None:
    recorded = Recorded()
    joined = JoinedWrites(recorded)
    for _ in range(2):
        joined.write(HEAD)
        joined.write(b"ok")
    await asyncio.sleep(0)
    assert recorded.sent == [HEAD + b"ok"] * 2


async def test_a_head_without_a_body_is_sent_in_the_next_turn() -> None:
    recorded = Recorded()
    joined = JoinedWrites(recorded)
    joined.write(HEAD)
    assert recorded.sent == []
    await asyncio.sleep(0)
    assert recorded.sent == [HEAD]
    joined.write(b"later")
    assert recorded.sent == [HEAD, b"later"]


async def test_a_head_is_sent_before_the_connection_is_closed() -> None:
    recorded = Recorded()
    joined = JoinedWrites(recorded)
    joined.write(HEAD)
    joined.close()
    await asyncio.sleep(0)
    assert recorded.sent == [HEAD]
    assert recorded.is_closed


async def test_a_head_is_not_sent_to_a_client_that_has_hung_up() -> None:
    """uvloop's transport would raise."""
    recorded = Recorded()
    joined = JoinedWrites(recorded)
    joined.write(HEAD)
    recorded.close()
    await asyncio.sleep(0)
    assert recorded.sent == []


async def test_an_aborted_connection_sends_nothing_more() -> None:
    recorded = Recorded()
    joined = JoinedWrites(recorded)
    joined.write(HEAD)
    joined.abort()
    await asyncio.sleep(0)
    assert recorded.sent == []


@asynccontextmanager
async def served(answer: Callable[[Scope, Receive, Send], Awaitable[None]]) -> AsyncIterator[int]:
    config = uvicorn.Config(answer, http=BoundedHttpProtocol, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedHttpProtocol(config=config, server_state=state, app_state={}), host="127.0.0.1", port=0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_streams_head_arrives_before_its_first_event() -> None:
    events = asyncio.Event()

    async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await events.wait()
        await send({"type": "http.response.body", "body": b"data: 1\n\n"})

    async with served(stream) as port, asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        events.set()
        assert b"data: 1" in await reader.readuntil(b"0\r\n\r\n")
        writer.close()


async def test_the_answer_to_a_head_request_is_sent_though_it_has_no_body() -> None:
    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with served(answer) as port, asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HEAD / HTTP/1.1\r\nHost: broker\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        writer.close()
