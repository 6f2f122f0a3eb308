"""`/events`: everything that happens, as server-sent events numbered like the audit.

One task reads the audit for all viewers: a commit wakes it once, and it hands out small hints. Each viewer has a short
queue. A viewer that does not read is dropped, and catches up by its Last-Event-ID when it comes back. Without viewers
nothing runs.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Generator

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gsd_review_broker.errors import BrokerError
from gsd_review_broker.ports.world import EVENTS, Wakeups
from gsd_review_broker.service.access import is_still_admitted
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.service.wire.reviews import EventResult
from gsd_review_broker.web.addresses import digits
from gsd_review_broker.web.api.people import HTTP_STATUS

log = structlog.get_logger()

# Hints are handed out at most this often: many viewers must not slow the tools down.
PAUSE_SECONDS = 0.1
# The largest event number that 64 bits can hold.
_MOST_DIGITS = 17
_ALIVE_SECONDS = 15.0
_AT_ONCE = 200
# How many batches may wait for a viewer, and how many events a returning viewer gets.
_LONGEST_QUEUE = 32
_MOST_CAUGHT_UP = 500
_SHOWN = ("id", "review_id", "event_type", "actor", "old_status", "new_status", "timestamp")
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-accel-buffering", b"no"),
]


class Viewer:
    def __init__(self, review_id: str | None) -> None:
        self.review_id = review_id
        self._waiting: deque[bytes] = deque()
        self._signal = asyncio.Event()
        self.is_over = False

    def offer(self, hints: bytes) -> None:
        if self.is_over or len(self._waiting) >= _LONGEST_QUEUE:
            self.end()
            return
        self._waiting.append(hints)
        self._signal.set()

    def end(self) -> None:
        """Drop the queue of a viewer that does not read."""
        self.is_over = True
        self._waiting.clear()
        self._signal.set()

    async def next(self) -> bytes:
        """Return what happened in the meantime; a keep-alive if nothing did."""
        if not self._waiting and not self.is_over:
            self._signal.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ALIVE_SECONDS):
                    await self._signal.wait()
        hints = b"".join(self._waiting)
        self._waiting.clear()
        return hints or b":\n\n"


class EventStream:
    """The ASGI application behind `/events`."""

    def __init__(self, broker: Broker, wakeups: Wakeups, *, pause: float = PAUSE_SECONDS) -> None:
        self._broker = broker
        self._wakeups = wakeups
        self._pause = pause
        self._viewers: set[Viewer] = set()
        self._reading: asyncio.Task[None] | None = None
        self._last = 0

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            review_id = await self._wanted(request)
        except BrokerError as error:
            await PlainTextResponse(f"{error}\n", status_code=HTTP_STATUS[error.code])(scope, receive, send)
            return
        if request.method == "HEAD":
            await PlainTextResponse(status_code=200)(scope, receive, send)
            return
        with self._watching(review_id) as viewer:
            first = await self._begin(request, review_id)
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            # A viewer that disconnects ends the loop; a slow one blocks in `send`.
            gone = asyncio.create_task(_hung_up(receive))
            gone.add_done_callback(lambda _: viewer.end())
            try:
                while not viewer.is_over:
                    hints = await viewer.next()
                    if not await is_still_admitted(scope):
                        break
                    await send({"type": "http.response.body", "body": hints, "more_body": True})
            finally:
                gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wanted(self, request: Request) -> str | None:
        wanted = request.query_params.get("review")
        return (await self._broker.page_queries.find(wanted)).id if wanted else None

    @contextlib.contextmanager
    def _watching(self, review_id: str | None) -> Generator[Viewer]:
        viewer = Viewer(review_id)
        self._viewers.add(viewer)
        if self._wakeups.closing:
            viewer.end()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            if not self._viewers and self._reading is not None:
                self._reading.cancel()
                self._reading = None

    async def _begin(self, request: Request, review_id: str | None) -> bytes:
        """Return the reconnection time, and the missed events."""
        head = await self._broker.page_queries.last_event_id()
        if self._reading is None:
            self._last = head
            self._reading = asyncio.create_task(self._read())
        known = _last_known(request)
        start = b"retry: 1000\n\n"
        if known is None or known > head:
            return start + f"id: {head}\nevent: ready\ndata: {{}}\n\n".encode()
        missed = await self._broker.review_queries.audit_log(review_id=review_id, after=known, limit=_MOST_CAUGHT_UP)
        if missed["next_cursor"] is not None:
            # Too much to send one by one: the page reloads everything.
            return start + f"id: {head}\nevent: reset\ndata: {{}}\n\n".encode()
        return start + b"".join(map(_hint, missed["events"])) + b"event: ready\ndata: {}\n\n"

    async def _read(self) -> None:
        with self._wakeups.listening(EVENTS, counted=False) as signal:
            while not self._wakeups.closing:
                signal.clear()
                try:
                    more = await self._hand_out()
                except Exception:
                    log.exception("event_stream_failed")
                    more = False
                await asyncio.sleep(self._pause)
                if not more:
                    await signal.wait()
        for viewer in list(self._viewers):
            viewer.end()

    async def _hand_out(self) -> bool:
        """Hand out new events; True if there are more."""
        page = await self._broker.review_queries.audit_log(review_id=None, after=self._last, limit=_AT_ONCE)
        events = page["events"]
        if not events:
            # Others' events were looked at, and not shown.
            self._last = page["next_cursor"] or self._last
            return page["next_cursor"] is not None
        self._last = events[-1]["id"]
        everything = b""
        of_review: dict[str | None, bytes] = {}
        for event in events:
            hint = _hint(event)
            everything += hint
            of_review[event["review_id"]] = of_review.get(event["review_id"], b"") + hint
        for viewer in list(self._viewers):
            hints = everything if viewer.review_id is None else of_review.get(viewer.review_id)
            if hints:
                viewer.offer(hints)
        return page["next_cursor"] is not None


def _hint(event: EventResult) -> bytes:
    shown = json.dumps({name: event[name] for name in _SHOWN}, separators=(",", ":"))
    return f"id: {event['id']}\ndata: {shown}\n\n".encode()


def _last_known(request: Request) -> int | None:
    """Read the header that browsers send when they reconnect; `after` continues another stream that ended."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or ""
    return digits(text, most=_MOST_DIGITS)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
