"""Who answers here."""

import os
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse

from gsd_review_broker import __version__


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
