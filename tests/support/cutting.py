"""A way to PostgreSQL that breaks at the worst moment: after a COMMIT has arrived, before its answer is back."""

import asyncio
import contextlib
import random
import threading
from pathlib import Path
from typing import Self

_COMMIT = b"COMMIT;\0"
_PIECE = 65_536


class CuttingProxy:
    """Listens on the loopback and passes everything on to the server's socket, in a thread of its own.

    While `chance` is above zero, it cuts that part of the connections that send COMMIT: the server gets it, and its
    answer is thrown away.
    """

    def __init__(self, socket: Path, seed: int) -> None:
        self._socket = socket
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._under_way: set[asyncio.Task[None]] = set()
        self.port = 0
        self.chance = 0.0
        self.cuts = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _stop(self) -> None:
        self._server.close()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            writer.close()
            self._under_way.discard(task)
            return
        silent = asyncio.Event()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            answers = asyncio.create_task(self._answers(server_reader, writer, silent))
            await self._calls(reader, server_writer, silent)
            await answers
        for one in (server_writer, writer):
            one.transport.abort()
        self._under_way.discard(task)

    async def _calls(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, silent: asyncio.Event) -> None:
        while piece := await reader.read(_PIECE):
            if piece.endswith(_COMMIT) and self._random.random() < self.chance:
                silent.set()
                self.cuts += 1
            server.write(piece)
            await server.drain()
            if silent.is_set():
                return
        server.close()

    async def _answers(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, silent: asyncio.Event) -> None:
        """Until the server's answer to the COMMIT has come: it is done, and nobody here will know."""
        while piece := await server.read(_PIECE):
            if silent.is_set():
                return
            writer.write(piece)
            await writer.drain()
        writer.close()
