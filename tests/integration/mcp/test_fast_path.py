"""The short way for a tool call answers as the SDK does, and takes only what it understands completely."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import mcp_types as types
import pytest
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Receive, Scope, Send

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.git.repository import GitRepository
from gsd_review_broker.mcp import fast_path
from gsd_review_broker.mcp.fast_path import FastPath
from gsd_review_broker.mcp.server import make_endpoints
from gsd_review_broker.mcp.tools import REGISTRY
from gsd_review_broker.service.access import CALLER, Identification
from gsd_review_broker.web.edge import bearer_of
from tests.support.asgi import AsgiAnswer, Headers, send_request
from tests.support.local import PROPOSAL, LocalBroker
from tests.support.mcp import PROTOCOL
from tests.support.texts import GOOD

pytestmark = pytest.mark.slow

LIMIT = 100_000
REVISIONS = [None, *HANDSHAKE_PROTOCOL_VERSIONS, PROTOCOL]
LEGACY = "2025-06-18"
META = {"io.modelcontextprotocol/protocolVersion": PROTOCOL, "io.modelcontextprotocol/clientCapabilities": {}}


class Ways:
    """Both ways to one broker, and a count of the calls that the short way passed on."""

    def __init__(self, application: ASGIApp, identification: Identification) -> None:
        assert isinstance(application, FastPath)
        self.calls = application
        self.sdk = admitted(self.calls._otherwise, identification)
        self.passed_on = 0
        self.calls._otherwise = self._pass_on
        self.short = admitted(self.calls, identification)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.passed_on += 1
        await self.sdk(scope, receive, send)

    async def both(self, headers: Headers, *pieces: bytes, method: str = "POST") -> tuple[AsgiAnswer, bool]:
        """The answer, the same either way; and whether the short way gave it."""
        before = self.passed_on
        short = await send_request(self.short, headers, *pieces, method=method)
        taken = self.passed_on == before
        long = await send_request(self.sdk, headers, *pieces, method=method)
        assert short is not None
        assert long is not None
        assert (short.status, facts(short.message)) == (long.status, facts(long.message))
        assert "mcp-session-id" not in short.headers
        assert "mcp-session-id" not in long.headers
        if taken:
            assert short.kind == "application/json"
            assert int(short.headers["content-length"]) == len(short.body)
        else:
            assert (short.headers, short.body) == (long.headers, long.body)
        return short, taken


def admitted(application: ASGIApp, identification: Identification) -> ASGIApp:
    """With the caller in the scope, as the edge of the broker hands a request on."""

    async def with_caller(scope: Scope, receive: Receive, send: Send) -> None:
        await application({**scope, CALLER: await identification.caller(bearer_of(scope))}, receive, send)

    return with_caller


def facts(message: Any) -> Any:
    """An answer's text is JSON, and a remembered answer has its fields in another order."""
    with contextlib.suppress(TypeError, KeyError, ValueError):
        content = message["result"]["content"][0]
        return {
            **message,
            "result": {**message["result"], "content": [{**content, "text": json.loads(content["text"])}]},
        }
    return message


@contextlib.asynccontextmanager
async def ways_of(broker: LocalBroker, path: str = "/mcp") -> AsyncGenerator[Ways]:
    endpoints = make_endpoints(broker.application.broker, body_limit=LIMIT)
    yield Ways(endpoints.by_path[path], broker.application.broker.identification)
    await endpoints.stop()


@pytest.fixture
async def ways(broker: LocalBroker) -> AsyncGenerator[Ways]:
    async with ways_of(broker) as both:
        yield both


def request(tool: Any, arguments: Any, revision: str | None = LEGACY, **envelope: Any) -> bytes:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if revision == PROTOCOL:
        params["_meta"] = META
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params, **envelope}).encode()


def headers(tool: str, revision: str | None = LEGACY, *more: tuple[bytes, bytes]) -> Headers:
    plain = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    if revision is not None:
        plain.append((b"mcp-protocol-version", revision.encode()))
    if revision == PROTOCOL:
        plain += [(b"mcp-method", b"tools/call"), (b"mcp-name", tool.encode())]
    return [*plain, *more]


