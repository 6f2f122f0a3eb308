"""Checks Host and Origin exactly, before any handler, on every route.

A web page that a user happens to open must not be able to talk to the broker, whatever name resolves to this machine.
"""

from collections.abc import Iterable

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gsd_review_broker.errors import BrokerError, Code


class HostAndOriginGuard:
    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str], body_limit: int) -> None:
        self._app = app
        self._body_limit = body_limit
        self._hosts = {host.encode() for host in hosts}
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts, origins, size = _checked_headers(scope)
            if len(hosts) != 1 or hosts[0] not in self._hosts:
                await _refuse(421, "Host")(scope, receive, send)
                return
            if len(origins) > 1 or not self._origins.issuperset(origins):
                await _refuse(403, "Origin")(scope, receive, send)
                return
            if size > self._body_limit:
                await _too_large(self._body_limit)(scope, receive, send)
                return
        elif scope["type"] != "lifespan":
            return
        await self._app(scope, receive, send)


def _refuse(status: int, name: str) -> PlainTextResponse:
    return PlainTextResponse(
        f"forbidden: this {name} may not use the broker; call it as 127.0.0.1, localhost or [::1] on its port, or by a "
        "name in allowed_hosts.\n",
        status_code=status,
    )


class BodyLimit:
    """For pages and JSON routes: a body without a declared size is counted as it arrives.

    MCP's endpoints count by themselves.
    """

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limit:
                raise BrokerError(Code.TOO_LARGE, f"the body is over the limit of {self._limit} bytes", "Send less.")
            return message

        await self._app(scope, counted if scope["type"] == "http" else receive, send)


def _checked_headers(scope: Scope) -> tuple[list[bytes], list[bytes], int]:
    """The hosts, the origins, and the largest size that the request declares."""
    hosts: list[bytes] = []
    origins: list[bytes] = []
    size = 0
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value.lower())
        elif name == b"origin":
            origins.append(value.lower())
        elif name == b"content-length" and value.isdigit():
            size = max(size, int(value))
    return hosts, origins, size


def _too_large(limit: int) -> PlainTextResponse:
    return PlainTextResponse(
        f"too_large: the body is over the limit of {limit} bytes; send less, or raise limits.body_bytes.\n",
        status_code=413,
    )
