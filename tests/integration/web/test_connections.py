"""What a connection costs whose client sends requests and reads no answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gsd_review_broker.web.edge import BoundedHttpProtocol
from tests.support.waiting import PATIENCE

ONE = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
MANY = 200_000


class Watched(BoundedHttpProtocol):
    received = 0

    def data_received(self, data: bytes) -> None:
        Watched.received += len(data)
        super().data_received(data)


@asynccontextmanager
async def served(turns: asyncio.Semaphore, state: ServerState) -> AsyncIterator[int]:
    """Answers one request for each turn."""

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await turns.acquire()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(answer, http=Watched, lifespan="off", log_config=None)
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Watched(config=config, server_state=state, app_state={}), host="127.0.0.1", port=0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_who_sends_and_never_reads_is_read_from_again_only_when_all_is_answered() -> None:
    """L10: uvicorn reads on after each answer, and keeps every request that it has read."""
    turns, state = asyncio.Semaphore(0), ServerState()
    Watched.received = 0
    async with served(turns, state) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ONE * MANY)
        async with asyncio.timeout(PATIENCE):
            while Watched.received < 4 * len(ONE):
                await asyncio.sleep(0)
        # The rest waits in the kernels, and in the client. Half of what was read is answered.
        before = Watched.received
        answers = before // len(ONE) // 2
        for _ in range(answers):
            turns.release()
        async with asyncio.timeout(PATIENCE):
            while state.total_requests < answers:
                await asyncio.sleep(0)
        assert Watched.received == before < len(ONE) * MANY
        writer.transport.abort()
        for _ in range(MANY):
            turns.release()
