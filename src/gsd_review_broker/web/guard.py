"""Host and Origin, checked exactly and before any handler, on every route: a web page that a user happens to
open must not be able to talk to the broker, whatever name it resolves to this machine."""

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class HostAndOriginGuard:
    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self._app = app
        hosts = [f"{name}:{port}" for name in _LOOPBACK_NAMES]
        if port == 80:  # noqa: PLR2004 - HTTP's own port is left out by clients
            hosts += _LOOPBACK_NAMES
        self._hosts = {host.encode() for host in hosts}
        self._origins = {f"http://{host}".encode() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value.lower() for name, value in scope["headers"] if name == b"host"]
            origins = [value.lower() for name, value in scope["headers"] if name == b"origin"]
            if len(hosts) != 1 or hosts[0] not in self._hosts:
                await _refuse(421, "Host")(scope, receive, send)
                return
            if len(origins) > 1 or not self._origins.issuperset(origins):
                await _refuse(403, "Origin")(scope, receive, send)
                return
        elif scope["type"] != "lifespan":
            return
        await self._app(scope, receive, send)


def _refuse(status: int, name: str) -> PlainTextResponse:
    return PlainTextResponse(
        f"forbidden: this {name} may not use the broker; call it as 127.0.0.1, localhost or [::1] on its port.\n",
        status_code=status,
    )
