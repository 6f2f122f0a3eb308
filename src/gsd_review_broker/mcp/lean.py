"""The short way for a tool call: one POST in, one JSON answer out, without the SDK's dispatch (ADR 8).

Only a call that is understood completely goes this way. A batch, a notification, another method, a wait, an unknown
revision, malformed JSON, odd headers: all of that goes to the SDK untouched, and the SDK answers it as before. A call
that is not certainly well formed is judged by the SDK's own checks.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gsd_review_broker.mcp.encoding import as_json
from gsd_review_broker.mcp.plain import HANDSHAKE_FIELDS, SERVER_INFO, Call, is_plain, read_call

# Answers a tool call in wire form: the request's scope, the tool's name, its arguments.
AnswerCall = Callable[[Scope, str, dict[str, Any]], Awaitable[dict[str, Any]]]
# Says whether the SDK takes a call with these headers for well formed.
JudgeCall = Callable[[Call, Mapping[bytes, bytes]], Awaitable[bool]]

# Headers that decide the path, or that the SDK checks. The SDK handles one that occurs twice.
_DECIDING: Final = frozenset(
    {b"accept", b"content-type", b"content-encoding", b"mcp-protocol-version", b"mcp-method", b"mcp-name"}
)


class LeanCalls:
    """Stands in front of one of the SDK's endpoints."""

    def __init__(
        self,
        answer: AnswerCall,
        *,
        server_info: dict[str, Any],
        judge: JudgeCall,
        otherwise: ASGIApp,
        body_limit: int,
    ) -> None:
        self._answer = answer
        self._meta = {SERVER_INFO: server_info}
        self._judge = judge
        self._otherwise = otherwise
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _deciding_headers(scope)
        if headers is None:
            await self._otherwise(scope, receive, send)
            return
        messages, body = await _read_body(receive, self._body_limit)
        call = None if body is None else read_call(body, headers)
        if call is None or not (is_plain(call, headers) or await self._judge(call, headers)):
            await self._otherwise(scope, _replayed(messages, receive), send)
            return
        result = await _unless_gone(receive, self._answer(scope, call.name, call.arguments))
        if result is not None:
            await _send_json(send, {"jsonrpc": "2.0", "id": call.request_id, "result": self._shaped(result, call)})

    def _shaped(self, result: dict[str, Any], call: Call) -> dict[str, Any]:
        if call.is_modern:
            return {**result, "_meta": self._meta}
        return {name: result[name] for name in HANDSHAKE_FIELDS}


def _deciding_headers(scope: Scope) -> dict[bytes, bytes] | None:
    """The headers that matter, if this may be a call for the short way."""
    if scope["method"] != "POST":
        return None
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _DECIDING:
            if name in headers:
                return None
            headers[name] = value
        elif name.startswith(b"mcp-param-"):
            return None
    if b"content-encoding" in headers:
        return None
    return headers if _takes_json(headers.get(b"accept", b""), headers.get(b"content-type", b"")) else None


@lru_cache(maxsize=64)
def _takes_json(accept: bytes, content_type: bytes) -> bool:
    """It sends JSON and accepts both JSON and a stream: the SDK demands both of every client."""
    accepted = {kind.split(b";")[0].strip().lower() for kind in accept.split(b",")}
    both = b"*/*" in accepted or {b"application/json", b"text/event-stream"} <= accepted
    return both and content_type.split(b";")[0].strip() == b"application/json"


async def _read_body(receive: Receive, limit: int) -> tuple[list[Message], bytes | None]:
    """The received messages, and the body; None if it is over the limit or its sender is gone."""
    messages: list[Message] = []
    size, more = 0, True
    while more and size <= limit:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return messages, None
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    return messages, None if size > limit else b"".join(message.get("body", b"") for message in messages)


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    """First what was already read, then what comes."""
    waiting = deque(messages)

    async def again() -> Message:
        return waiting.popleft() if waiting else await receive()

    return again


async def _unless_gone(receive: Receive, answer: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    """The answer; None if the caller hung up before it was there, and then the work was cancelled. A plain JSON
    answer hides that from everybody else, and nothing may be claimed for a caller that is gone."""
    working = cast("asyncio.Task[Any]", asyncio.current_task())
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        working.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await answer
    except asyncio.CancelledError:
        # Another task's cancellation is passed on.
        if gone and working.uncancel() == 0:
            return None
        raise
    finally:
        watching.cancel()


async def _send_json(send: Send, message: dict[str, Any]) -> None:
    body = as_json(message)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
