"""Tells which broker answers here, its state, its figures, and the problems with its settings."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gsd_review_broker import __version__
from gsd_review_broker.domain.words import CallerKind
from gsd_review_broker.service.access import caller_in
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.settings.runtime_file import is_challenge, proof_of
from gsd_review_broker.settings.schema import Problems

_NOT_READY = 503


def health_endpoint(
    serves: str, database: str, secret: str, is_ready: Callable[[], Awaitable[bool]]
) -> Callable[[Request], Awaitable[JSONResponse]]:
    """`?challenge=` asks the broker to prove that it wrote its runtime file; `?ready` asks whether it can use its
    database, and is answered with 503 if it cannot: a proxy then sends calls elsewhere. Without a token, where one is
    needed, only status and version are told."""

    async def healthz(request: Request) -> JSONResponse:
        challenge = request.query_params.get("challenge", "")
        proof = {"proof": proof_of(secret, challenge, os.getpid())} if is_challenge(challenge) else {}
        ready = await is_ready() if "ready" in request.query_params else None
        is_known = caller_in(request.scope).kind is not CallerKind.UNKNOWN
        details = {"pid": os.getpid(), "serves": serves, "database": database} if is_known else {}
        readiness = {} if ready is None else {"ready": ready}
        return JSONResponse(
            {"status": "ok", "version": __version__, **details, **proof, **readiness},
            status_code=_NOT_READY if ready is False else 200,
        )

    return healthz


def metrics_endpoint(broker: Broker) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(_request: Request) -> Response:
        from gsd_review_broker.web.api.metrics import exposition  # noqa: PLC0415 - see there

        status, stats = await broker.review_queries.broker_status(), await broker.review_queries.stats()
        return Response(exposition(status, stats, broker.meters), media_type="text/plain; version=0.0.4; charset=utf-8")

    return metrics


def problem_routes(problems: Problems) -> list[Route]:
    async def answer(_request: Request) -> JSONResponse:
        return JSONResponse({"problems": [asdict(problem) for problem in problems()]})

    return [Route("/api/problems", answer, methods=["GET"])]
