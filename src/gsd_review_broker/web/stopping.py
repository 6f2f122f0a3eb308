"""The answer to a call that was not finished when the broker stopped."""

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.web.api.people import failed

_STOPPED = BrokerError(
    Code.UNAVAILABLE,
    "the broker was stopped before this call was answered",
    "Call again with the same key: what was done already is not done twice.",
)


class StoppedCalls:
    """At its stop the server gives calls that are under way a moment, and then cancels them. They are answered with 503
    and not with 500: a proxy may then ask another broker."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            # The server refuses it if the answer has begun; then the connection is closed.
            with suppress(RuntimeError):
                await failed(_STOPPED)(scope, receive, send)
                return
            raise
