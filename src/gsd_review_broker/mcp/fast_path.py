"""The short way for a tool call: one POST in, one JSON answer out, without the SDK's dispatch (ADR 8).

Only a call that is understood completely goes this way. A batch, a notification, another method, a wait, an unknown
revision, malformed JSON, odd headers: all of that goes to the SDK untouched, and the SDK answers it as before. A call
that is well formed but not plain is judged by the SDK's own checks.

The names here repeat what the SDK and its schemas say; `tests/integration/mcp/test_fast_path.py` compares them.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import pydantic_core
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gsd_review_broker.mcp.registry import Endpoint

METHOD: Final = "tools/call"
# For a request that does not name its revision.
DEFAULT_REVISION: Final = "2025-03-26"
HANDSHAKE_REVISIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})
MODERN_REVISIONS: Final = frozenset({"2026-07-28"})
# The fields of an answer before 2026-07-28; the newest revision has more.
HANDSHAKE_FIELDS: Final = ("content", "structuredContent", "isError")
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"

_REQUEST_FIELDS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_PARAMETERS: Final = frozenset({"name", "arguments", "_meta"})
_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
_PROGRESS: Final = "progressToken"
_MODERN_META: Final = frozenset({_PROTOCOL_VERSION, _CLIENT_CAPABILITIES, _CLIENT_INFO, _PROGRESS})
_INFO_FIELDS: Final = {"name", "version"}
_LARGEST_TOKEN: Final = 1 << 53
# A caller that hangs up is noticed after this time.
_UNWATCHED_SECONDS: Final = 0.005
# Headers that decide the path, or that the SDK checks. The SDK handles one that occurs twice.
_DECIDING: Final = frozenset(
    {b"accept", b"content-type", b"content-encoding", b"mcp-protocol-version", b"mcp-method", b"mcp-name"}
)


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A request that has only the fields of a tool call."""

    request_id: str | int
    name: str
    arguments: dict[str, Any]
    revision: str
    # As it was sent, for the SDK's judgement.
    params: dict[str, Any]

    @property
    def is_modern(self) -> bool:
        return self.revision in MODERN_REVISIONS


# Says whether the SDK takes a call with these headers for well formed.
JudgeRequest = Callable[[ToolRequest, Mapping[bytes, bytes]], Awaitable[bool]]