async def calls_of_every_tool(broker: LocalBroker) -> dict[str, dict[str, Any]]:
    """One call of each tool that is answered well, and that may be repeated with the same answer."""
    review = (await broker.create(diff=GOOD, description="größer → „besser“ \u2028"))["review_id"]
    other = (await broker.create())["review_id"]
    claim = await broker("claim_review", review_id=review, reviewer_id="codex")
    finding = {"path": "greeting.txt", "line_start": 1, "line_end": 1, "side": "new", "severity": "low", "title": "t"}
    asked = {
        "verdict": "changes_requested",
        "reason": "no",
        "counter_patch": GOOD,
        "findings": [finding | {"body": "b"}],
    }
    await broker("submit_verdict", review_id=review, reviewer_id="codex", **asked)
    talk = await broker("get_discussion", review_id=review)
    third = (await broker.create())["review_id"]
    generation = (await broker("claim_review", review_id=third, reviewer_id="gemini"))["claim_generation"]
    fourth = (await broker.create())["review_id"]
    await broker("claim_review", review_id=fourth, reviewer_id="gemini")
    key = {"idempotency_key": "one"}
    assert claim["claim_generation"]
    return {
        "create_review": {**PROPOSAL, **key},
        "get_review_status": {"review_id": review},
        "reject_counter_patch": {"review_id": review, "reason": "mine is better", **key},
        "accept_counter_patch": {"review_id": other, **key},
        "close_review": {"review_id": other, **key},
        "claim_next": {"reviewer_id": "opencode", **key},
        "claim_review": {"review_id": fourth, "reviewer_id": "gemini"},
        "get_proposal": {"review_id": review},
        "submit_verdict": {"review_id": fourth, "verdict": "approved", "reviewer_id": "gemini", **key},
        "release_claim": {"review_id": third, "claim_generation": generation, **key},
        "list_reviews": {"wait": False},
        "add_message": {"review_id": review, "sender_role": "proposer", "body": "ü\u0000"[:1], **key},
        "get_discussion": {"review_id": review},
        "resolve_finding": {
            "review_id": review, "finding_id": talk["findings"][0]["finding_id"], "disposition": "fixed", **key
        },
        "get_activity_feed": {"limit": 2},
        "get_audit_log": {"review_id": review},
        "get_review_timeline": {"review_id": review},
        "get_review_stats": {},
        "broker_status": {},
        "spawn_reviewer": {},
        "kill_reviewer": {"reviewer_id": "nobody-r1-00000000"},
        "list_reviewers": {},
    }  # fmt: skip


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_tool_answers_the_same_either_way(broker: LocalBroker, ways: Ways, revision: str | None) -> None:
    calls = await calls_of_every_tool(broker)
    assert set(calls) == set(REGISTRY.shown_to(Audience.ALL))
    for tool, arguments in calls.items():
        _, taken = await ways.both(headers(tool, revision), request(tool, arguments, revision))
        assert taken, tool


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_refusal_is_the_same_either_way(broker: LocalBroker, ways: Ways, revision: str | None) -> None:
    bad: list[dict[str, Any]] = [
        {"surprise": 1},
        {"review_id": 5},
        {"review_id": "ffffffff"},
        {"review_id": "\u202e"},
        {"limit": 10**30},
        {"reviewer_id": ["x"]},
    ]
    for tool in [*REGISTRY.shown_to(Audience.ALL), "no_such_tool", "ünknown"]:
        name = tool if tool.isascii() else "=?base64?w7xua25vd24=?="
        for arguments in bad:
            _, taken = await ways.both(headers(name, revision), request(tool, arguments, revision))
            assert taken


@pytest.mark.parametrize("path", ["/mcp/proposer", "/mcp/reviewer", "/mcp/observer"])
async def test_an_endpoint_has_only_its_own_tools_either_way(broker: LocalBroker, path: str) -> None:
    async with ways_of(broker, path) as ways:
        for tool in REGISTRY.shown_to(Audience.ALL):
            arguments = {"review_id": "ffffffff", "reviewer_id": "codex"}
            _, taken = await ways.both(headers(tool), request(tool, arguments))
            assert taken


