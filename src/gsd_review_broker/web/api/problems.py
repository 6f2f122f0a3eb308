"""Problems with the settings, as JSON for `tandem status`."""

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gsd_review_broker.settings.problems import Problems


def problem_routes(problems: Problems) -> list[Route]:
    async def answer(_request: Request) -> JSONResponse:
        return JSONResponse({"problems": [asdict(problem) for problem in problems()]})

    return [Route("/api/problems", answer, methods=["GET"])]
