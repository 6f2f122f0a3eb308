"""Routes that are made with the first request for one of them."""

from collections.abc import Callable, Sequence
from functools import cached_property

from starlette.routing import BaseRoute, Router
from starlette.types import Receive, Scope, Send


class LateRoutes:
    def __init__(self, make: Callable[[], Sequence[BaseRoute]]) -> None:
        self._make = make

    @cached_property
    def _router(self) -> Router:
        return Router(self._make())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)