ENVELOPES: dict[str, bytes] = {
    "batch": b"[" + request("broker_status", {}) + b"]",
    "notification": b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    "call without id": b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"broker_status"}}',
    "another method": b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
    "unknown method": b'{"jsonrpc":"2.0","id":1,"method":"tools/fly"}',
    "response": b'{"jsonrpc":"2.0","id":1,"result":{}}',
    "id null": request("broker_status", {}, id=None),
    "id true": request("broker_status", {}, id=True),
    "id float": request("broker_status", {}, id=1.5),
    "id list": request("broker_status", {}, id=[1]),
    "jsonrpc 1": request("broker_status", {}, jsonrpc="1.0"),
    "field beside": request("broker_status", {}, surprise=1),
    "no params": b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    "params null": request("broker_status", {}, params=None),
    "params list": request("broker_status", {}, params=["broker_status"]),
    "name missing": request("broker_status", {}, params={"arguments": {}}),
    "name a number": request("broker_status", {}, params={"name": 5}),
    "arguments null": request("broker_status", None),
    "arguments a list": request("broker_status", [1]),
    "parameter beside": request("broker_status", {}, params={"name": "broker_status", "task": {"ttl": 5}}),
    "meta a number": request("broker_status", {}, params={"name": "broker_status", "_meta": 5}),
    "progress token a list": request(
        "broker_status", {}, params={"name": "broker_status", "_meta": {"progressToken": [1]}}
    ),
    "empty": b"",
    "not JSON": b"{",
    "a number": b"5",
    "not UTF-8": b'{"jsonrpc":"2.0","id":"\xff","method":"tools/call","params":{"name":"broker_status"}}',
    "byte order mark": b"\xef\xbb\xbf" + request("broker_status", {}),
    "UTF-16": request("broker_status", {}).decode().encode("utf-16"),
    "too deep": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "too large": request("broker_status", {"x": "y" * LIMIT}),
}


@pytest.mark.parametrize("revision", [None, LEGACY, PROTOCOL])
@pytest.mark.parametrize("name", ENVELOPES)
async def test_what_is_no_plain_tool_call_goes_to_the_sdk_untouched(
    ways: Ways, name: str, revision: str | None
) -> None:
    _, taken = await ways.both(headers("broker_status", revision), ENVELOPES[name])
    assert not taken


# Well formed, if odd: whichever way it takes, the answer is the same.
ODD_BODIES: dict[str, bytes] = {
    "id text": request("broker_status", {}, id="a-7 ü"),
    "id empty": request("broker_status", {}, id=""),
    "id negative": request("broker_status", {}, id=-1),
    "id huge": request("broker_status", {}, id=10**40),
    "a name twice": b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"broker_status"}}',
    "NaN": request("list_reviews", {"limit": float("nan")}),
    "an integer of 5,000 digits": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
    b'{"name":"list_reviews","arguments":{"limit":' + b"1" * 5_000 + b"}}}",
    "half a character": rb'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
    rb'{"name":"get_review_status","arguments":{"review_id":"\ud800"}}}',
    "a NUL": request("get_review_status", {"review_id": "a\0b"}),
    "no arguments": request("broker_status", {}, params={"name": "broker_status"}),
    "deep arguments": request("add_message", {"metadata": json.loads('{"a":' * 100 + "1" + "}" * 100)}),
    "a progress token": request("broker_status", {}, params={"name": "broker_status", "_meta": {"progressToken": 5}}),
    "meta of a program": request("broker_status", {}, params={"name": "broker_status", "_meta": {"thread": {"id": 1}}}),
    "layout": b"\n  " + json.dumps(json.loads(request("broker_status", {})), indent=2).encode() + b"\n",
}


@pytest.mark.parametrize("revision", [None, *HANDSHAKE_PROTOCOL_VERSIONS])
@pytest.mark.parametrize("name", ODD_BODIES)
async def test_odd_bodies_are_answered_the_same_either_way(ways: Ways, name: str, revision: str | None) -> None:
    await ways.both(headers("broker_status", revision), ODD_BODIES[name])


@pytest.mark.parametrize("name", ODD_BODIES)
async def test_odd_bodies_of_the_newest_revision_are_answered_the_same_either_way(ways: Ways, name: str) -> None:
    try:
        message = json.loads(ODD_BODIES[name])
    except ValueError:
        message = None
    body, tool = ODD_BODIES[name], "list_reviews"
    if message is not None:
        tool = message["params"]["name"]
        message["params"]["_meta"] = {**message["params"].get("_meta", {}), **META}
        body = json.dumps(message).encode()
    await ways.both(headers(tool, PROTOCOL), body)


