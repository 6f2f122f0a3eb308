"""Identifies the caller once for each request, before any handler, and says which right each route needs."""

from collections.abc import Collection

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gsd_review_broker.domain.caller import CallerKind
from gsd_review_broker.domain.rules.access import Right
from gsd_review_broker.errors import BrokerError, Code, unauthenticated
from gsd_review_broker.service.access import CALLER, RECHECK, Act, Gatekeeper, Identification
from gsd_review_broker.web.api.people import HTTP_STATUS, failed
from gsd_review_broker.web.bearer import bearer_of, cookie_of
from gsd_review_broker.web.sign_in import NEW_LINK, SIGN_IN

# Needs no token, so that a client can find the broker.
_OPEN = frozenset({"/healthz", SIGN_IN})
_POOL, _ADMINISTRATION = "/api/pool/", ("/api/db/", "/api/tokens")
_REVIEWS, _VERDICT = "/api/reviews/", "/verdict"
# Questions to the gate change nothing. Who may propose may also record that the change landed: the git hook of whoever
# commits does.
_GATE, _LANDED = ("/api/gate/check", "/api/gate/receipts/"), "/api/gate/landed"


class Admission:
    """Tools are admitted one by one, by what they do. All other routes are admitted here."""

    def __init__(
        self, app: ASGIApp, identification: Identification, gatekeeper: Gatekeeper, *, tools: Collection[str]
    ) -> None:
        self._app = app
        self._identification = identification
        self._gatekeeper = gatekeeper
        self._tools = frozenset(tools)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                await self._identify(scope)
                await self._admit(scope)
            except BrokerError as error:
                refused = _read_by_a_person(error) if _is_browser(scope) else failed(error)
                if error.code is Code.UNAUTHENTICATED:
                    refused.headers["WWW-Authenticate"] = "Bearer"
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _identify(self, scope: Scope) -> None:
        bearer = bearer_of(scope)
        if bearer is None and not self._is_for_programs(scope["path"]):
            bearer = cookie_of(scope)
        scope[RECHECK] = lambda: self._identification.caller(bearer)
        caller = scope[CALLER] = await self._identification.caller(bearer)
        if caller.kind is CallerKind.UNKNOWN and self._identification.needs_token and scope["path"] not in _OPEN:
            raise unauthenticated(has_token=bearer is not None)

    def _is_for_programs(self, path: str) -> bool:
        return path.startswith("/api/") or path.rstrip("/") in self._tools

    async def _admit(self, scope: Scope) -> None:
        path = scope["path"]
        if path.rstrip("/") in self._tools or path in _OPEN:
            return
        await self._gatekeeper.admit(
            scope[CALLER], Act(action=f"{scope['method']} {path}"[:200], right=right_of(scope["method"], path))
        )


def right_of(method: str, path: str) -> Right:
    """A new route is for people, unless it only reads or is listed here."""
    if path.startswith(_ADMINISTRATION):
        return Right.ADMINISTER
    if method in {"GET", "HEAD"}:
        return Right.READ
    if path.startswith(_GATE) or path == NEW_LINK:
        return Right.READ
    if path == _LANDED:
        return Right.PROPOSE
    if path.startswith(_POOL):
        return Right.RUN_POOL
    if path.startswith(_REVIEWS) and path.endswith(_VERDICT):
        return Right.JUDGE
    return Right.ACT_AS_PERSON


def _is_browser(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _read_by_a_person(error: BrokerError) -> Response:
    hint = "Run `tandem open`: it opens this dashboard and signs you in.\n"
    return PlainTextResponse(f"{error.message}\n{hint}", status_code=HTTP_STATUS[error.code])
