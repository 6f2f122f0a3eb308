"""MCP as clients of every age speak it, with the official client: the same tools, results and errors."""

import contextlib
import http.client
import json
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from mcp.client.client import Client

from gsd_review_broker import __version__
from tests.support.local import PROPOSAL
from tests.support.mcp import PROTOCOL, request_body, request_headers
from tests.support.processes import BrokerProcess, make_repository
from tests.support.texts import GOOD
from tests.support.waiting import PATIENCE

HANDSHAKES = ["2025-03-26", "2025-06-18", "2025-11-25"]
VERSIONS = [PROTOCOL, *HANDSHAKES]
ROLES = ["proposer", "reviewer", "observer"]

# As the contract has them. What is not built yet is on no endpoint.
ON_ALL = {"get_review_status", "get_proposal", "list_reviews", "get_discussion"}
BOTH = {"add_message", "resolve_finding"}
SHOWN = {
    "proposer": ON_ALL | BOTH | {"create_review", "accept_counter_patch", "reject_counter_patch", "close_review"},
    "reviewer": ON_ALL | BOTH | {"claim_next", "claim_review", "submit_verdict", "release_claim"},
    "observer": ON_ALL
    | {"get_activity_feed", "get_audit_log", "get_review_timeline", "get_review_stats", "broker_status"},
}
POOL = {"spawn_reviewer", "kill_reviewer", "list_reviewers"}
READING = SHOWN["observer"] | {"list_reviewers"}
ENDING = {"kill_reviewer"}  # of reviews nothing is ever deleted
NOT_REPEATABLE = {"create_review", "add_message", "submit_verdict", "claim_next", "spawn_reviewer"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("protocols")
    (folder / "home").mkdir()
    with BrokerProcess(make_repository(folder / "repository"), home=folder / "home") as running:
        yield running


@contextlib.asynccontextmanager
async def connected(
    port: int, version: str, monkeypatch: pytest.MonkeyPatch, path: str = "/mcp"
) -> AsyncGenerator[Client]:
    """The official client, which offers its newest handshake version unless told otherwise."""
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", version)
    mode = version if version == PROTOCOL else "legacy"
    async with Client(f"http://127.0.0.1:{port}{path}", mode=mode, read_timeout_seconds=PATIENCE) as client:
        assert client.protocol_version == version
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Its result, whose text says the same in compact JSON."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    (content,) = answer.content
    assert content.type == "text"
    assert content.text == json.dumps(answer.structured_content, ensure_ascii=False, separators=(",", ":"))
    return answer.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> dict[str, str]:
    """Its error, whose text says the same."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    assert answer.structured_content is not None
    assert set(answer.structured_content) == {"error"}
    error = answer.structured_content["error"]
    assert set(error) == {"code", "message", "hint"}
    (content,) = answer.content
    assert content.type == "text"
    assert content.text == f"{error['code']}: {error['message']}\n{error['hint']}"
    return error


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_review_goes_its_whole_way_in_every_protocol(
    broker: BrokerProcess, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker.port, version, monkeypatch) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} >= SHOWN["proposer"] | SHOWN["reviewer"]
        created = await call(client, "create_review", **PROPOSAL, description="größer → „besser“", diff=GOOD)
        review_id = created["review_id"]
        claim = await call(client, "claim_review", review_id=review_id, reviewer_id="codex")
        assert claim["description"] == "größer → „besser“"
        proposal = await call(client, "get_proposal", review_id=review_id, caller_id="codex")
        assert proposal["diff"] == GOOD
        fence = claim["claim_generation"]
        given = await call(client, "submit_verdict", review_id=review_id, verdict="approved", claim_generation=fence)
        assert given["status"] == "approved"
        status = await call(client, "get_review_status", review_id=review_id, wait=True)
        assert (status["status"], status["claimed_by"], status["changed"]) == ("approved", "codex", True)
        closed = await call(client, "close_review", review_id=review_id)
        assert (closed["status"], closed["outcome"]) == ("closed", "approved")


@pytest.mark.parametrize("version", VERSIONS)
async def test_errors_are_tool_errors_in_every_protocol(
    broker: BrokerProcess, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker.port, version, monkeypatch) as client:
        assert (await refusal(client, "get_review_status", review_id="ffffffff"))["code"] == "not_found"
        unknown = await refusal(client, "list_reviews", surprise=1)
        assert (unknown["code"], unknown["message"]) == ("invalid_argument", "surprise: unknown argument")
        missing = await refusal(client, "claim_review", review_id="ffffffff")
        assert (missing["code"], missing["message"]) == ("invalid_argument", "reviewer_id: required")
        absent = await refusal(client, "no_such_tool")
        assert (absent["code"], "no_such_tool" in absent["message"]) == ("not_found", True)


@pytest.mark.parametrize("version", VERSIONS)
async def test_there_are_no_resources_and_no_prompts_and_asking_is_no_error(
    broker: BrokerProcess, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker.port, version, monkeypatch) as client:
        assert (await client.list_resources()).resources == []
        assert (await client.list_prompts()).prompts == []


@pytest.mark.parametrize("version", HANDSHAKES)
async def test_a_handshake_says_who_answers(
    broker: BrokerProcess, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker.port, version, monkeypatch, "/mcp/reviewer") as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("gsdreview", __version__)
        assert client.server_capabilities.tools is not None
        # A capability costs some clients' models a tool; there is nothing to be had by these.
        assert client.server_capabilities.resources is None
        assert client.server_capabilities.prompts is None
        assert "claim_next" in (client.instructions or "")


async def test_discovery_says_who_answers_and_in_which_protocol(broker: BrokerProcess) -> None:
    async with Client(f"http://127.0.0.1:{broker.port}/mcp/proposer", mode="auto") as client:
        assert client.protocol_version == PROTOCOL
        assert client.session.discover_result is not None
        assert client.session.discover_result.supported_versions == [PROTOCOL]
        assert client.server_info is not None
        assert client.server_info.name == "gsdreview"
        assert "create_review" in (client.instructions or "")
        assert "create_review" in {tool.name for tool in (await client.list_tools()).tools}


def test_a_protocol_that_nobody_knows_is_refused_with_those_that_are_known(broker: BrokerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        body = request_body("tools/list", {}).replace(PROTOCOL.encode(), b"2031-01-01")
        headers = request_headers("tools/list") | {"MCP-Protocol-Version": "2031-01-01"}
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        assert response.status == 400
        assert PROTOCOL in json.loads(response.read())["error"]["data"]["supported"]


def test_an_address_may_end_with_a_slash_and_a_header_with_white_space(broker: BrokerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=10)
    with contextlib.closing(connection):
        headers = request_headers("tools/call", "broker_status  ")
        body = request_body("tools/call", {"name": "broker_status", "arguments": {}})
        for path in ("/mcp/", "/mcp/observer/"):
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            assert response.status == 200
            assert json.loads(response.read())["result"]["isError"] is False


# Who is shown what.


def tools_of(broker: BrokerProcess, path: str) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in broker.client(path).tools()}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_shown_exactly_what_it_uses(broker: BrokerProcess, role: str) -> None:
    everything = tools_of(broker, "/mcp")
    shown = tools_of(broker, f"/mcp/{role}")
    assert set(shown) == SHOWN[role] & set(everything)
    assert set(shown) >= ON_ALL
    assert all(shown[name] == everything[name] for name in shown)


def test_everything_is_shown_to_those_who_do_not_say_what_they_are(broker: BrokerProcess) -> None:
    everything = set(tools_of(broker, "/mcp"))
    assert everything <= set.union(*SHOWN.values(), POOL)
    assert everything >= SHOWN["proposer"] | SHOWN["reviewer"] | {"get_audit_log", "get_review_timeline"}


def test_an_observer_has_nothing_that_writes(broker: BrokerProcess) -> None:
    assert {tool["annotations"]["readOnlyHint"] for tool in tools_of(broker, "/mcp/observer").values()} == {True}


@pytest.mark.parametrize("version", [PROTOCOL, "2025-06-18"])
@pytest.mark.parametrize("role", ROLES)
async def test_what_a_role_is_not_shown_it_cannot_call(
    broker: BrokerProcess, role: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = set(tools_of(broker, "/mcp")) - set(tools_of(broker, f"/mcp/{role}"))
    before = broker.client()("get_audit_log", limit=500)["events"]
    arguments = {"create_review": PROPOSAL, "claim_next": {"reviewer_id": "codex"}}
    async with connected(broker.port, version, monkeypatch, f"/mcp/{role}") as client:
        for name in sorted(hidden):
            refused = await client.call_tool(name, arguments.get(name, {"review_id": "ffffffff"}))
            assert refused.is_error
            assert refused.structured_content is not None
            assert refused.structured_content["error"]["code"] == "not_found"
    assert hidden
    assert broker.client()("get_audit_log", limit=500)["events"] == before


# Annotations: clients refuse tools by them, so they must be true.


def test_annotations_say_what_a_tool_does(broker: BrokerProcess) -> None:
    said = {name: tool["annotations"] for name, tool in tools_of(broker, "/mcp").items()}
    hints = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert all(hints <= set(annotations) for annotations in said.values())
    assert {name for name, hint in said.items() if hint["readOnlyHint"]} == READING & set(said)
    assert {name for name, hint in said.items() if hint["destructiveHint"]} <= ENDING
    assert {name for name, hint in said.items() if hint["openWorldHint"]} == set()


def test_what_reads_writes_nothing(broker: BrokerProcess) -> None:
    client = broker.client()
    review_id = client("create_review", **PROPOSAL)["review_id"]
    before = client("get_audit_log", limit=500)["events"]
    for name, tool in tools_of(broker, "/mcp").items():
        if tool["annotations"]["readOnlyHint"]:
            client(name, **dict.fromkeys(tool["inputSchema"].get("required", []), review_id))
    assert client("get_audit_log", limit=500)["events"] == before


def test_what_may_be_repeated_does_nothing_the_second_time(broker: BrokerProcess) -> None:
    """And what says that it may not, does."""
    client = broker.client()
    review_id = client("create_review", **PROPOSAL)["review_id"]
    claim = {"review_id": review_id, "reviewer_id": "codex"}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("create_review", PROPOSAL),
        ("claim_review", claim),
        ("add_message", {"review_id": review_id, "sender_role": "reviewer", "body": "why?"}),
        ("submit_verdict", {**claim, "verdict": "comment", "reason": "hm"}),
    ]
    repeatable: dict[str, bool] = {}
    for name, arguments in calls:
        client(name, **arguments)
        before = client("get_audit_log", limit=500)["events"]
        client(name, **arguments)
        repeatable[name] = client("get_audit_log", limit=500)["events"] == before
    said = {name: tool["annotations"]["idempotentHint"] for name, tool in tools_of(broker, "/mcp").items()}
    assert {name: said[name] for name in repeatable} == repeatable
    assert {name for name, hint in said.items() if not hint} == NOT_REPEATABLE & set(said)


# The broker's restart.


async def test_a_restart_between_two_calls_is_invisible(
    process: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connected(process.port, version, monkeypatch)) for version in VERSIONS
        ]
        created = [(await call(client, "create_review", **PROPOSAL))["review_id"] for client in clients]
        assert process.stop() == 0
        process.start(port=process.port)
        for client, review_id in zip(clients, created, strict=True):
            assert (await call(client, "get_review_status", review_id=review_id))["status"] == "pending"