ODD_HEADERS: dict[str, tuple[Headers, bool]] = {
    # name: headers, and whether the short way may take it
    "session id": (headers("broker_status", LEGACY, (b"mcp-session-id", b"0123456789abcdef")), True),
    "last event id": (headers("broker_status", LEGACY, (b"last-event-id", b"5")), True),
    "charset": ([(b"content-type", b"application/json; charset=utf-8"), (b"accept", b"*/*")], True),
    "two types accepted in odd layout": (
        [(b"content-type", b"application/json"), (b"accept", b"TEXT/event-stream;q=0.5 ,application/json;q=1")],
        True,
    ),
    "wildcards": ([(b"content-type", b"application/json"), (b"accept", b"application/*, text/*")], False),
    "only JSON accepted": ([(b"content-type", b"application/json"), (b"accept", b"application/json")], False),
    "nothing accepted": ([(b"content-type", b"application/json")], False),
    "accepted in two lines": (
        [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"accept", b"text/event-stream"),
        ],
        False,
    ),
    "plain text": ([(b"content-type", b"text/plain"), (b"accept", b"*/*")], False),
    "no type": ([(b"accept", b"*/*")], False),
    "encoded": (headers("broker_status", LEGACY, (b"content-encoding", b"identity")), False),
    "unknown revision": (headers("broker_status", "2031-01-01"), False),
    "revision twice": (headers("broker_status", LEGACY, (b"mcp-protocol-version", b"2025-03-26")), False),
    "name of another tool, older": (headers("broker_status", LEGACY, (b"mcp-name", b"list_reviews")), True),
}


@pytest.mark.parametrize("name", ODD_HEADERS)
async def test_odd_headers_are_answered_the_same_either_way(ways: Ways, name: str) -> None:
    given, expected = ODD_HEADERS[name]
    _, taken = await ways.both(given, request("broker_status", {}))
    assert taken == expected


MODERN_HEADERS: dict[str, Headers] = {
    "no name": [header for header in headers("broker_status", PROTOCOL) if header[0] != b"mcp-name"],
    "no method": [header for header in headers("broker_status", PROTOCOL) if header[0] != b"mcp-method"],
    "another name": headers("list_reviews", PROTOCOL),
    "name twice": headers("broker_status", PROTOCOL, (b"mcp-name", b"broker_status")),
    "a parameter by header": headers("broker_status", PROTOCOL, (b"mcp-param-x", b"1")),
    "older in the body": headers("broker_status", LEGACY),
}


@pytest.mark.parametrize("name", MODERN_HEADERS)
async def test_headers_of_the_newest_revision_are_judged_by_the_sdk(ways: Ways, name: str) -> None:
    await ways.both(MODERN_HEADERS[name], request("broker_status", {}, PROTOCOL))


@pytest.mark.parametrize("meta", [{}, {**META, "io.modelcontextprotocol/clientInfo": 5}, META | {"progressToken": []}])
async def test_an_envelope_that_lacks_something_is_judged_by_the_sdk(ways: Ways, meta: dict[str, Any]) -> None:
    params = {"name": "broker_status", "arguments": {}, "_meta": meta}
    _, taken = await ways.both(headers("broker_status", PROTOCOL), request("broker_status", {}, params=params))
    assert not taken


INFO = "io.modelcontextprotocol/clientInfo"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
# What clients write about themselves; the short way takes it, whether it or the SDK knows that it is well formed.
METAS: dict[str, tuple[dict[str, Any], bool]] = {
    "client info": ({INFO: {"name": "x", "version": "1"}}, True),
    "client info with a title": ({INFO: {"name": "x", "version": "1", "title": "ü"}}, True),
    "client info without a version": ({INFO: {"name": "x"}}, False),
    "client info, a number as name": ({INFO: {"name": 5, "version": "1"}}, False),
    "capabilities": ({CAPABILITIES: {"elicitation": {}, "roots": {"listChanged": True}}}, True),
    "capabilities, a list": ({CAPABILITIES: []}, False),
    "progress token": ({"progressToken": 5}, True),
    "progress token, a text": ({"progressToken": "ü"}, True),
    "progress token, huge": ({"progressToken": 10**40}, True),
    "progress token, true": ({"progressToken": True}, True),
    "progress token, a fraction": ({"progressToken": 1.5}, False),
    "a field of its own": ({"claudecode/toolUseId": "toolu_1"}, True),
}


@pytest.mark.parametrize("revision", [LEGACY, PROTOCOL])
@pytest.mark.parametrize("name", METAS)
async def test_what_a_client_says_about_itself_is_judged_as_the_sdk_judges_it(
    ways: Ways, name: str, revision: str
) -> None:
    meta, expected = METAS[name]
    params = {"name": "broker_status", "arguments": {}, "_meta": {**META, **meta} if revision == PROTOCOL else meta}
    _, taken = await ways.both(headers("broker_status", revision), request("broker_status", {}, params=params))
    if revision == PROTOCOL or name.startswith("progress token"):
        assert taken == expected


@pytest.mark.parametrize("revision", [LEGACY, PROTOCOL])
@pytest.mark.parametrize("argument", ["ü", "\ud800", "\u202e", "", "a\0"])
async def test_odd_names_of_arguments_are_answered_the_same_either_way(
    ways: Ways, argument: str, revision: str
) -> None:
    await ways.both(headers("broker_status", revision), request("broker_status", {argument: 1}, revision))


