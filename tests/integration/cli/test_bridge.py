"""The bridge asks again when an answer breaks off, and then it is the same call."""

import io
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gsd_review_broker.cli.broker.bridge import Bridge
from gsd_review_broker.mcp.registry import Audience
from gsd_review_broker.mcp.server import all_tools


class BrokenServer(ThreadingHTTPServer):
    """Answers what it is asked, but breaks off the first answers to a tool call."""

    daemon_threads = True

    def __init__(self, *, breaks: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.breaks = breaks
        self.calls: list[dict[str, Any]] = []
        shown = all_tools().shown_to(Audience.ALL).values()
        self.tools = [tool.wire.model_dump(mode="json", by_alias=True) for tool in shown]
        self.lists = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: BrokenServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request["method"] == "tools/call":
            self.server.calls.append(request)
            if len(self.server.calls) <= self.server.breaks:
                self.close_connection = True
                return
        result: dict[str, Any] = {"structuredContent": {}}
        if request["method"] == "tools/list":
            self.server.lists += 1
            result = {"tools": self.server.tools}
        body = json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "result": result}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
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
