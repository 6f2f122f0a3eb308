"""MCP calls by their path, everything else to the pages: a call need not be matched against every route."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class Dispatch:
    def __init__(self, endpoints: Mapping[str, ASGIApp], *, otherwise: ASGIApp) -> None:
        self._endpoints = endpoints
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        application = self._endpoints.get(scope.get("path", ""), self._otherwise)
        await application(scope, receive, send)
