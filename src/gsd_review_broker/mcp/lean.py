"""The short way for a tool call: one POST in, one JSON answer out, without the SDK's dispatch (ADR 8).

Only a call that is understood completely goes this way. A batch, a notification, another method, a wait, an unknown
revision, malformed JSON, odd headers: all of that goes to the SDK untouched, and the SDK answers it as before. What
counts as well formed is the SDK's own judgement: its checks are called here, and the fields of an answer in each
revision are read from its schemas.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import mcp_types as types
import pydantic_core
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Answers a tool call in wire form: the request's scope, the tool's name, its arguments.
AnswerCall = Callable[[Scope, str, dict[str, Any]], Awaitable[dict[str, Any]]]

_METHOD: Final = "tools/call"
_REQUEST_FIELDS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_PARAMETERS: Final = frozenset({"name", "arguments", "_meta"})
# Headers that decide the path, or that the SDK checks. The SDK handles one that occurs twice.
_DECIDING: Final = frozenset(
    {b"accept", b"content-type", b"content-encoding", b"mcp-protocol-version", b"mcp-method", b"mcp-name"}
)
_SAMPLE: Final[dict[str, Any]] = {
    "content": [{"type": "text", "text": "sample"}],
    "structuredContent": {"sample": None},
    "isError": False,
    "resultType": "complete",
}


def _fields_of_answer(revision: str) -> frozenset[str]:
    return frozenset(methods.serialize_server_result(_METHOD, revision, _SAMPLE))


_FIELDS: Final = {revision: _fields_of_answer(revision) for revision in HANDSHAKE_PROTOCOL_VERSIONS}


@dataclass(frozen=True, slots=True)
class _Call:
    request_id: str | int
    name: str
    arguments: dict[str, Any]
    revision: str


class LeanCalls:
    """Stands in front of one of the SDK's endpoints."""

    def __init__(self, answer: AnswerCall, *, server_info: dict[str, Any], otherwise: ASGIApp, body_limit: int) -> None:
        self._answer = answer
        self._meta = {types.SERVER_INFO_META_KEY: server_info}
        self._otherwise = otherwise
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _deciding_headers(scope)
        if headers is None:
            await self._otherwise(scope, receive, send)
            return
        messages, body = await _read_body(receive, self._body_limit)
        call = None if body is None else _understood(body, headers)
        if call is None:
            await self._otherwise(scope, _replayed(messages, receive), send)
            return
        result = await _unless_gone(receive, self._answer(scope, call.name, call.arguments))
        if result is not None:
            await _send_json(send, {"jsonrpc": "2.0", "id": call.request_id, "result": self._shaped(result, call)})

    def _shaped(self, result: dict[str, Any], call: _Call) -> dict[str, Any]:
        fields = _FIELDS.get(call.revision)
        if fields is None:
            return {**result, "_meta": self._meta}
        return {name: value for name, value in result.items() if name in fields}


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


def _understood(body: bytes, headers: Mapping[bytes, bytes]) -> _Call | None:
    version = headers.get(b"mcp-protocol-version")
    revision = types.DEFAULT_NEGOTIATED_VERSION if version is None else version.decode("latin-1")
    try:
        if revision in MODERN_PROTOCOL_VERSIONS:
            return _modern(json.loads(body), revision, headers)
        return _legacy(pydantic_core.from_json(body), revision) if revision in _FIELDS else None
    except (ValueError, RecursionError):
        return None


def _modern(request: Any, revision: str, headers: Mapping[bytes, bytes]) -> _Call | None:
    call = _call(request, revision)
    if call is None:
        return None
    texts = {name.decode("ascii"): value.decode("latin-1") for name, value in headers.items()}
    route = classify_inbound_request(request, headers=texts)
    return call if isinstance(route, InboundModernRoute) and _is_valid(request, revision) else None


def _legacy(request: Any, revision: str) -> _Call | None:
    call = _call(request, revision)
    return call if call is not None and _is_valid(request, revision) else None


def _call(request: Any, revision: str) -> _Call | None:
    """A request with only the fields of a tool call."""
    if not isinstance(request, dict):
        return None
    envelope = cast("dict[str, Any]", request)
    if not _REQUEST_FIELDS.issuperset(envelope) or envelope.get("jsonrpc") != "2.0":
        return None
    request_id, params = envelope.get("id"), envelope.get("params")
    if envelope.get("method") != _METHOD or type(request_id) not in {int, str} or not isinstance(params, dict):
        return None
    return _call_of(cast("str | int", request_id), cast("dict[str, Any]", params), revision)


def _call_of(request_id: str | int, params: dict[str, Any], revision: str) -> _Call | None:
    name, arguments = params.get("name"), params.get("arguments", {})
    if not _PARAMETERS.issuperset(params) or not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    named = cast("dict[str, Any]", arguments)
    return None if _waits(named) else _Call(request_id, name, named, revision)


def _waits(arguments: dict[str, Any]) -> bool:
    """A wait is a stream with pings; the SDK handles it."""
    return arguments.get("wait", False) is not False


def _is_valid(request: dict[str, Any], revision: str) -> bool:
    """According to the SDK's own schema of this revision."""
    try:
        methods.validate_client_request(_METHOD, revision, request["params"])
    except ValidationError:
        return False
    return True


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
    body = json.dumps(message, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
