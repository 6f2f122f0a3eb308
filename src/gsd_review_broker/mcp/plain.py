"""What a plain tool call looks like, in our own words, so that it can be answered without the SDK.

The names here repeat what the SDK and its schemas say; `tests/integration/mcp/test_lean.py` compares them. A call that
is well formed but not plain is not refused here: the SDK judges it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import pydantic_core

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


@dataclass(frozen=True, slots=True)
class Call:
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


def read_call(body: bytes, headers: Mapping[bytes, bytes]) -> Call | None:
    """None for everything that the SDK has to answer."""
    version = headers.get(b"mcp-protocol-version")
    revision = DEFAULT_REVISION if version is None else version.decode("latin-1")
    try:
        # Each era's body is parsed as the SDK parses it.
        if revision in MODERN_REVISIONS:
            return _call(json.loads(body.decode()), revision)
        return _call(pydantic_core.from_json(body), revision) if revision in HANDSHAKE_REVISIONS else None
    except (ValueError, RecursionError):
        return None


def _call(request: Any, revision: str) -> Call | None:
    if not isinstance(request, dict):
        return None
    envelope = cast("dict[str, Any]", request)
    if not _REQUEST_FIELDS.issuperset(envelope) or envelope.get("jsonrpc") != "2.0":
        return None
    request_id, params = envelope.get("id"), envelope.get("params")
    if envelope.get("method") != METHOD or type(request_id) not in {int, str} or not isinstance(params, dict):
        return None
    return _call_of(cast("str | int", request_id), cast("dict[str, Any]", params), revision)


def _call_of(request_id: str | int, params: dict[str, Any], revision: str) -> Call | None:
    name, arguments = params.get("name"), params.get("arguments", {})
    if not _PARAMETERS.issuperset(params) or not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    named = cast("dict[str, Any]", arguments)
    call = Call(request_id, name, named, revision, params)
    return None if call.is_modern and _waits(named) else call


def _waits(arguments: dict[str, Any]) -> bool:
    """On the newest revision a wait is a stream with pings; the SDK handles it.

    Clients of older revisions get plain JSON: they try for minutes to resume a stream that broke off with the broker.
    """
    return arguments.get("wait", False) is not False


def is_plain(call: Call, headers: Mapping[bytes, bytes]) -> bool:
    """Certainly valid, without asking the SDK: nothing in it needs more than a comparison."""
    if not call.name.isascii() or not "".join(call.arguments).isascii():
        return False
    if call.is_modern:
        return _has_matching_headers(call, headers) and _has_plain_envelope(call)
    return "_meta" not in call.params or _has_plain_meta(call.params["_meta"])


def _has_matching_headers(call: Call, headers: Mapping[bytes, bytes]) -> bool:
    name = call.name.encode()
    # Such a name would be decoded before it is compared.
    return (
        not name.startswith(b"=?") and headers.get(b"mcp-name") == name and headers.get(b"mcp-method") == b"tools/call"
    )


def _has_plain_envelope(call: Call) -> bool:
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
    """Before 2026-07-28 it holds a progress token or nothing; what a program adds of its own, the SDK judges."""
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
