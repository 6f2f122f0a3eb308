"""What people do and agents have no tool for, and the pool's switches: JSON over HTTP for the command line.

The guard has checked Host and Origin. Only `application/json` is accepted, which a form of another site cannot send.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gsd_review_broker.domain import words
from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.rules.access import Right
from gsd_review_broker.domain.rules.verdicts import Seen
from gsd_review_broker.errors import BrokerError, Code, broker_failed
from gsd_review_broker.service.access import Act, caller_in, names_in
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.service.commands.verdicts import NewVerdict
from gsd_review_broker.service.validation import FindingArgument, Integer, Verdict, refuse_unstorable
from gsd_review_broker.service.wire.hints import Wording, envelope
from gsd_review_broker.web.addresses import digits

log = structlog.get_logger()

HTTP_STATUS = {
    Code.NOT_FOUND: 404,
    Code.INVALID_ARGUMENT: 400,
    Code.INVALID_TRANSITION: 409,
    Code.ALREADY_CLAIMED: 409,
    Code.STALE_CLAIM: 409,
    Code.NOT_CLAIMANT: 403,
    Code.SELF_REVIEW: 403,
    Code.DIFF_INVALID: 422,
    Code.TOO_LARGE: 413,
    Code.CONFLICT: 409,
    Code.BUSY: 503,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.UNAVAILABLE: 503,
    Code.INTERNAL: 500,
}
# Takes the request's fields (path and body together) and returns the answer.
Handler = Callable[[dict[str, Any]], Awaitable[Any]]
# The same, with the caller.
CallersHandler = Callable[[Caller, dict[str, Any]], Awaitable[Any]]


class VerdictRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    review_id: str
    reviewer_id: str
    verdict: Verdict
    reason: str | None = None
    counter_patch: str | None = None
    findings: list[FindingArgument] = Field(default_factory=list[FindingArgument])
    # What the person has read; compared if it is given.
    revision: Integer | None = None
    digest: str | None = None

    def new_verdict(self) -> NewVerdict:
        return NewVerdict(
            verdict=words.Verdict(self.verdict),
            reason=self.reason,
            counter_patch=self.counter_patch,
            findings=self.findings,
        )


def verdict_of(fields: dict[str, Any]) -> VerdictRequest:
    try:
        request = VerdictRequest.model_validate(fields)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)[:5]
        named = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
        names = ", ".join(VerdictRequest.model_fields)
        raise BrokerError(Code.INVALID_ARGUMENT, named, f"A verdict takes {names}.") from error
    for name, value in fields.items():
        refuse_unstorable(name, value)
    return request


def api_routes(broker: Broker) -> list[Route]:
    async def verdict(caller: Caller, fields: dict[str, Any]) -> Any:
        request = verdict_of(fields)
        await admit(caller, "verdict", Right.JUDGE, fields)
        return await broker.verdicts.give_with_claim(
            caller,
            request.review_id,
            request.new_verdict(),
            reviewer_id=request.reviewer_id,
            seen=Seen(revision=request.revision, digest=request.digest),
        )

    async def take_over(caller: Caller, fields: dict[str, Any]) -> Any:
        person = text(fields, "person")
        await admit(caller, "take over", Right.ACT_AS_PERSON, {**fields, "reviewer_id": person})
        return await broker.claims.take_over(caller, text(fields, "review_id"), person)

    async def prune(_caller: Caller, fields: dict[str, Any]) -> Any:
        return await broker.retention.prune(text(fields, "closed_before"))

    async def admit(caller: Caller, action: str, right: Right, fields: dict[str, Any]) -> None:
        """Admit the call under the name that the body gives."""
        names = names_in(fields, writes=True)
        await broker.gatekeeper.admit(
            caller, Act(action=action, right=right, names=names, review_id=fields["review_id"])
        )

    return [
        # A person may type anything as an id, even a slash.
        post_by_caller("/api/reviews/{review_id:path}/verdict", verdict),
        post_by_caller("/api/reviews/{review_id}/take-over", take_over),
        post_by_caller("/api/db/prune", prune),
    ]


def post(path: str, handler: Handler) -> Route:
    return post_by_caller(path, lambda _caller, fields: handler(fields))


def post_by_caller(path: str, handler: CallersHandler) -> Route:
    return _route(path, handler, "POST", _body)


def get(path: str, handler: Handler) -> Route:
    return get_by_caller(path, lambda _caller, fields: handler(fields))


def get_by_caller(path: str, handler: CallersHandler) -> Route:
    return _route(path, handler, "GET", _query)


def _route(
    path: str, handler: CallersHandler, method: str, read_fields: Callable[[Request], Awaitable[dict[str, Any]]]
) -> Route:
    async def answer(request: Request) -> JSONResponse:
        try:
            fields = {**await read_fields(request), **request.path_params}
            return JSONResponse(await handler(caller_in(request.scope), fields))
        except BrokerError as error:
            return failed(error)
        except Exception:
            log.exception("request_failed", path=path)
            return failed(broker_failed())

    return Route(path, answer, methods=[method])


async def _query(request: Request) -> dict[str, Any]:
    return dict(request.query_params)


def failed(error: BrokerError) -> JSONResponse:
    # The command line uses these routes.
    body = envelope(error, Wording.COMMANDS)
    return JSONResponse({"error": body}, status_code=HTTP_STATUS[error.code])


def text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise BrokerError(Code.INVALID_ARGUMENT, f"{name}: a text is needed", f"Pass {name} as a JSON string.")
    return value


def optional(fields: dict[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else text(fields, name)


async def _body(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BrokerError(Code.INVALID_ARGUMENT, "the body is not JSON", "Send Content-Type: application/json.")
    try:
        fields = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError) as error:
        raise BrokerError(Code.INVALID_ARGUMENT, f"the body is not JSON: {error}", "Send one object.") from error
    if not isinstance(fields, dict):
        raise BrokerError(Code.INVALID_ARGUMENT, "the body is not a JSON object", "Send one object.")
    return cast("dict[str, Any]", fields)


def pool_routes(broker: Broker) -> list[Route]:
    reviewers = broker.pool

    async def spawn(fields: dict[str, Any]) -> Any:
        return await reviewers.spawn(optional(fields, "agent"), optional(fields, "project"))

    async def tail(fields: dict[str, Any]) -> Any:
        return await reviewers.log(text(fields, "reviewer_id"), _number(fields, "characters", 20_000))

    one = "/api/pool/reviewers/{reviewer_id}"
    return [
        get("/api/pool", lambda _: reviewers.state()),
        post("/api/pool/pause", lambda _: reviewers.pause()),
        post("/api/pool/resume", lambda _: reviewers.resume()),
        post("/api/pool/scale", lambda fields: reviewers.scale(_number(fields, "max_pool_size"))),
        post("/api/pool/spawn", spawn),
        post(f"{one}/drain", lambda fields: reviewers.kill(text(fields, "reviewer_id"))),
        post(f"{one}/kill", lambda fields: reviewers.kill(text(fields, "reviewer_id"), force=True)),
        get(f"{one}/log", tail),
    ]


def _number(fields: dict[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, str):
        value = digits(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise BrokerError(Code.INVALID_ARGUMENT, f"{name}: a whole number is needed", f"Pass {name} as a number.")
