"""Who answers here, and how it is doing."""

import os
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gsd_review_broker import __version__
from gsd_review_broker.service.broker import Broker


def health_endpoint(serves: str, database: str) -> Callable[[Request], Awaitable[JSONResponse]]:
    async def healthz(_request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "status": "ok",
                "version": __version__,
                "pid": os.getpid(),
                "serves": serves,
                "database": database,
            }
        )

    return healthz


def metrics_endpoint(broker: Broker) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(_request: Request) -> Response:
        from gsd_review_broker.web.api.metrics import exposition  # noqa: PLC0415 - see there

        status, stats = await broker.review_queries.broker_status(), await broker.statistics.stats()
        return Response(exposition(status, stats, broker.meters), media_type="text/plain; version=0.0.4; charset=utf-8")

    return metrics
