"""One HTTP request to an application in this process, as the server would hand it over, and what came back."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class AsgiAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").split(";")[0]

    @property
    def message(self) -> Any:
        """The JSON-RPC message, plain or as the only event of a stream."""
        if self.kind == "text/event-stream":
            lines = [line[6:] for line in self.body.decode().split("\r\n") if line.startswith("data: ")]
            return json.loads(lines[-1])
        return json.loads(self.body) if self.body and self.kind == "application/json" else self.body


_CLIENT = ("127.0.0.1", 1)


async def request(
    application: ASGIApp,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    client: tuple[str, int] = _CLIENT,
) -> AsgiAnswer:
    """The port is that of local_broker."""
    given = {"host": "127.0.0.1:8321", "content-length": str(len(body)), **(headers or {})}
    encoded = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    answer = await send_request(application, encoded, body, method=method, path=path, client=client)
    assert answer is not None
    return answer


async def post_form(application: ASGIApp, path: str, fields: dict[str, Any]) -> AsgiAnswer:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    return await request(application, "POST", path, body=urlencode(fields).encode(), headers=headers)


async def send_request(
    application: ASGIApp,
    headers: Headers,
    *pieces: bytes,
    method: str = "POST",
    path: str = "/mcp",
    gone: asyncio.Event | None = None,
    missing: bool = False,
    client: tuple[str, int] = _CLIENT,
) -> AsgiAnswer | None:
    """Byte for byte as the test gives it. `gone` is set when the caller hangs up; with `missing`, the caller hangs up
    before its last piece."""
    waiting: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": missing or number < len(pieces)}
        for number, piece in enumerate(pieces, 1)
    ]
    sent: list[Message] = []
    hang_up = gone or asyncio.Event()

    async def receive() -> Message:
        if waiting:
            return waiting.pop(0)
        if not missing:
            await hang_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await application({**_scope(headers, method, path), "client": client}, receive, send)
    if not sent:
        return None
    body = b"".join(message.get("body", b"") for message in sent[1:])
    kept = {name.decode().lower(): value.decode() for name, value in sent[0].get("headers", [])}
    return AsgiAnswer(sent[0]["status"], kept, body)


def _scope(headers: Headers, method: str, path: str) -> dict[str, Any]:
    bare, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": bare,
        "raw_path": bare.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "server": ("127.0.0.1", 8321),
        "headers": headers,
    }
