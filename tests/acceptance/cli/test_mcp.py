"""`tandem mcp`: the broker over standard input and output, with the official client and by hand."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from gsd_review_broker.files import locked
from gsd_review_broker.settings.locations import DATABASE_NAME, PROJECT_FOLDER
from gsd_review_broker.settings.state_files import Database
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


@contextlib.contextmanager
def bridge(tandem: Tandem, *arguments: str) -> Generator[Lines]:
    with Running(
        [PROGRAM, "mcp", *arguments], cwd=tandem.folder, env=tandem.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        yield Lines(running)


@pytest.fixture
def lines(process: BrokerProcess) -> Generator[Lines]:
    with bridge(Tandem(process.folder, process.home), "--no-start") as lines:
        yield lines


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


def test_nothing_is_claimed_for_a_client_that_was_killed(process: BrokerProcess, lines: Lines) -> None:
    lines.call(1, "claim_next", reviewer_id="codex", wait=True, wait_seconds=60)
    mcp = process.client()
    while mcp("broker_status")["waiting"] == 0:
        pass
    assert lines.running.stdin is not None
    lines.running.stdin.close()
    assert lines.running.wait(9) == 0
    while mcp("broker_status")["waiting"] == 1:
        pass
    review_id = mcp("create_review", **PROPOSAL)["review_id"]
    assert mcp("get_review_status", review_id=review_id)["status"] == "pending"


@contextlib.contextmanager
def no_start_goes_on(tandem: Tandem) -> Generator[None]:
    """Holds what everybody who starts a broker has to hold."""
    state = tandem.home / ".local" / "state"
    database = Database(tandem.folder / PROJECT_FOLDER / DATABASE_NAME)
    path = state / "gsd-review-broker" / "brokers" / f"{database.key}.lock"
    path.parent.mkdir(parents=True)
    with locked(path):
        yield


HELLO = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def first_questions(version: str) -> Generator[dict[str, Any]]:
    yield {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": version, **HELLO}}
    yield {"jsonrpc": "2.0", "method": "notifications/initialized"}
    yield {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    yield {"jsonrpc": "2.0", "id": 3, "method": "ping"}


def modern_questions() -> Generator[dict[str, Any]]:
    for number, method in enumerate(("server/discover", "tools/list"), 1):
        yield json.loads(request_body(method, {}, number))


QUESTIONS = [
    *(list(first_questions(version)) for version in ("2025-06-18", "2025-11-25", "1999-01-01")),
    list(modern_questions()),
]


def answers_to(lines: Lines, questions: list[dict[str, Any]]) -> list[Any]:
    answers = []
    for question in questions:
        lines.send(question)
        if "id" in question:
            answers.append(lines.receive())
    return answers


def test_what_a_client_asks_first_is_answered_before_the_broker_is_up_and_as_the_broker_does(tandem: Tandem) -> None:
    """The lock is held, so that no broker can come up. The answers are those of a running broker."""
    early = {}
    with contextlib.ExitStack() as stack:
        with no_start_goes_on(tandem):
            for role in ("", "reviewer"):
                lines = stack.enter_context(bridge(tandem, *(["--role", role] if role else [])))
                early[role] = [answers_to(lines, questions) for questions in QUESTIONS]
        lines.call(9, "list_reviews")
        assert lines.result()[1]["reviews"] == []
    for role, answers in early.items():
        with bridge(tandem, "--no-start", *(["--role", role] if role else [])) as lines:
            assert [answers_to(lines, questions) for questions in QUESTIONS] == answers


def test_a_broker_that_it_starts_is_not_among_its_descendants(tandem: Tandem) -> None:
    """opencode stops the whole tree below an MCP server that it started."""
    with bridge(tandem) as lines:
        lines.call(1, "broker_status")
        lines.result()
        broker = psutil.Process(tandem("status")["pid"])
        of_bridge = psutil.Process(lines.running.pid)
        assert broker.pid not in {child.pid for child in of_bridge.children(recursive=True)}
        assert of_bridge.pid not in {parent.pid for parent in broker.parents()}
        assert os.getsid(broker.pid) == broker.pid
    assert tandem("status")["pid"] == broker.pid


def test_down_is_not_undone_by_a_client_that_calls_again_and_up_serves_it_again(tandem: Tandem) -> None:
    wait = {"reviewer_id": "codex", "wait": True, "wait_seconds": 60}
    with bridge(tandem, "--patience", "30") as lines, bridge(tandem, "--patience", "0") as other:
        lines.call(1, "claim_next", **wait)
        other.call(1, "broker_status")
        other.result()
        while tandem("status")["waiting"] == 0:
            pass
        assert tandem("down")["ended"] is True
        assert lines.result()[1] == {"claimed": False}
        lines.call(2, "claim_next", **wait)
        other.call(2, "broker_status")
        assert "was stopped with `tandem down`" in other.receive()["error"]["message"]
        assert tandem.run("status").code == 3
        tandem("up")
        review_id = tandem("propose", "-m", "x", "--no-diff")["review_id"]
        assert lines.result()[1]["review_id"] == review_id
        tandem("down")
    with bridge(tandem) as later:
        later.call(1, "broker_status")
        assert later.result()[1]["serves"] == str(tandem.folder)
