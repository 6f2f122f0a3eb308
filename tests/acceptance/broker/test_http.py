"""HTTP as strangers speak it: refused before any handler, bounded, and the broker lives on."""

import contextlib
import http.client
import json
import select
import socket
import sqlite3
import threading
from collections.abc import Generator
from typing import Any

import psutil
import pytest

from tests.support.local import PROPOSAL
from tests.support.mcp import PROTOCOL, request_body, request_headers
from tests.support.processes import BrokerProcess, make_repository
from tests.support.waiting import PATIENCE, until

MIB = 1024 * 1024
BODY_LIMIT = 8 * MIB
OLDER = "2025-06-18"
PROTOCOLS = [PROTOCOL, OLDER]
MCP_ROUTES = ["/mcp", "/mcp/proposer", "/mcp/reviewer", "/mcp/observer"]
ROUTES = ["/healthz", *MCP_ROUTES, "/no/such/page"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("http")
    (folder / "home").mkdir()
    with BrokerProcess(make_repository(folder / "repository"), home=folder / "home") as running:
        yield running


@pytest.fixture(autouse=True)
def lives_on(broker: BrokerProcess) -> Generator[None]:
    """After each test the same process answers, and nobody is left waiting."""
    yield
    assert broker.process is not None
    assert broker.process.poll() is None
    assert broker.client()("broker_status")["waiting"] == 0


@pytest.fixture
def review_id(broker: BrokerProcess) -> str:
    """One that is claimed, so that nearly everything may be said of it."""
    review_id = broker.client()("create_review", **PROPOSAL)["review_id"]
    broker.client()("claim_review", review_id=review_id, reviewer_id="codex")
    return review_id


def exchange(port: int, request: bytes) -> int:
    """The status of what comes back for these very bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        return status_of(connection)


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(64).split(b" ")[1])


def request(method: str, path: str, *headers: str, version: str = "1.1", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


def mcp_headers(protocol: str, method: str = "tools/call", name: str | None = None) -> dict[str, str]:
    headers = request_headers(method, name)
    if protocol == PROTOCOL:
        return headers
    return {key: headers[key] for key in ("Content-Type", "Accept")} | {"MCP-Protocol-Version": protocol}


def post(port: int, body: bytes, headers: dict[str, str], path: str = "/mcp") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()


def reviews(broker: BrokerProcess) -> int:
    return len(broker.client()("list_reviews", limit=500)["reviews"])


# Host and Origin.

PROPOSING = request_body("tools/call", {"name": "create_review", "arguments": PROPOSAL})
WRONG_HOSTS = [
    [],
    ["Host:"],
    ["Host: evil.example"],
    ["Host: evil.example:{port}"],
    ["Host: EVIL.EXAMPLE:{port}"],
    ["Host: null"],
    ["Host: 127.0.0.1"],
    ["Host: localhost:1"],
    ["Host: localhost:{port}0"],
    ["Host: localhost.:{port}"],
    ["Host: x.localhost:{port}"],
    ["Host: localhost:{port}.evil.example"],
    ["Host: evil.example@localhost:{port}"],
    ["Host: 0.0.0.0:{port}"],
    ["Host: 127.1:{port}"],
    ["Host: ::1:{port}"],
    ["Host: localhost:{port}", "Host: localhost:{port}"],
    ["Host: localhost:{port}", "Host: evil.example"],
    ["Host: evil.example", "X-Forwarded-Host: localhost:{port}"],
]
WRONG_ORIGINS = [
    ["Origin: http://evil.example"],
    ["Origin: http://evil.example:{port}"],
    ["Origin: HTTP://EVIL.EXAMPLE:{port}"],
    ["Origin: null"],
    ["Origin:"],
    ["Origin: http://localhost"],
    ["Origin: http://localhost:1"],
    ["Origin: https://localhost:{port}"],
    ["Origin: localhost:{port}"],
    ["Origin: http://localhost:{port}/"],
    ["Origin: http://localhost:{port}.evil.example"],
    ["Origin: http://localhost:{port}, http://evil.example"],
    ["Origin: http://localhost:{port}", "Origin: http://evil.example"],
    ["Origin: file://"],
]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_a_wrong_host_or_origin_is_refused_on_every_route_before_any_handler(
    broker: BrokerProcess, path: str, method: str
) -> None:
    before = reviews(broker)
    sent = [f"{name}: {value}" for name, value in mcp_headers(PROTOCOL, name="create_review").items()]
    good = f"Host: localhost:{broker.port}"
    for status, given in [
        *((421, headers) for headers in WRONG_HOSTS),
        *((403, [good, *headers]) for headers in WRONG_ORIGINS),
    ]:
        headers = [line.format(port=broker.port) for line in given]
        assert exchange(broker.port, request(method, path, *headers, *sent, body=PROPOSING)) == status, headers
    assert reviews(broker) == before


@pytest.mark.parametrize("path", ROUTES)
def test_http_1_0_without_a_host_is_refused(broker: BrokerProcess, path: str) -> None:
    assert exchange(broker.port, request("GET", path, version="1.0")) == 421


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST", "LocalHost"])
def test_our_own_names_with_our_port_are_let_through(broker: BrokerProcess, name: str) -> None:
    host, origin = f"Host: {name}:{broker.port}", f"Origin: http://{name}:{broker.port}"
    listing = request_body("tools/list", {})
    sent = [f"{key}: {value}" for key, value in mcp_headers(PROTOCOL, "tools/list").items()]
    for headers in ([host], [host, origin]):
        assert exchange(broker.port, request("GET", "/healthz", *headers)) == 200
        assert exchange(broker.port, request("GET", "/no/such/page", *headers)) == 404
        for path in MCP_ROUTES:
            assert exchange(broker.port, request("POST", path, *headers, *sent, body=listing)) == 200


def test_nobody_is_allowed_to_read_across_sites(broker: BrokerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        asks = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        connection.request("OPTIONS", "/mcp", headers=asks)
        response = connection.getresponse()
        assert response.status == 403
        assert not [name for name in response.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "text/plain; application/json", "application/x-www-form-urlencoded",
                     "multipart/form-data; boundary=x"],
)  # fmt: skip
def test_what_a_form_can_send_is_refused(broker: BrokerProcess, protocol: str, content_type: str | None) -> None:
    """Without an Origin too: not every browser has always sent one."""
    before = reviews(broker)
    headers = mcp_headers(protocol, name="create_review")
    del headers["Content-Type"]
    if content_type is not None:
        headers["Content-Type"] = content_type
    for path in ("/mcp", "/mcp/proposer"):
        status, _ = post(broker.port, PROPOSING, headers, path)
        assert 400 <= status < 500
    assert reviews(broker) == before


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("path", ["/mcp/reviwer", "/mcp/all/"])
def test_a_misspelt_endpoint_is_told_with_those_that_there_are(broker: BrokerProcess, protocol: str, path: str) -> None:
    status, answer = post(broker.port, PROPOSING, mcp_headers(protocol, name="create_review"), path)
    error = json.loads(answer)["error"]
    assert (status, error["code"]) == (404, "not_found")
    assert repr(path) in error["message"]
    assert error["hint"] == f"The endpoints are {', '.join(MCP_ROUTES)}."


# Size.


def send_chunks_for_ever(port: int, headers: dict[str, str], *, at_most: int, path: str = "/mcp") -> int:
    """Chunks until there is an answer, whose status it is."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *lines, "Transfer-Encoding: chunked", "", ""]
    chunk = b"%x\r\n%b\r\n" % (MIB // 4, b" " * (MIB // 4))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall("\r\n".join(head).encode())
        for _ in range(at_most // (MIB // 4)):
            if select.select([connection], [], [], 0)[0]:
                break
            connection.sendall(chunk)
        return status_of(connection)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_body_that_says_it_is_too_large_is_refused_unread(broker: BrokerProcess, protocol: str) -> None:
    head = [f"{name}: {value}" for name, value in mcp_headers(protocol).items()]
    for size in (BODY_LIMIT + 1, 10**15):
        for path in MCP_ROUTES:
            lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{broker.port}", *head, f"Content-Length: {size}"]
            assert exchange(broker.port, ("\r\n".join(lines) + "\r\n\r\n").encode()) == 413


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_endless_chunks_are_refused_at_the_limit_and_take_no_memory(broker: BrokerProcess, protocol: str) -> None:
    assert broker.process is not None
    memory = psutil.Process(broker.process.pid).memory_info
    assert send_chunks_for_ever(broker.port, mcp_headers(protocol), at_most=64 * MIB) == 413
    before = memory().rss
    for _ in range(8):
        assert send_chunks_for_ever(broker.port, mcp_headers(protocol), at_most=64 * MIB) == 413
    assert memory().rss - before < 3 * BODY_LIMIT


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_body_of_just_the_limit_is_read(broker: BrokerProcess, protocol: str) -> None:
    body = request_body("tools/list", {})
    headers = mcp_headers(protocol, "tools/list")
    assert post(broker.port, body + b" " * (BODY_LIMIT - len(body)), headers)[0] == 200
    assert post(broker.port, body + b" " * (BODY_LIMIT - len(body) + 1), headers)[0] == 413


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/db/prune", "application/json"),
        ("/api/reviews/0123456789abcdef/take-over", "application/json"),
        ("/api/pool/pause", "application/json"),
        ("/r/0123456789abcdef/verdict", "application/x-www-form-urlencoded"),
    ],
)
def test_endless_chunks_are_refused_at_the_limit_on_every_route(broker: BrokerProcess, path: str, kind: str) -> None:
    assert send_chunks_for_ever(broker.port, {"Content-Type": kind}, at_most=64 * MIB, path=path) == 413


def test_a_header_that_never_ends_is_refused(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as connection:
        connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{broker.port}\r\nX: ".encode())
        with contextlib.suppress(OSError):
            for _ in range(64):
                if select.select([connection], [], [], 0)[0]:
                    break
                connection.sendall(b"x" * 64 * 1024)
        assert status_of(connection) == 431


@pytest.mark.parametrize("header", ["X: " + "x" * 70_000, "\r\n".join(f"X{n}: {n}" for n in range(20_000))])
def test_headers_over_the_limit_are_refused_even_when_they_come_at_once(broker: BrokerProcess, header: str) -> None:
    request = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{broker.port}\r\n{header}\r\n\r\n"
    assert exchange(broker.port, request.encode()) == 431


def test_an_address_over_the_limit_is_refused(broker: BrokerProcess) -> None:
    request = f"GET /reviews?q={'x' * 70_000} HTTP/1.1\r\nHost: 127.0.0.1:{broker.port}\r\n\r\n"
    assert exchange(broker.port, request.encode()) == 431


def test_many_requests_in_one_go_are_all_answered_in_order(broker: BrokerProcess) -> None:
    count = 3_000
    one = f"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1:{broker.port}\r\n\r\n"
    last = one.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
        sending = threading.Thread(target=connection.sendall, args=((one * (count - 1) + last).encode(),))
        sending.start()
        answers = b""
        while piece := connection.recv(MIB):
            answers += piece
        sending.join()
    assert answers.count(b"HTTP/1.1 404") == count


# What is no JSON, no JSON-RPC, or no value that could be kept.

META = json.dumps(json.loads(request_body("x", {}))["params"]["_meta"]).encode()
NINES = b"9" * 4000


def call(tool: str, arguments: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%b","arguments":%b,"_meta":%b}}' % (
        tool.encode(),
        arguments,
        META,
    )


def strictly(text: str) -> Any:
    """JSON as the standard has it: what a client in another language can read."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def message_in(body: bytes) -> Any:
    text = body.decode()
    if text.startswith("event:"):
        text = next(line for line in text.splitlines() if line.startswith("data: ")).removeprefix("data: ")
    return strictly(text)


def refused_with(status: int, body: bytes) -> str | int:
    """An HTTP status, a JSON-RPC code or a tool's code."""
    if status != 200:
        assert 400 <= status < 500
        return status
    message = message_in(body)
    if "error" in message:
        return message["error"]["code"]
    assert message["result"]["isError"], message
    return message["result"]["structuredContent"]["error"]["code"]


def said(more: bytes) -> tuple[str, bytes]:
    return "add_message", b'{"review_id":"REVIEW","sender_role":"reviewer","body":"b",%b}' % more


def asked(tool: str, more: bytes) -> tuple[str, bytes]:
    return tool, b'{"review_id":"REVIEW",%b}' % more


def judged(more: bytes) -> tuple[str, bytes]:
    return asked("submit_verdict", b'"reviewer_id":"codex","verdict":"comment","reason":"r",%b' % more)


UNKEEPABLE = {
    "nested lists": said(b'"metadata":{"a":%b%b}' % (b"[" * 100_000, b"]" * 100_000)),
    "nested objects": said(b'"metadata":%b1%b' % (b'{"a":' * 100_000, b"}" * 100_000)),
    "lists never closed": said(b'"metadata":{"a":%b' % (b"[" * 100_000)),
    "too deep to be sent back": said(b'"metadata":{"a":%b%b}' % (b"[" * 500, b"]" * 500)),
    "NaN kept": said(b'"metadata":{"a":NaN}'),
    "infinity kept": said(b'"metadata":{"a":[-1e999]}'),
    "NaN as integer": said(b'"line":NaN'),
    "infinity as integer": said(b'"line":1e999'),
    "NaN as time": asked("get_review_status", b'"wait":true,"wait_seconds":NaN'),
    "infinite time": asked("get_review_status", b'"wait":true,"wait_seconds":Infinity'),
    "NaN as confidence": judged(b'"findings":[{"title":"t","body":"b","severity":"low","confidence":NaN}]'),
    "huge line": said(b'"line":%b' % NINES),
    "huge negative reply": said(b'"in_reply_to":-%b' % NINES),
    "line past 64 bits": said(b'"line":9223372036854775808'),
    "line 1e300": said(b'"line":1e300'),
    "huge limit": ("list_reviews", b'{"limit":%b}' % NINES),
    "huge revision": asked("get_proposal", b'"revision":%b' % NINES),
    "huge generation": judged(b'"claim_generation":%b' % NINES),
    "huge time": asked("get_review_status", b'"wait":true,"wait_seconds":%b' % NINES),
    "more digits than Python reads": said(b'"line":%b' % (NINES * 2)),
    "lone surrogate": said(b'"sender_id":"\\ud800"'),
    "lone surrogate as id": ("get_review_status", b'{"review_id":"\\udfffabcdef"}'),
    "lone surrogate as an argument's name": said(b'"\\ud800":1'),
    "lone surrogate as a key": said(b'"metadata":{"\\ud800":1}'),
    "invalid UTF-8": said(b'"sender_id":"\xff"'),
    "UTF-8 of a surrogate": said(b'"sender_id":"\xed\xa0\x80"'),
    "NUL": said(b'"sender_id":"a\\u0000"'),
    "arguments as list": ("list_reviews", b"[]"),
    "arguments as text": ("list_reviews", b'"x"'),
    "arguments as number": ("list_reviews", b"5"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", sorted(UNKEEPABLE))
def test_a_value_that_cannot_be_kept_is_the_callers_error(
    broker: BrokerProcess, review_id: str, name: str, protocol: str
) -> None:
    tool, arguments = UNKEEPABLE[name]
    before = broker.client()("get_audit_log", review_id=review_id)["events"]
    body = call(tool, arguments.replace(b"REVIEW", review_id.encode()))
    code = refused_with(*post(broker.port, body, mcp_headers(protocol, name=tool)))
    assert code not in {"internal", "unavailable", -32603, 0}
    assert broker.client()("get_audit_log", review_id=review_id)["events"] == before
    assert broker.client()("get_discussion", review_id=review_id)["messages"] == []


NO_REQUESTS = {
    "nothing": b"",
    "white space": b" \n",
    "half": b'{"jsonrpc":"2.0","id":1,"method"',
    "two": b"{} {}",
    "a text": b'"tools/list"',
    "a number": b"5",
    "null": b"null",
    "an empty object": b"{}",
    "an empty batch": b"[]",
    "a batch": b"[" + request_body("tools/list", {}) + b"]",
    "a batch of nonsense": b"[1,2,3]",
    "no version": b'{"id":1,"method":"tools/list"}',
    "another version": b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
    "no method": b'{"jsonrpc":"2.0","id":1}',
    "a number for a method": b'{"jsonrpc":"2.0","id":1,"method":5}',
    "a list for parameters": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}',
    "a surrogate for a method": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800","params":{"_meta":%b}}' % META,
    "an unknown method": b'{"jsonrpc":"2.0","id":1,"method":"no/such","params":{"_meta":%b}}' % META,
    "a call of nothing": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":%b}}' % META,
    "a call of a number": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5,"_meta":%b}}' % META,
    "a bad handshake": b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":%b}}' % META,
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'.encode("utf-16"),
    "noise": bytes(range(256)) * 16,
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", NO_REQUESTS)
def test_what_is_no_request_is_the_callers_error(broker: BrokerProcess, protocol: str, name: str) -> None:
    for path in MCP_ROUTES:
        assert refused_with(*post(broker.port, NO_REQUESTS[name], mcp_headers(protocol), path)) not in {-32603, 0}


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Length: x\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost:PORT\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        bytes(range(256)),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=lambda sent: repr(sent[:24]),
)
def test_what_is_no_http_harms_nobody(broker: BrokerProcess, sent: bytes) -> None:
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(sent.replace(b"PORT", str(broker.port).encode()))
        connection.shutdown(socket.SHUT_WR)
        while more := connection.recv(65536):
            answer += more
    assert not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5"))


# Slow, and gone.


def test_half_a_request_does_not_hinder_others(broker: BrokerProcess) -> None:
    host = f"Host: localhost:{broker.port}\r\n"
    halves = [
        "POST /mc",
        f"POST /mcp HTTP/1.1\r\n{host}",
        f"POST /mcp HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        f"POST /mcp HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n5\r\n{{",
    ]
    with contextlib.ExitStack() as stack:
        for half in halves * 25:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE))
            connection.sendall(half.encode())
        broker.client()("create_review", **PROPOSAL)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_caller_that_hangs_up_frees_its_place(broker: BrokerProcess, review_id: str, protocol: str) -> None:
    client = broker.client()
    body = call("get_review_status", b'{"review_id":"%b","wait":true,"wait_seconds":200}' % review_id.encode())
    sent = [f"{key}: {value}" for key, value in mcp_headers(protocol, name="get_review_status").items()]
    lines = ["POST /mcp HTTP/1.1", f"Host: localhost:{broker.port}", *sent, f"Content-Length: {len(body)}", "", ""]
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE))
            connection.sendall("\r\n".join(lines).encode() + body)
        until(lambda: client("broker_status")["waiting"] == 5)
    until(lambda: client("broker_status")["waiting"] == 0)
    client.close()


# A fault of our own.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fault_of_the_broker_is_internal_and_its_words_stay_in_the_log(
    broker: BrokerProcess, review_id: str, protocol: str
) -> None:
    with contextlib.closing(sqlite3.connect(broker.database)) as connection:
        told = (f"no JSON, but a secret {protocol}", review_id)
        connection.execute("UPDATE revisions SET affected_files = ? WHERE review_id = ?", told)
        connection.commit()
    body = call("get_proposal", b'{"review_id":"%b"}' % review_id.encode())
    status, answer = post(broker.port, body, mcp_headers(protocol, name="get_proposal"))
    assert refused_with(status, answer) == "internal"
    assert b"secret" not in answer
    assert b"JSON" not in answer
    until(lambda: "JSONDecodeError" in broker.output())
