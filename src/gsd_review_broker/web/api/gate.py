"""The gate over HTTP: for the git hook as plain text, for the command line as JSON."""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.gate.decision import RepositoryId
from gsd_review_broker.domain.gate.request import parse_request
from gsd_review_broker.domain.rules.access import Right
from gsd_review_broker.domain.text import Identity
from gsd_review_broker.errors import BrokerError, Code, broker_failed
from gsd_review_broker.service.access import Act
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.web.api.people import failed, post, post_by_caller, text

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

    async def override(caller: Caller, fields: dict[str, Any]) -> Any:
        minutes = fields.get("minutes", 15)
        if not isinstance(minutes, int) or isinstance(minutes, bool):
            raise BrokerError(Code.INVALID_ARGUMENT, "minutes: a whole number is needed", "Pass minutes as a number.")
        person = await _acting(caller, fields)
        root = text(fields, "root") if fields.get("root") else None
        commit = text(fields, "commit") if fields.get("commit") else None
        origin = RepositoryId(root=commit, folder=text(fields, "folder"))
        reason, is_elsewhere = text(fields, "reason"), fields.get("elsewhere") is True
        return await gate.override(origin, root, person, reason, minutes, is_elsewhere=is_elsewhere)

    async def _acting(caller: Caller, fields: dict[str, Any]) -> str:
        """Return the token's identity. Without a token, on the loopback, return the name that the caller gives."""
        named = Identity(text(fields, "person")) if fields.get("person") or caller.identity is None else caller.identity
        act = Act(action="override", right=Right.ACT_AS_PERSON, names=(("person", named),))
        await broker.gatekeeper.admit(caller, act)
        return caller.identity or named

    return [
        post(
            "/api/gate/receipts/override",
            lambda fields: broker.receipts.of_override(text(fields, "folder"), text(fields, "commit")),
        ),
        post("/api/gate/receipts/{review_id}", lambda fields: broker.receipts.of_review(text(fields, "review_id"))),
        _route("/api/gate/check", check),
        _route("/api/gate/landed", landed),
        post_by_caller("/api/gate/override", override),
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
            return failed(broker_failed())

    return Route(path, answer, methods=["POST"])
