"""MCP calls by their path, everything else to the pages: a call need not be matched against every route."""

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class Dispatch:
    def __init__(self, endpoints: Mapping[str, ASGIApp], *, otherwise: ASGIApp) -> None:
        self._endpoints = endpoints
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # With or without a slash at the end, as people write it by hand.
        application = self._endpoints.get(scope.get("path", "").removesuffix("/"))
        if application is None:
            await self._otherwise(scope, receive, send)
        elif scope["method"] == "GET":
            # Without sessions there is nothing to stream of our own accord; a listener would wait for ever.
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
        else:
            await application(scope, receive, send)