class FastPath:
    """Stands in front of one of the SDK's endpoints."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        judge: JudgeRequest,
        otherwise: ASGIApp,
        body_limit: int,
    ) -> None:
        self._answer = endpoint.answer
        self._meta = {SERVER_INFO: endpoint.info}
        self._judge = judge
        self._otherwise = otherwise
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _deciding_headers(scope)
        if headers is None:
            await self._otherwise(scope, receive, send)
            return
        messages, body = await _read_body(receive, self._body_limit)
        call = None if body is None else _read_call(body, headers)
        if call is None or not (_is_plain(call, headers) or await self._judge(call, headers)):
            await self._otherwise(scope, _replayed(messages, receive), send)
            return
        result = await _unless_gone(receive, self._answer(scope, call.name, call.arguments))
        if result is not None:
            await _send_json(send, {"jsonrpc": "2.0", "id": call.request_id, "result": self._shaped(result, call)})

    def _shaped(self, result: dict[str, Any], call: ToolRequest) -> dict[str, Any]:
        if call.is_modern:
            return {**result, "_meta": self._meta}
        return {name: result[name] for name in HANDSHAKE_FIELDS}


def _read_call(body: bytes, headers: Mapping[bytes, bytes]) -> ToolRequest | None:
    """Read the call; None for everything that the SDK has to answer."""
    version = headers.get(b"mcp-protocol-version")
    revision = DEFAULT_REVISION if version is None else version.decode("latin-1")
    try:
        # Each era's body is parsed as the SDK parses it.
        if revision in MODERN_REVISIONS:
            return _call(json.loads(body.decode()), revision)
        return _call(pydantic_core.from_json(body), revision) if revision in HANDSHAKE_REVISIONS else None
    except (ValueError, RecursionError):
        return None


def _call(request: Any, revision: str) -> ToolRequest | None:
    if not isinstance(request, dict):
        return None
    envelope = cast("dict[str, Any]", request)
    if not _REQUEST_FIELDS.issuperset(envelope) or envelope.get("jsonrpc") != "2.0":
        return None
    request_id, params = envelope.get("id"), envelope.get("params")
    if envelope.get("method") != METHOD or type(request_id) not in {int, str} or not isinstance(params, dict):
        return None
    return _call_of(cast("str | int", request_id), cast("dict[str, Any]", params), revision)


def _call_of(request_id: str | int, params: dict[str, Any], revision: str) -> ToolRequest | None:
    name, arguments = params.get("name"), params.get("arguments", {})
    if not _PARAMETERS.issuperset(params) or not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    named = cast("dict[str, Any]", arguments)
    call = ToolRequest(request_id, name, named, revision, params)
    return None if call.is_modern and _waits(named) else call


def _waits(arguments: dict[str, Any]) -> bool:
    """Say whether the call waits. On the newest revision a wait is a stream with pings; the SDK handles it.

    Clients of older revisions get plain JSON: they try for minutes to resume a stream that broke off with the broker.
    """
    return arguments.get("wait", False) is not False


def _is_plain(call: ToolRequest, headers: Mapping[bytes, bytes]) -> bool:
    """Say whether the call is certainly valid, by comparisons alone, without asking the SDK."""
    if not call.name.isascii() or not "".join(call.arguments).isascii():
        return False
    if call.is_modern:
        return _has_matching_headers(call, headers) and _has_plain_envelope(call)
    return "_meta" not in call.params or _has_plain_meta(call.params["_meta"])


def _has_matching_headers(call: ToolRequest, headers: Mapping[bytes, bytes]) -> bool:
    name = call.name.encode()
    # Such a name would be decoded before it is compared.
    return (
        not name.startswith(b"=?") and headers.get(b"mcp-name") == name and headers.get(b"mcp-method") == b"tools/call"
    )


def _has_plain_envelope(call: ToolRequest) -> bool:
    meta = call.params.get("_meta")
    if not isinstance(meta, dict):
        return False
    envelope = cast("dict[str, Any]", meta)
    return (
        _MODERN_META.issuperset(envelope)
        and envelope.get(_PROTOCOL_VERSION) == call.revision
        and envelope.get(_CLIENT_CAPABILITIES) == {}
        and (_CLIENT_INFO not in envelope or _is_plain_info(envelope[_CLIENT_INFO]))
        and (_PROGRESS not in envelope or _is_plain_token(envelope[_PROGRESS]))
    )


def _has_plain_meta(meta: Any) -> bool:
    """Say whether it holds a progress token or nothing (before 2026-07-28). The SDK judges everything else."""
    if not isinstance(meta, dict):
        return False
    return all(name == _PROGRESS and _is_plain_token(value) for name, value in cast("dict[str, Any]", meta).items())


def _is_plain_token(token: Any) -> bool:
    if type(token) is int:
        return abs(token) < _LARGEST_TOKEN
    return isinstance(token, str) and token.isascii()


def _is_plain_info(info: Any) -> bool:
    if not isinstance(info, dict):
        return False
    fields = cast("dict[str, Any]", info)
    return fields.keys() == _INFO_FIELDS and all(isinstance(text, str) and text.isascii() for text in fields.values())


def _deciding_headers(scope: Scope) -> dict[bytes, bytes] | None:
    """Return the headers that matter, if this may be a call for the short way."""
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
    """Say whether the client sends JSON and accepts JSON and a stream, as the SDK demands."""
    accepted = {kind.split(b";")[0].strip().lower() for kind in accept.split(b",")}
    both = b"*/*" in accepted or {b"application/json", b"text/event-stream"} <= accepted
    return both and content_type.split(b";")[0].strip() == b"application/json"


async def _read_body(receive: Receive, limit: int) -> tuple[list[Message], bytes | None]:
    """Return the received messages, and the body; None if it is over the limit or its sender is gone."""
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
    """Return first what was already read, then what comes."""
    waiting = deque(messages)

    async def again() -> Message:
        return waiting.popleft() if waiting else await receive()

    return again


async def _unless_gone(receive: Receive, answer: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer; None if the caller hung up before it was there, and then the work was cancelled.

    Nothing may be claimed for a caller that is gone. Most calls are answered before the watch would begin.
    """
    loop, working = asyncio.get_running_loop(), cast("asyncio.Task[Any]", asyncio.current_task())
    watching: asyncio.Task[None] | None = None
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        working.cancel()

    def begin() -> None:
        nonlocal watching
        watching = loop.create_task(watch())

    beginning = loop.call_later(_UNWATCHED_SECONDS, begin)
    try:
        return await answer
    except asyncio.CancelledError:
        # Another task's cancellation is passed on.
        if is_gone and working.uncancel() == 0:
            return None
        raise
    finally:
        beginning.cancel()
        if watching is not None:
            watching.cancel()


async def _send_json(send: Send, message: dict[str, Any]) -> None:
    body = _as_json(message)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _as_json(value: Any) -> bytes:
    """Compact, in UTF-8."""
    try:
        return pydantic_core.to_json(value)
    except pydantic_core.PydanticSerializationError:
        # Half of a character: only JSON's own escapes can carry it.
        return json.dumps(value, separators=(",", ":")).encode()
