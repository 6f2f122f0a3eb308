"""The SDK's servers, imported and started at the first request that needs them (ADR 8)."""

import asyncio
import gc
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from gsd_review_broker.mcp.offer import Offer
from gsd_review_broker.mcp.plain import Call

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_Managers = Mapping[str, "StreamableHTTPSessionManager"]


class LateSdk:
    def __init__(self, offers: Mapping[str, Offer], *, body_limit: int) -> None:
        self._offers = offers
        self._body_limit = body_limit
        self._managers: asyncio.Future[_Managers] | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def application(self, path: str) -> ASGIApp:
        async def handle(scope: Scope, receive: Receive, send: Send) -> None:
            managers = await self._started()
            await managers[path].asgi_app(scope, receive, send)

        return handle

    async def judge(self, call: Call, headers: Mapping[bytes, bytes]) -> bool:
        await self._started()
        from gsd_review_broker.mcp.sdk import is_well_formed  # noqa: PLC0415 - imported by now

        return is_well_formed(call, headers)

    async def _started(self) -> _Managers:
        if self._managers is None or _has_failed(self._managers):
            self._managers = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._managers))
        # A caller that hangs up leaves the start to the others.
        return await asyncio.shield(self._managers)

    async def _run(self, started: "asyncio.Future[_Managers]") -> None:
        """One task starts and stops them all: the SDK's task groups belong to the task that opened them."""
        try:
            # In a thread: other callers are answered meanwhile.
            managers = await asyncio.to_thread(self._make)
            async with AsyncExitStack() as stack:
                for manager in managers.values():
                    await stack.enter_async_context(manager.run())
                started.set_result(managers)
                await self._stopping.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    def _make(self) -> _Managers:
        gc.disable()
        try:
            from gsd_review_broker.mcp.sdk import make_manager  # noqa: PLC0415 - see above

            managers = {path: make_manager(offer, body_limit=self._body_limit) for path, offer in self._offers.items()}
            # These objects live as long as the broker, as those of its start do.
            gc.freeze()
        finally:
            gc.enable()
        return managers

    async def stop(self) -> None:
        self._stopping.set()
        if self._running is not None:
            await self._running


def _has_failed(future: "asyncio.Future[_Managers]") -> bool:
    return future.done() and future.exception() is not None
