"""The gate over HTTP: for the git hook as plain text, for the command line as JSON."""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gsd_review_broker.domain.gate.ledger import Origin
from gsd_review_broker.domain.gate.request import parse_request
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.web.api.people import failed, post, text

log = structlog.get_logger()

# No form of another site can send it.
_CONTENT_TYPE = "application/x-tandem-gate"


def gate_routes(broker: Broker) -> list[Route]:
    gate = broker.gate

    async def check(request: Request, body: bytes) -> Response:
        asked = parse_request(body)
        answer = await gate.check(asked)
        if request.headers.get("accept") == "text/plain":
            return PlainTextResponse(f"{answer.outcome}\n{answer.text}")
        return JSONResponse(answer.as_json(asked.commits))

    async def landed(_request: Request, body: bytes) -> Response:
        return JSONResponse(await gate.landed(parse_request(body)))

    async def override(asked: dict[str, Any]) -> Any:
        minutes = asked.get("minutes", 15)
        if not isinstance(minutes, int) or isinstance(minutes, bool):
            raise BrokerError(Code.INVALID_ARGUMENT, "minutes: a whole number is needed", "Pass minutes as a number.")
        root = text(asked, "root") if asked.get("root") else None
        commit = text(asked, "commit") if asked.get("commit") else None
        origin = Origin(root=commit, folder=text(asked, "folder"))
        return await gate.override(origin, root, text(asked, "person"), text(asked, "reason"), minutes)

    async def receipt(asked: dict[str, Any]) -> Any:
        return await gate.receipt(text(asked, "review_id"))

    return [
        post("/api/gate/receipts/{review_id}", receipt),
        _route("/api/gate/check", check),
        _route("/api/gate/landed", landed),
        post("/api/gate/override", override),
    ]


def _require_own_kind(request: Request) -> None:
    if request.headers.get("content-type") != _CONTENT_TYPE:
        raise BrokerError(Code.INVALID_ARGUMENT, "this is not a question to the gate", f"Send {_CONTENT_TYPE}.")


def _route(path: str, handler: Callable[[Request, bytes], Awaitable[Response]]) -> Route:
    async def answer(request: Request) -> Response:
        try:
            _require_own_kind(request)
            return await handler(request, await request.body())
        except BrokerError as error:
            return failed(error)
        except Exception:
            log.exception("request_failed", path=path)
            return failed(BrokerError(Code.INTERNAL, "the broker failed; see its log", "Try again."))

    return Route(path, answer, methods=["POST"])