def test_a_plain_call_is_what_the_sdk_calls_well_formed() -> None:
    """The names and lists that are written out, so that the SDK need not be imported."""
    assert set(HANDSHAKE_PROTOCOL_VERSIONS) == fast_path.HANDSHAKE_REVISIONS
    assert set(MODERN_PROTOCOL_VERSIONS) == fast_path.MODERN_REVISIONS
    assert types.DEFAULT_NEGOTIATED_VERSION == fast_path.DEFAULT_REVISION
    assert types.SERVER_INFO_META_KEY == fast_path.SERVER_INFO
    sample = {"content": [], "structuredContent": {}, "isError": False, "resultType": "complete"}
    for revision in HANDSHAKE_PROTOCOL_VERSIONS:
        fields = methods.serialize_server_result(fast_path.METHOD, revision, sample)
        assert set(fields) == set(fast_path.HANDSHAKE_FIELDS)


async def test_a_body_in_pieces_is_read_whole(ways: Ways) -> None:
    body = request("broker_status", {})
    answer, taken = await ways.both(headers("broker_status"), *(body[i : i + 10] for i in range(0, len(body), 10)))
    assert taken
    assert answer.message["result"]["isError"] is False


async def test_pieces_over_the_limit_are_refused(ways: Ways) -> None:
    answer, taken = await ways.both(headers("broker_status"), *[b" " * 30_000] * 5)
    assert (answer.status, taken) == (413, False)


@pytest.mark.parametrize("revision", [LEGACY, PROTOCOL])
@pytest.mark.parametrize("wait", [True, 1, "yes", None])
async def test_a_wait_is_plain_json_for_old_revisions_and_a_stream_for_the_newest(
    broker: LocalBroker, ways: Ways, wait: object, revision: str
) -> None:
    """A client of an old revision tries to resume a stream that breaks off, when the broker is killed, for minutes."""
    review_id = (await broker.create())["review_id"]
    await broker("close_review", review_id=review_id)
    body = request("get_review_status", {"review_id": review_id, "wait": wait}, revision)
    _, taken = await ways.both(headers("get_review_status", revision), body)
    assert taken is (revision == LEGACY)


async def test_other_methods_of_http_go_to_the_sdk(ways: Ways) -> None:
    _, taken = await ways.both(headers("broker_status"), b"", method="DELETE")
    assert not taken


# Callers that hang up.


async def test_who_hangs_up_before_the_end_of_the_body_gets_nothing_done(broker: LocalBroker, ways: Ways) -> None:
    body = request("create_review", PROPOSAL)
    await send_request(ways.short, headers("create_review"), body[:-5], missing=True)
    assert (await broker("list_reviews"))["reviews"] == []


async def test_nothing_is_claimed_for_a_caller_that_hung_up_while_it_waited(broker: LocalBroker, ways: Ways) -> None:
    gone = asyncio.Event()
    body = request("claim_next", {"reviewer_id": "codex", "wait": True, "wait_seconds": 60})
    calling = asyncio.create_task(send_request(ways.short, headers("claim_next"), body, gone=gone))
    async with asyncio.timeout(5):
        while not broker.application.wakeups.waiting:
            await asyncio.sleep(0)
        gone.set()
        assert await calling is None
    review_id = (await broker.create())["review_id"]
    assert broker.application.wakeups.waiting == 0
    assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"


async def test_nothing_is_claimed_for_a_caller_that_is_gone(
    broker: LocalBroker, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs up while git is asked, which is the longest part of a claim."""
    review_id = (await broker.create(diff=GOOD))["review_id"]
    asked, gone = asyncio.Event(), asyncio.Event()
    check = GitRepository.check

    async def slow_check(*arguments: Any, **options: Any) -> Any:
        asked.set()
        await gone.wait()
        return await check(*arguments, **options)

    monkeypatch.setattr(GitRepository, "check", slow_check)
    body = request("claim_review", {"review_id": review_id, "reviewer_id": "codex"})
    calling = asyncio.create_task(send_request(ways.short, headers("claim_review"), body, gone=gone))
    await asked.wait()
    gone.set()
    assert await calling is None
    assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"


async def test_a_cancellation_from_elsewhere_goes_on_its_way(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def never(*_: Any) -> dict[str, Any]:
        begun.set()
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(ways.calls, "_answer", never)
    calling = asyncio.create_task(send_request(ways.short, headers("broker_status"), request("broker_status", {})))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
