"""A client that costs almost nothing: it sends prepared bytes over a kept connection and returns the body's bytes.

The official clients take two to four times as long as the server, so they would mostly measure themselves.
"""

import json
import socket
from typing import Any, Self

MODERN = "2026-07-28"
HANDSHAKE_ERA = "2025-06-18"
_RECEIVE_BYTES = 1 << 18
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(
    port: int,
    method: str,
    params: dict[str, Any],
    *,
    path: str = "/mcp",
    protocol: str = MODERN,
    name: str | None = None,
) -> bytes:
    """One POST that can be sent any number of times."""
    sent = {**params, "_meta": _META} if protocol == MODERN else params
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}
    body = json.dumps(message, separators=(",", ":")).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {protocol}",
        f"Content-Length: {len(body)}",
    ]
    if protocol == MODERN:
        lines.append(f"Mcp-Method: {method}")
        lines += [f"Mcp-Name: {name}"] if name else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def tool_request(
    port: int, tool: str, arguments: dict[str, Any], *, path: str = "/mcp", protocol: str = MODERN
) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return request(port, "tools/call", params, path=path, protocol=protocol, name=tool)


_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Incoming:
    """One answer as it arrives: JSON with a length; or a stream in chunks, as the SDK answers revisions before
    2026-07-28."""

    __slots__ = ("_body_from", "_buffer", "_end")

    def __init__(self) -> None:
        self._buffer = b""
        self._body_from = 0
        # None: where the last chunk ends.
        self._end: int | None = None

    def feed(self, data: bytes) -> bytes | None:
        """The body when it is complete."""
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer = self._buffer + data if self._buffer else data
        if not self._body_from and not self._read_head():
            return None
        if self._end is None:
            return self._buffer[self._body_from :] if self._buffer.endswith(_LAST_CHUNK) else None
        return self._buffer[self._body_from :] if len(self._buffer) >= self._end else None

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = self._buffer[:end].lower()
        if not head.startswith(b"http/1.1 200"):
            raise ConnectionError(f"refused: {self._buffer[:500]!r}")
        self._body_from = end + 4
        _, found, rest = head.partition(b"content-length:")
        if found:
            self._end = self._body_from + int(rest.split(b"\r\n", 1)[0])
        return True


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Connection:
    """Blocking, one call at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket = connect(port)

    def send(self, prepared: bytes) -> None:
        self.socket.sendall(prepared)

    def receive(self) -> bytes:
        incoming = Incoming()
        while True:
            body = incoming.feed(self.socket.recv(_RECEIVE_BYTES))
            if body is not None:
                return body

    def exchange(self, prepared: bytes) -> bytes:
        self.socket.sendall(prepared)
        return self.receive()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return structured(self.exchange(tool_request(self.port, tool, arguments)))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def result_of(body: bytes) -> dict[str, Any]:
    message = json.loads(body)
    if "error" in message:
        raise ValueError(f"protocol error: {message['error']}")
    return message["result"]


def structured(body: bytes) -> dict[str, Any]:
    """A tool's answer; a refusal is a mistake of the benchmark."""
    result = result_of(body)
    if result.get("isError"):
        raise ValueError(f"refused: {result['content'][0]['text']}")
    return result["structuredContent"]
