"""stdio to HTTP: for clients that start their server as a program and send it lines.

Each incoming message is one POST; the answer is passed on unchanged. The broker may restart in between: an unanswered
call is repeated, and each writing call carries a key so that it runs only once.

While the broker starts, the bridge answers what a client asks before its first call. These answers are in a file that
`make docs` writes from the tools: building them here would take as long as starting the broker.
"""

import contextlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib import resources
from typing import Any, BinaryIO, cast

from gsd_review_broker.cli.screen import visible_block
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.client.http import BAD_REQUEST, BROKER_FAILED, BadAnswerError, HttpConnection, lines_of
from gsd_review_broker.errors import BrokerError, StartError

FILE = "first_answers.json"
_MODERN_VERSION = "io.modelcontextprotocol/protocolVersion"
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"


class FirstAnswers:
    """For one endpoint, as long as no broker runs. `start` begins to start it, and returns at once."""

    def __init__(self, endpoint: str, *, is_running: Callable[[], bool], start: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._is_running = is_running
        self._start = start
        self._is_over: bool | None = None

    def answer(self, request: Json) -> Json | None:
        """Return the answer's `result`, empty for a notification; None if only the broker can answer."""
        method, params = request.get("method"), _object(request.get("params"))
        if method not in {"initialize", "notifications/initialized", "server/discover", "tools/list", "ping"}:
            return None
        if self._broker_answers():
            return None
        version = _object(params.get("_meta")).get(_MODERN_VERSION)
        if version is not None and version not in self._kept["modern_versions"]:
            # The broker explains which versions it has.
            return None
        match method:
            case "initialize":
                return {"result": self._initialized(params.get("protocolVersion"))}
            case "server/discover":
                return {
                    "result": self._modern(self._described() | {"supportedVersions": self._kept["modern_versions"]})
                }
            case "tools/list":
                tools = {"tools": [self._kept["tools"][name] for name in self._of_endpoint["tools"]]}
                return {"result": tools if version is None else self._modern(tools)}
            case "ping":
                return {"result": {}}
            case _:
                return {}

    def _broker_answers(self) -> bool:
        if self._is_over is None:
            self._is_over = self._is_running()
            if not self._is_over:
                self._start()
        return self._is_over

    def has_come_up(self) -> None:
        self._is_over = True

    @cached_property
    def _kept(self) -> Json:
        text = resources.files("gsd_review_broker.cli.broker").joinpath(FILE).read_text("utf-8")
        return cast("Json", json.loads(text))

    @property
    def _of_endpoint(self) -> Json:
        return self._kept["endpoints"][self._endpoint]

    def _described(self) -> Json:
        return {"capabilities": {"tools": {"listChanged": False}}, "instructions": self._of_endpoint["instructions"]}

    def _initialized(self, wanted: Any) -> Json:
        known = self._kept["versions"]
        version = wanted if wanted in known else known[-1]
        return self._described() | {"protocolVersion": version, "serverInfo": self._kept["server"]}

    def _modern(self, result: Json) -> Json:
        meta = {_SERVER_INFO: self._kept["server"]}
        return {**result, "cacheScope": "private", "resultType": "complete", "ttlMs": 0, "_meta": meta}


# More than the longest wait that the broker grants.
_ANSWER_SECONDS = 300.0
_LONGEST_REASON = 500


class NotTakenError(Exception):
    """The broker answered that it does not take the message; the same message will not be taken later either."""


class BridgedCall:
    """One POST, and the messages that answer it."""

    def __init__(self, headers: dict[str, str], *, waits: bool = False) -> None:
        self._headers = headers
        # It may take minutes until there is something to answer.
        self.waits = waits
        self._http: HttpConnection | None = None
        self.is_cancelled = False
        self.has_answered = False

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._http is not None:
            self._http.cancel()

    def answers(self, url: str, endpoint: str, body: bytes) -> Iterator[Any]:
        self._http = HttpConnection.to(url)
        try:
            if self.is_cancelled:
                raise BadAnswerError("the client cancelled it")
            status, kind, pieces = self._http.stream("POST", endpoint, body, self._headers, patience=_ANSWER_SECONDS)
            if kind.startswith("text/event-stream"):
                yield from self._streamed(pieces)
            else:
                yield from self._plain(status, b"".join(pieces))
        finally:
            self._http.close()

    def _plain(self, status: int, body: bytes) -> Iterator[Any]:
        if status < BAD_REQUEST and not body.strip():
            return
        message = _message(body)
        if message is None:
            text = f"status {status}: {body[:_LONGEST_REASON].decode('utf-8', 'replace').strip()}"
            if status < BROKER_FAILED:
                raise NotTakenError(text)
            raise BadAnswerError(text)
        self.has_answered = True
        yield message

    def _streamed(self, pieces: Iterator[bytes]) -> Iterator[Any]:
        data: list[bytes] = []
        for line in lines_of(pieces):
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and any(data):
                message = json.loads(b"\n".join(data))
                # A progress message may come twice; the answer ends the call.
                self.has_answered = "result" in message or "error" in message
                yield message
                data = []
        if not self.has_answered:
            raise BadAnswerError("the answer broke off")


def _message(body: bytes) -> Any:
    """Return the JSON-RPC message; None for a refusal from below the protocol."""
    try:
        message = json.loads(body)
    except ValueError:
        return None
    if isinstance(message, dict):
        return cast("Any", message) if "jsonrpc" in message else None
    return cast("Any", message) if isinstance(message, list) else None


_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_COME_BACK_SECONDS = 20.0
_PAUSE_SECONDS = 0.3
_LAST_ANSWERS_SECONDS = 10.0
_SERVER_ERROR = -32000
_PARSE_ERROR = -32700


class Bridge:
    def __init__(
        self,
        *,
        address: Callable[[], str],
        endpoint: str,
        out: BinaryIO,
        token: str | None,
        patience: float = _COME_BACK_SECONDS,
        first_answers: FirstAnswers | None = None,
    ) -> None:
        self._address = address
        self._endpoint = endpoint
        self._out = out
        self._token = token
        self._patience = patience
        # What is answered while the broker starts; None if it runs, or must not be started.
        self._first_answers = first_answers
        self._writing = threading.Lock()
        # Calls under way by request id, so that they can be cancelled.
        self._calls: dict[Any, BridgedCall] = {}
        # The version that an older client and the broker agreed on; a newer client sends it with each request.
        self._agreed: str | None = None
        # Does a tool take an idempotency key? From the broker's own list.
        self._takes_key: dict[str, bool] = {}

    def run(self, lines: Iterable[bytes]) -> None:
        """Run until the input ends. Then it drops the calls that wait, since no client takes their answers, and gives
        the others some seconds."""
        threads: list[threading.Thread] = []
        for line in lines:
            message = self._read(line) if line.strip() else None
            if message is None or self._is_cancellation(message) or self._is_answered_first(message):
                continue
            call = self._new_call(_object(message))
            threads = [thread for thread in threads if thread.is_alive()]
            threads.append(threading.Thread(target=self._forward, args=(call, message), daemon=True))
            threads[-1].start()
            if _object(message).get("method") in {"initialize", "notifications/initialized"}:
                # The messages after it depend on it.
                threads[-1].join()
        for call in list(self._calls.values()):
            if call.waits:
                call.cancel()
        end = time.monotonic() + _LAST_ANSWERS_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _new_call(self, request: Json) -> BridgedCall:
        arguments = _object(_object(request.get("params")).get("arguments"))
        call = BridgedCall(self._headers(request), waits=bool(arguments.get("wait")))
        if "id" in request:
            self._calls[_hashable(request["id"])] = call
        return call

    def _is_answered_first(self, message: Any) -> bool:
        """Answer a client that asks for the tools while the broker starts."""
        if self._first_answers is None:
            return False
        request = _object(message)
        answer = self._first_answers.answer(request)
        if answer is None:
            return False
        self._remember_version(request, answer)
        if "id" in request:
            self._send({"jsonrpc": "2.0", "id": request["id"], **answer})
        return True

    def _read(self, line: bytes) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            self._send(_error(None, _PARSE_ERROR, f"not JSON: {error}"))
            return None

    def _is_cancellation(self, message: Any) -> bool:
        """Cancel by dropping the connection: without sessions, the broker cannot know which call is meant."""
        if _object(message).get("method") != "notifications/cancelled":
            return False
        call = self._calls.get(_hashable(_object(message.get("params")).get("requestId")))
        if call is not None:
            call.cancel()
        return True

    def _forward(self, call: BridgedCall, message: Any) -> None:
        request = _object(message)
        try:
            self._exchange(call, message)
        except (BrokerError, StartError, NotTakenError) as error:
            self._fail(call, request, str(error))
        except OSError as error:
            self._fail(call, request, f"the broker does not answer: {error or type(error).__name__}")
        finally:
            self._calls.pop(_hashable(request.get("id")), None)

    def _fail(self, call: BridgedCall, request: Json, why: str) -> None:
        if call.is_cancelled:
            return
        print(visible_block(f"tandem mcp: {why}"), file=sys.stderr)
        if "id" in request and "method" in request:
            self._send(_error(request["id"], _SERVER_ERROR, why))

    def _exchange(self, call: BridgedCall, message: Any) -> None:
        """Repeats the call until it is answered. A missing broker gets time to come back; the key stays the same."""
        request = _object(message)
        key = secrets.token_hex(16)
        end = 0.0
        while not call.is_cancelled:
            try:
                body = json.dumps(self._with_key(message, key)).encode()
                for answer in call.answers(self._address(), self._endpoint, body):
                    self._remember_version(request, answer)
                    self._send(answer)
            except (OSError, UnreachableError):
                end = end or time.monotonic() + self._patience
                if call.is_cancelled or call.has_answered or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def _with_key(self, message: Any, key: str) -> Any:
        """Add a key to a writing call without one, so that a repetition after a restart runs once."""
        request = _object(message)
        params = _object(request.get("params"))
        name, arguments = params.get("name"), params.get("arguments", {})
        is_call = request.get("method") == "tools/call" and isinstance(name, str) and isinstance(arguments, dict)
        if not is_call or not self._needs_key(str(name), params):
            return message
        keyed = {"idempotency_key": key, **cast("Json", arguments)}
        return {**request, "params": {**params, "arguments": keyed}}

    def _needs_key(self, name: str, params: Json) -> bool:
        """Read the list of tools once, and again for a tool that a newer broker added."""
        if name not in self._takes_key:
            self._takes_key = self._listed_tools(params)
        return self._takes_key.get(name, False)

    def _listed_tools(self, params: Json) -> dict[str, bool]:
        meta = {"_meta": params["_meta"]} if "_meta" in params else {}
        question = {"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": meta}
        call = BridgedCall(self._headers(question))
        answers = call.answers(self._address(), self._endpoint, json.dumps(question).encode())
        results = [_object(_object(answer).get("result")) for answer in answers]
        tools = [_object(tool) for result in results for tool in result.get("tools", [])]
        return {tool["name"]: _takes_key(tool) for tool in tools if isinstance(tool.get("name"), str)}

    def _remember_version(self, request: Json, answer: Any) -> None:
        if request.get("method") == "initialize":
            self._agreed = _object(_object(answer).get("result")).get("protocolVersion")

    def _headers(self, request: Json) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        params = _object(request.get("params"))
        stated = _object(params.get("_meta")).get(_VERSION_KEY)
        version = stated or (self._agreed if request.get("method") != "initialize" else None)
        if isinstance(version, str):
            headers["MCP-Protocol-Version"] = version
        if stated and isinstance(request.get("method"), str):
            headers["Mcp-Method"] = request["method"]
            name = params.get("name") or params.get("uri")
            if isinstance(name, str):
                headers["Mcp-Name"] = name
        return headers

    def _send(self, message: Any) -> None:
        # A client that was killed reads no more; then the input ends too.
        with self._writing, contextlib.suppress(BrokenPipeError):
            self._out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            self._out.flush()


def _takes_key(tool: Json) -> bool:
    reads = _object(tool.get("annotations")).get("readOnlyHint") is True
    return not reads and "idempotency_key" in _object(_object(tool.get("inputSchema")).get("properties"))


def _object(value: Any) -> Json:
    """Return an empty object for a value that is not an object: a client may send anything."""
    return cast("Json", value) if isinstance(value, dict) else {}


def _error(number: Any, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def _hashable(number: Any) -> Any:
    return number if isinstance(number, str | int) else None
