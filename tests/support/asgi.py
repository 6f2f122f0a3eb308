"""One HTTP request to an application in this process, as the server would hand it over."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode


@dataclass
class AsgiAnswer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode()


async def request(
    application: Any, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None
) -> AsgiAnswer:
    """The port is that of local_broker."""
    all_headers = {"host": "127.0.0.1:8321", "content-length": str(len(body)), **(headers or {})}
    bare, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": bare,
        "raw_path": bare.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [(name.lower().encode(), value.encode()) for name, value in all_headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8321),
    }
    answer = AsgiAnswer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    await application(scope, receive, send)
    return answer


async def post_form(application: Any, path: str, fields: dict[str, Any]) -> AsgiAnswer:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    return await request(application, "POST", path, body=urlencode(fields).encode(), headers=headers)
