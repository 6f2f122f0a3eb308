"""Identifies the caller once for each request, before any handler, and says which right each route needs."""

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from gsd_review_broker.domain.rules import Right
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.access import CALLER, Act, Gatekeeper
from gsd_review_broker.web.api.people import failed

# Needs no token, so that a client can find the broker.
_OPEN = frozenset({"/healthz"})
_POOL, _DATABASE = "/api/pool/", "/api/db/"
_REVIEWS, _VERDICT = "/api/reviews/", "/verdict"
# Questions to the gate change nothing. Who may propose may also record that the change landed: the git hook of whoever
# commits does.
_GATE, _LANDED = ("/api/gate/check", "/api/gate/receipts/"), "/api/gate/landed"


class Admission:
    """Tools are admitted one by one, by what they do. All other routes are admitted here."""

    def __init__(self, app: ASGIApp, gatekeeper: Gatekeeper, *, tools: Collection[str]) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._tools = frozenset(tools)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[CALLER] = self._gatekeeper.caller(bearer_of(scope))
            try:
                await self._admit(scope)
            except BrokerError as error:
                refused = failed(error)
                if error.code is Code.UNAUTHENTICATED:
                    refused.headers["WWW-Authenticate"] = "Bearer"
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        path = scope["path"]
        if path.rstrip("/") in self._tools or path in _OPEN:
            return
        await self._gatekeeper.admit(
            scope[CALLER], Act(action=f"{scope['method']} {path}"[:200], right=right_of(scope["method"], path))
        )


def right_of(method: str, path: str) -> Right:
    """A new route is for people, unless it only reads or is listed here."""
    if method in {"GET", "HEAD"}:
        return Right.READ
    if path.startswith(_GATE):
        return Right.READ
    if path == _LANDED:
        return Right.PROPOSE
    if path.startswith(_POOL):
        return Right.RUN_POOL
    if path.startswith(_DATABASE):
        return Right.ADMINISTER
    if path.startswith(_REVIEWS) and path.endswith(_VERDICT):
        return Right.JUDGE
    return Right.ACT_AS_PERSON


def bearer_of(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
    return None
