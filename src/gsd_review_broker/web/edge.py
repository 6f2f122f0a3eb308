"""The edge of the broker: every request passes here before any handler, and is refused or gets its caller.

In this order: the guard compares Host and Origin, admission finds out who calls and which right the route needs, and
the path says which application answers.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from http.cookies import CookieError, SimpleCookie

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gsd_review_broker.domain.rules.access import Right
from gsd_review_broker.domain.words import CallerKind
from gsd_review_broker.errors import BrokerError, Code, unauthenticated
from gsd_review_broker.service.access import CALLER, RECHECK, Act, Gatekeeper, Identification, caller_in
from gsd_review_broker.web.api.people import HTTP_STATUS, failed

COOKIE = "tandem_token"
SIGN_IN, NEW_LINK = "/sign-in", "/api/sign-in"
# Needs no token, so that a client can find the broker.
_OPEN = frozenset({"/healthz", SIGN_IN})
_POOL, _ADMINISTRATION = "/api/pool/", ("/api/db/", "/api/tokens")
_REVIEWS, _VERDICT = "/api/reviews/", "/verdict"
# Questions to the gate change nothing. A caller who may propose may also record that the change landed: the committer's
# git hook does.
_GATE, _LANDED = ("/api/gate/check", "/api/gate/receipts/"), "/api/gate/landed"
_STOPPED = BrokerError(
    Code.UNAVAILABLE,
    "the broker was stopped before this call was answered",
    "Call again with the same key: what was done already is not done twice.",
)


class Guard:
    """Compares Host and Origin exactly, and the declared size of the body with its limit.

    A web page that a user happens to open must not be able to talk to the broker, whatever name resolves to this
    machine.
    """

    def __init__(self, *, hosts: Iterable[str], origins: Iterable[str], body_limit: int) -> None:
        self._body_limit = body_limit
        self._hosts = {host.encode() for host in hosts}
        self._origins = {origin.encode() for origin in origins}

    def refusal(self, scope: Scope) -> Response | None:
        hosts, origins, size = _checked_headers(scope)
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _forbidden(421, "Host")
        if len(origins) > 1 or not self._origins.issuperset(origins):
            return _forbidden(403, "Origin")
        return _too_large(self._body_limit) if size > self._body_limit else None


class Admission:
    """Identifies the caller once for each request. Tools are admitted one by one, by what they do; routes are admitted
    here.
    """

    def __init__(self, identification: Identification, gatekeeper: Gatekeeper, *, tools: Collection[str]) -> None:
        self._identification = identification
        self._gatekeeper = gatekeeper
        self._tools = frozenset(tools)

    async def refusal(self, scope: Scope) -> Response | None:
        try:
            await self._identify(scope)
            await self._admit(scope)
        except BrokerError as error:
            refused = _read_by_a_person(error) if _is_browser(scope) else failed(error)
            if error.code is Code.UNAUTHENTICATED:
                refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        return None

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


class Pages:
    """Pages and JSON routes: one application for the whole broker, and one for each project that a token is bound to.

    A body without a declared size is measured as it arrives. MCP's endpoints measure their own.
    """

    def __init__(self, whole: ASGIApp, make: Callable[[str], ASGIApp], *, body_limit: int) -> None:
        self._whole = whole
        self._make = make
        self._made: dict[str, ASGIApp] = {}
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._whole(scope, receive, send)
            return
        project = caller_in(scope).project
        application = self._whole if project is None else self._of(project)
        await application(scope, self._counted(receive), send)

    def _of(self, project: str) -> ASGIApp:
        if project not in self._made:
            self._made[project] = self._make(project)
        return self._made[project]

    def _counted(self, receive: Receive) -> Receive:
        size, limit = 0, self._body_limit

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise BrokerError(Code.TOO_LARGE, f"the body is over the limit of {limit} bytes", "Send less.")
            return message

        return counted


class Edge:
    """The ASGI application that the server runs.

    Calls go to MCP's endpoints by their path, so that they are not matched against every route. At its stop the server
    gives calls a moment and then cancels them: they are answered with 503, so that a proxy may ask another broker.
    """

    def __init__(self, guard: Guard, admission: Admission, *, endpoints: Mapping[str, ASGIApp], pages: ASGIApp) -> None:
        self._guard = guard
        self._admission = admission
        self._endpoints = endpoints
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._pages(scope, receive, send)
        if scope["type"] != "http":
            return
        try:
            refused = self._guard.refusal(scope) or await self._admission.refusal(scope)
            await (refused or self._application(scope))(scope, receive, send)
        except asyncio.CancelledError:
            # The server refuses an answer after the first one has begun; then the connection is closed.
            with suppress(RuntimeError):
                await failed(_STOPPED)(scope, receive, send)
                return
            raise

    def _application(self, scope: Scope) -> ASGIApp:
        # People who write the path by hand may end it with a slash.
        endpoint = self._endpoints.get(scope["path"].removesuffix("/"))
        if endpoint is None:
            return self._no_such_endpoint(scope["path"]) if scope["path"].startswith("/mcp/") else self._pages
        if scope["method"] == "GET":
            # Without sessions the server has nothing to stream on its own; a listener would wait forever.
            return Response(status_code=405, headers={"Allow": "POST"})
        return endpoint

    def _no_such_endpoint(self, path: str) -> Response:
        """Tell a client with a misspelt role which endpoints there are."""
        endpoints = ", ".join(self._endpoints)
        error = BrokerError(Code.NOT_FOUND, f"there is no MCP endpoint {path!r}", f"The endpoints are {endpoints}.")
        return JSONResponse({"error": error.as_json()}, status_code=404)


class LateRoutes:
    """Routes that are made with the first request for one of them: many brokers never show a page."""

    def __init__(self, make: Callable[[], Sequence[BaseRoute]]) -> None:
        self._make = make

    @cached_property
    def _router(self) -> Router:
        return Router(self._make())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)


def bearer_of(scope: Scope) -> str | None:
    """Return the token in the header."""
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
    return None


def cookie_of(scope: Scope) -> str | None:
    """Return the token in the cookie, which only pages accept."""
    for name, value in scope["headers"]:
        if name == b"cookie" and COOKIE.encode() in value:
            try:
                morsel = SimpleCookie(value.decode("latin-1")).get(COOKIE)
            except CookieError:
                return None
            return morsel.value if morsel else None
    return None


def right_of(method: str, path: str) -> Right:
    """Return the right that a route needs. A new route is for people, unless it only reads or is listed here."""
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


def _checked_headers(scope: Scope) -> tuple[list[bytes], list[bytes], int]:
    """Return the hosts, the origins, and the largest size that the request declares."""
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


def _forbidden(status: int, name: str) -> Response:
    return PlainTextResponse(
        f"forbidden: this {name} may not use the broker; call it as 127.0.0.1, localhost or [::1] on its port, or by a "
        "name in allowed_hosts.\n",
        status_code=status,
    )


def _too_large(limit: int) -> Response:
    return PlainTextResponse(
        f"too_large: the body is over the limit of {limit} bytes; send less, or raise limits.body_bytes.\n",
        status_code=413,
    )


def _is_browser(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _read_by_a_person(error: BrokerError) -> Response:
    hint = "Run `tandem open`: it opens this dashboard and signs you in.\n"
    return PlainTextResponse(f"{error.message}\n{hint}", status_code=HTTP_STATUS[error.code])


MOST_HEADER_BYTES = 64 * 1024
_TOO_LARGE = 431
_REFUSAL = f"too_large: the request's headers are over the limit of {MOST_HEADER_BYTES} bytes.\n".encode()


class _HeadersTooLargeError(Exception):
    pass


class BoundedHttpProtocol(HttpToolsProtocol):
    """Limits the headers. A client that sends requests without reading the answers is read again only when all are
    answered.
    """

    _in_headers = True
    _header_bytes = 0
    _is_refused = False

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._header_bytes += len(data) if self._in_headers else 0
        super().data_received(data)
        if self._in_headers and self._header_bytes > MOST_HEADER_BYTES and not self._is_refused:
            self._refuse()

    def on_message_begin(self) -> None:
        self._in_headers, self._header_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # White space around a value is not part of it (RFC 9110, 5.5); the parser does not strip trailing white space.
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_headers = False
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > MOST_HEADER_BYTES:
            # Stops the parser; its caller answers with send_400_response.
            self._is_refused = True
            raise _HeadersTooLargeError
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._is_refused:
            self._refuse()
        else:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()

    def _refuse(self) -> None:
        self._is_refused = True
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[_TOO_LARGE] + head % len(_REFUSAL) + _REFUSAL)
        self.transport.close()
