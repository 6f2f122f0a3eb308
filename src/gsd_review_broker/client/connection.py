"""One POST for each call, on a kept connection: MCP 2026-07-28 needs no handshake."""

import json
import time
from typing import Any, cast
from urllib.parse import urlsplit

from gsd_review_broker import LOOPBACK
from gsd_review_broker.client.http import BAD_REQUEST, PORTS, TOO_LARGE, HttpConnection
from gsd_review_broker.errors import WORDING_HEADER, BrokerError, Code

Json = dict[str, Any]

PROTOCOL = "2026-07-28"
ANSWER_SECONDS = 60.0
_IDLE_SECONDS = 2.0
_NOT_ADMITTED = (401, 403)
# A proxy without a broker behind it, or a broker that is stopping.
_NO_BROKER = (502, 503, 504)
_ASK = "It is on another machine: check its address, or ask the person who runs it. Then call again."
_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class UnreachableError(BrokerError):
    """Nothing answers, or not as a broker does: it may be down or restarting."""

    def __init__(self, message: str, hint: str = "Start it with `tandem up`; `tandem doctor` finds out more.") -> None:
        super().__init__(Code.UNAVAILABLE, message, hint)


def is_here(url: str) -> bool:
    """Say whether it is an address of this machine's loopback."""
    return urlsplit(url).hostname in LOOPBACK


class Connection:
    def __init__(self, url: str, *, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in PORTS or parts.hostname is None:
            raise BrokerError(
                Code.INVALID_ARGUMENT, f"{url!r} is not the address of a broker", "It looks like http://127.0.0.1:8321."
            )
        try:
            self._http = HttpConnection.to(url)
        except ValueError as error:
            raise BrokerError(
                Code.INVALID_ARGUMENT, f"{url!r}: {error}", "It looks like http://127.0.0.1:8321."
            ) from error
        # The path in the address is an endpoint's; the caller knows which endpoint it wants.
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.token = token
        self._last_used = 0.0

    def close(self) -> None:
        self._http.close()

    def call(self, tool: str, arguments: Json, *, patience: float = ANSWER_SECONDS, endpoint: str = "/mcp") -> Json:
        """Return the tool's result. Raises its refusal."""
        params: Json = {"name": tool, "arguments": arguments, "_meta": _META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
            WORDING_HEADER: "commands",
        }
        status, kind, answer = self.exchange("POST", endpoint, body, headers, patience=patience)
        if status == TOO_LARGE:
            raise BrokerError(Code.TOO_LARGE, answer.decode("utf-8", "replace").strip(), "")
        if status in _NOT_ADMITTED or status in _NO_BROKER:
            # Refused before any tool was reached.
            return _plain_result(status, answer)
        return _tool_result(_message(status, kind, answer))

    def get(self, path: str) -> Json:
        status, _, answer = self.exchange("GET", path, None, {"Accept": "application/json"}, patience=ANSWER_SECONDS)
        return _plain_result(status, answer)

    def post(self, path: str, fields: Json) -> Json:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        body = json.dumps(fields).encode()
        status, _, answer = self.exchange("POST", path, body, headers, patience=ANSWER_SECONDS)
        return _plain_result(status, answer)

    def exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], *, patience: float
    ) -> tuple[int, str, bytes]:
        """Return status, content type and the whole body."""
        if self.token:
            headers = {**headers, "Authorization": f"Bearer {self.token}"}
        if time.monotonic() - self._last_used > _IDLE_SECONDS:
            # The broker closes idle connections. A call that meets the closing must be neither lost nor run twice.
            self.close()
        try:
            answer = self._http.request(method, path, body, headers, patience=patience)
        except OSError as error:
            self.close()
            raise self._unreachable(f"the broker at {self.url} does not answer ({_why(error)})") from error
        except BaseException:
            self.close()
            raise
        self._last_used = time.monotonic()
        if answer[0] in _NO_BROKER and not answer[1].startswith("application/json"):
            raise self._unreachable(f"no broker answers behind {self.url} (status {answer[0]})")
        return answer

    def _unreachable(self, message: str) -> UnreachableError:
        return UnreachableError(message) if is_here(self.url) else UnreachableError(message, _ASK)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _message(status: int, kind: str, answer: bytes) -> Json:
    try:
        if kind.startswith("text/event-stream"):
            # The answer is the last event; the ones before it are keep-alives.
            data = [line[5:].strip() for line in answer.splitlines() if line.startswith(b"data:") and line[5:].strip()]
            answer = data[-1]
        message = json.loads(answer)
    except (ValueError, IndexError, RecursionError) as error:
        raise UnreachableError(f"what answers is not a broker (status {status})") from error
    if not isinstance(message, dict) or "result" not in message:
        raise UnreachableError(
            f"the broker gave an unexpected answer (status {status}): {str(cast('Any', message))[:200]}"
        )
    return cast("Json", message)["result"]


def _tool_result(result: Json) -> Json:
    content = result.get("structuredContent")
    if not isinstance(content, dict):
        raise UnreachableError("the broker's answer holds no structured content")
    if result.get("isError"):
        raise _refusal(cast("Json", content))
    return cast("Json", content)


def _plain_result(status: int, answer: bytes) -> Json:
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise UnreachableError(f"the broker does not know this request (status {status})") from error
    if not isinstance(content, dict):
        raise UnreachableError(f"the broker's answer is not an object (status {status})")
    if status >= BAD_REQUEST:
        raise _refusal(cast("Json", content))
    return cast("Json", content)


def _refusal(content: Json) -> BrokerError:
    details = content.get("error")
    if not isinstance(details, dict):
        return BrokerError(Code.INTERNAL, str(content)[:500], "")
    error = cast("Json", details)
    code = error.get("code")
    known = Code(code) if code in set(Code) else Code.INTERNAL
    return BrokerError(known, str(error.get("message", "")), str(error.get("hint") or ""))
