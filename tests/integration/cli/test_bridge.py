"""The bridge asks again when an answer breaks off, and then it is the same call."""

import io
import json
import select
import socket
import threading
import time
from collections.abc import Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gsd_review_broker.cli.broker.bridge import Bridge
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.mcp.tools import REGISTRY


class BrokenServer(ThreadingHTTPServer):
    """Answers what it is asked, but breaks off the first answers to a tool call."""

    daemon_threads = True

    def __init__(self, *, breaks: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.breaks = breaks
        self.calls: list[dict[str, Any]] = []
        shown = REGISTRY.shown_to(Audience.ALL).values()
        self.tools = [tool.wire.model_dump(mode="json", by_alias=True) for tool in shown]
        self.lists = 0
        self.refuses_large_bodies = False
        # A call that waits is answered when this is set.
        self.has_work = threading.Event()
        self.callers_gone = 0
        self.is_called = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: BrokenServer

    def do_POST(self) -> None:
        if self.server.refuses_large_bodies and int(self.headers["content-length"]) > 1000:
            self.server.calls.append({})
            self.close_connection = True
            self._answer(413, "text/plain", b"too_large: the body is over the limit")
            return
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request["method"] == "tools/call":
            self.server.calls.append(request)
            if len(self.server.calls) <= self.server.breaks:
                self.close_connection = True
                return
            self.server.is_called.set()
            if request["params"]["arguments"].get("wait") and not self._work_came():
                return
        result: dict[str, Any] = {"structuredContent": {}}
        if request["method"] == "tools/list":
            self.server.lists += 1
            result = {"tools": self.server.tools}
        body = json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "result": result}).encode()
        self._answer(200, "application/json", body)

    def _work_came(self) -> bool:
        while not self.server.has_work.wait(0.01):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                self.server.callers_gone += 1
                self.close_connection = True
                return False
        return True

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Generator[BrokenServer]:
    with BrokenServer(breaks=2) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def carried_over(server: BrokenServer, tool: str, **arguments: Any) -> Any:
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    out = io.BytesIO()
    Bridge(address=lambda: server.url, endpoint="/mcp", out=out, token=None).run([json.dumps(call).encode()])
    return json.loads(out.getvalue())


def test_a_writing_call_is_asked_again_with_the_key_that_it_had(server: BrokenServer) -> None:
    assert carried_over(server, "create_review", intent="x")["id"] == 7
    first, *again = [call["params"]["arguments"] for call in server.calls]
    assert len(first["idempotency_key"]) >= 16
    assert again == [first, first]


def test_a_key_of_the_clients_own_is_kept_over_every_attempt(server: BrokenServer) -> None:
    carried_over(server, "close_review", review_id="x", idempotency_key="mine")
    assert [call["params"]["arguments"]["idempotency_key"] for call in server.calls] == ["mine"] * 3


def test_two_calls_have_two_keys(server: BrokenServer) -> None:
    server.breaks = 0
    for _ in range(2):
        carried_over(server, "create_review", intent="x")
    one, other = [call["params"]["arguments"]["idempotency_key"] for call in server.calls]
    assert one != other


@pytest.mark.parametrize(
    ("name", "reads", "takes"), [("whoami", True, False), ("get_attention", False, True), ("poke", False, False)]
)
def test_whether_a_call_gets_a_key_is_what_the_brokers_list_says(
    server: BrokenServer, name: str, reads: bool, takes: bool
) -> None:
    properties = {"idempotency_key": {"type": "string"}} if takes else {}
    server.tools.append(
        {"name": name, "inputSchema": {"properties": properties}, "annotations": {"readOnlyHint": reads}}
    )
    carried_over(server, name)
    assert ["idempotency_key" in call["params"]["arguments"] for call in server.calls] == [takes] * 3


def test_the_list_of_tools_is_read_once_for_all_calls(server: BrokenServer) -> None:
    server.breaks = 0
    calls = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "claim_next", "arguments": {}}}
        for number in range(3)
    ]
    bridge = Bridge(address=lambda: server.url, endpoint="/mcp", out=io.BytesIO(), token=None)
    for call in calls:
        bridge.run([json.dumps(call).encode()])
    assert (len(server.calls), server.lists) == (3, 1)


def call_of(number: int, tool: str, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def test_at_the_end_of_input_calls_that_wait_are_dropped_and_the_others_answered(server: BrokenServer) -> None:
    """Nobody waits for them any more, and a claim made for them would be lost."""
    server.breaks = 0
    out = io.BytesIO()

    def lines() -> Iterator[bytes]:
        yield call_of(1, "claim_next", reviewer_id="codex", wait=True)
        assert server.is_called.wait(5)
        yield call_of(2, "broker_status")

    began = time.monotonic()
    Bridge(address=lambda: server.url, endpoint="/mcp", out=out, token=None).run(lines())
    assert time.monotonic() - began < 5
    assert [json.loads(line)["id"] for line in out.getvalue().splitlines()] == [2]
    while server.callers_gone == 0:
        time.sleep(0.01)


def test_a_call_that_waits_is_not_asked_again_after_the_end_of_input(server: BrokenServer) -> None:
    def nowhere() -> str:
        raise UnreachableError("no broker is running")

    out = io.BytesIO()
    began = time.monotonic()
    Bridge(address=nowhere, endpoint="/mcp", out=out, token=None).run([call_of(1, "claim_next", wait=True)])
    assert time.monotonic() - began < 5
    assert (server.calls, out.getvalue()) == ([], b"")


@pytest.mark.parametrize("size", [2_000, 20_000_000])
def test_a_message_that_is_too_large_is_refused_at_once(server: BrokenServer, size: int) -> None:
    server.breaks, server.refuses_large_bodies = 0, True
    answer = carried_over(server, "create_review", intent="x" * size)
    assert (answer["id"], len(server.calls)) == (7, 1)
    assert "too_large: the body is over the limit" in answer["error"]["message"]
