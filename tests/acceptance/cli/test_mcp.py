"""`tandem mcp`: the broker over standard input and output, with the official client and by hand."""

import contextlib
import json
import signal
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.support.local import PROPOSAL
from tests.support.mcp import request_body
from tests.support.processes import BrokerProcess
from tests.support.tandem import PROGRAM, Running, Tandem


@pytest.fixture
def tandem(repository: Path, own_home: Path) -> Generator[Tandem]:
    tandem = Tandem(repository, own_home, BROKER_PORT="0")
    yield tandem
    tandem.run("down", "--force")


def parameters(tandem: Tandem, *arguments: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=PROGRAM, args=["mcp", *arguments], env=tandem.environment, cwd=str(tandem.folder)
    )


async def test_the_official_client_works_over_it_and_the_broker_is_started(tandem: Tandem) -> None:
    async with (
        stdio_client(parameters(tandem)) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        names = {tool.name for tool in (await session.list_tools()).tools}
        assert {"create_review", "claim_next", "submit_verdict"} <= names
        created = await session.call_tool("create_review", dict(PROPOSAL))
        assert created.structured_content is not None
        review_id = created.structured_content["review_id"]
        refused = await session.call_tool("get_review_status", {"review_id": "0123456789abcdef"})
        assert refused.is_error
    assert tandem("show", review_id)["status"]["status"] == "pending"


async def test_a_role_is_shown_its_own_tools(tandem: Tandem) -> None:
    async with (
        stdio_client(parameters(tandem, "--role", "observer")) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        names = {tool.name for tool in (await session.list_tools()).tools}
        assert "create_review" not in names
        assert "get_audit_log" in names


class Lines:
    """A client by hand: a line out, a line in."""

    def __init__(self, running: Running) -> None:
        self.running = running

    def send(self, message: Any) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        self.running.stdin.flush()

    def receive(self) -> Any:
        assert self.running.stdout is not None
        return json.loads(self.running.stdout.readline())

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        self.send(request_body("tools/call", {"name": tool, "arguments": arguments}, number))

    def result(self) -> tuple[int, Any]:
        answer = self.receive()
        return answer["id"], answer["result"]["structuredContent"]


@pytest.fixture
def lines(process: BrokerProcess) -> Generator[Lines]:
    import subprocess

    tandem = Tandem(process.folder, process.home)
    with Running(
        [PROGRAM, "mcp", "--no-start"], cwd=process.folder, env=tandem.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        yield Lines(running)


def test_a_quick_call_overtakes_one_that_waits(lines: Lines) -> None:
    lines.call(1, "claim_next", reviewer_id="codex", wait=True, wait_seconds=30)
    lines.call(2, "broker_status")
    assert lines.result()[0] == 2
    lines.call(3, "create_review", **PROPOSAL)
    answers = dict([lines.result(), lines.result()])
    assert answers[1]["review_id"] == answers[3]["review_id"]


def test_a_call_that_is_called_off_is_not_answered(process: BrokerProcess, lines: Lines) -> None:
    lines.call(1, "claim_next", reviewer_id="codex", wait=True, wait_seconds=60)
    mcp = process.client()
    while mcp("broker_status")["waiting"] == 0:
        pass
    lines.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    while mcp("broker_status")["waiting"] == 1:
        pass
    lines.call(2, "broker_status")
    assert lines.result()[0] == 2


def test_a_wait_goes_on_over_a_restart_of_the_broker(process: BrokerProcess, lines: Lines) -> None:
    lines.call(1, "create_review", **PROPOSAL)
    review_id = lines.result()[1]["review_id"]
    lines.call(2, "get_review_status", review_id=review_id, wait=True, wait_seconds=60)
    mcp = process.client()
    while mcp("broker_status")["waiting"] == 0:
        pass
    mcp.close()
    process.stop(signal.SIGKILL)
    process.start(port=process.port)
    mcp = process.client()
    while mcp("broker_status")["waiting"] == 0:
        pass
    claim = mcp("claim_review", review_id=review_id, reviewer_id="codex")
    assert lines.result() == (2, {**mcp("get_review_status", review_id=review_id), "changed": True})
    assert claim["status"] == "claimed"


def test_what_is_not_json_is_answered_and_what_follows_is_too(lines: Lines) -> None:
    lines.send(b"this is no JSON")
    assert lines.receive()["error"]["code"] == -32700
    lines.send(b"[]")
    lines.send(b"\n")
    lines.call(7, "broker_status")
    answers = [lines.receive(), lines.receive()]
    assert {answer.get("id") for answer in answers} >= {7}


def test_without_a_broker_a_call_is_answered_with_an_error(repository: Path, own_home: Path) -> None:
    tandem = Tandem(repository, own_home)
    request = request_body("tools/call", {"name": "broker_status", "arguments": {}}, 5)
    said = tandem.run("mcp", "--no-start", "--patience", "0", stdin=request + b"\n")
    answer = json.loads(said.out)
    assert (answer["id"], answer["error"]["code"]) == (5, -32000)
    assert "no broker is running" in answer["error"]["message"]
    assert said.code == 0


def test_a_writing_call_has_a_key_by_which_it_is_done_once(process: BrokerProcess, own_home: Path) -> None:
    """A key of its own, or the one that the client gave. That it stays the same over retries: test_bridge.py."""
    calls = [
        ("create_review", dict(PROPOSAL)),
        ("create_review", {**PROPOSAL, "idempotency_key": "mine"}),
        ("list_reviews", {}),
    ]
    requests = [
        request_body("tools/call", {"name": name, "arguments": arguments}, number)
        for number, (name, arguments) in enumerate(calls)
    ]
    answers = Tandem(process.folder, own_home).run("mcp", stdin=b"".join(line + b"\n" for line in requests))
    assert [json.loads(line)["result"]["isError"] for line in answers.out.splitlines()] == [False] * 3
    with contextlib.closing(sqlite3.connect(f"file:{process.database}?mode=ro", uri=True)) as connection:
        keys = sorted(key for (key,) in connection.execute("SELECT key FROM idempotency_keys"))
    assert len(keys) == 2
    assert keys[1] == "mine"
    assert len(keys[0]) == 32
