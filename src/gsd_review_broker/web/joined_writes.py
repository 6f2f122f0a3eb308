"""Sends an answer's head together with its body: uvicorn writes them one after the other, which takes two system calls
and wakes the client twice.
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "


class JoinedWrites(asyncio.Transport):
    """A connection's transport. It keeps a head until the next write, but not longer than one turn of the event loop: a
    stream's head does not wait for its first event.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._head:
            self._transport.write(b"".join((self._head, data)))
            self._head = b""
        elif data[: len(_HEAD)] == _HEAD:
            self._head = bytes(data)
            self._loop.call_soon(self._send_head)
        else:
            self._transport.write(data)

    def _send_head(self) -> None:
        # The client may have hung up meanwhile.
        if self._head and not self._transport.is_closing():
            self._transport.write(self._head)
        self._head = b""

    def close(self) -> None:
        self._send_head()
        self._transport.close()

    def abort(self) -> None:
        self._head = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
