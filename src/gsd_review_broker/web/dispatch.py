"""Sends MCP calls by their path and everything else to the pages, so that a call is not matched against every route."""

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gsd_review_broker.errors import BrokerError, Code


class Dispatch:
    def __init__(self, endpoints: Mapping[str, ASGIApp], *, otherwise: ASGIApp) -> None:
        self._endpoints = endpoints
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # With or without a slash at the end, as people write it by hand.
        application = self._endpoints.get(scope.get("path", "").removesuffix("/"))
        if application is None and scope.get("path", "").startswith("/mcp/"):
            await self._no_such_endpoint(scope["path"])(scope, receive, send)
        elif application is None:
            await self._otherwise(scope, receive, send)
        elif scope["method"] == "GET":
            # Without sessions the server has nothing to stream on its own; a listener would wait forever.
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
        else:
            await application(scope, receive, send)

    def _no_such_endpoint(self, path: str) -> Response:
        """A client with a misspelt role reads which roles there are, instead of a page's "method not allowed"."""
        endpoints = ", ".join(self._endpoints)
        error = BrokerError(Code.NOT_FOUND, f"there is no MCP endpoint {path!r}", f"The endpoints are {endpoints}.")
        return JSONResponse({"error": error.as_json()}, status_code=404)
