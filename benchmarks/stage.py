"""The stage for the figures: a repository, a real broker with 1,000 reviews, and the echo beside it."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.processes import BrokerProcess, make_repository

from benchmarks.client import MODERN, Connection, structured, tool_request
from benchmarks.crowd import Script, drive

REVIEWS = 1_000
PROPOSER = "proposer-1"
# This many went all the way, so that audit and timeline have content.
_WHOLE_CYCLES = 100
_CLIENTS = 8
_PROJECT_ROOT = Path(__file__).parent.parent
SMALL_ECHO = {"text": "hello"}
PAGES = ("list_reviews", "get_audit_log", "get_review_timeline")


def proposal(number: int) -> dict[str, Any]:
    return {
        "intent": f"Change number {number}: make the parser read what it reads today, and faster",
        "description": "The parser looks at each line twice. " * 5,
        "agent_type": "claude",
        "agent_role": "proposer",
        "proposer_id": PROPOSER,
        "phase": str(number % 20),
        "plan": f"{number % 20}-01",
        "task": str(number),
        "category": "code_change",
        "project": "benchmark",
    }


@dataclass(slots=True)
class Stage:
    folder: Path
    quick: bool
    broker: BrokerProcess
    echo_port: int = 0
    floor_port: int = 0
    review_ids: list[str] = field(default_factory=list[str])
    told_review: str = ""
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(REVIEWS, 10_000_000)))
    _started: bool = False

    def connection(self) -> Connection:
        return Connection(self.port)

    def echo_connection(self) -> Connection:
        return Connection(self.echo_port)

    def floor_connection(self) -> Connection:
        return Connection(self.floor_port)

    @property
    def port(self) -> int:
        """The port of the running broker; starts it if it was stopped."""
        if not self._started:
            self.broker.start()
            self._started = True
        return self.broker.port

    @property
    def broker_pid(self) -> int:
        assert self.broker.process is not None
        return self.broker.process.pid

    def stop_broker(self) -> None:
        if self._started:
            self.broker.stop()
            self._started = False

    def new_proposal(self, **more: Any) -> dict[str, Any]:
        return proposal(next(self._numbers)) | more

    def echo_request(self, payload: str | None = None, protocol: str = MODERN) -> bytes:
        arguments = {"payload": payload} if payload else SMALL_ECHO
        return tool_request(self.echo_port, "echo", arguments, protocol=protocol)

    def floor_request(self, protocol: str = MODERN) -> bytes:
        return tool_request(self.floor_port, "echo", SMALL_ECHO, protocol=protocol)


@contextlib.contextmanager
def set_up(*, quick: bool) -> Iterator[Stage]:
    # As people start it: a fork of the tests' server would share its memory and its imports.
    os.environ["TANDEM_TEST_EXEC"] = "1"
    with tempfile.TemporaryDirectory(prefix="tandem-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        lines = "".join(f"line {number}\n" for number in range(40))
        repository = make_repository(
            folder / "repository", {f"src/module_{n}.py": lines for n in range(50)} | {"hello.txt": lines}
        )
        with BrokerProcess(repository, home=home) as broker:
            stage = Stage(folder=folder, quick=quick, broker=broker, _started=True)
            _seed(stage)
            with _echo_server(stage), _yardstick("benchmarks.floor_server") as floor_port:
                stage.floor_port = floor_port
                yield stage


def whole_cycle(
    port: int, what: dict[str, Any], reviewer: str, review_ids: list[str] | None = None, *, protocol: str = MODERN
) -> Script:
    """Create, claim, read, judge, close: five calls."""

    def call(tool: str, **arguments: Any) -> bytes:
        return tool_request(port, tool, arguments, protocol=protocol)

    review_id = structured((yield call("create_review", **what)))["review_id"]
    claimed = structured((yield call("claim_review", review_id=review_id, reviewer_id=reviewer)))
    yield call("get_proposal", review_id=review_id)
    verdict = {
        "review_id": review_id,
        "verdict": "approved",
        "reason": "Reads well, and the tests cover it.",
        "reviewer_id": reviewer,
        "claim_generation": claimed["claim_generation"],
    }
    structured((yield call("submit_verdict", **verdict)))
    structured((yield call("close_review", review_id=review_id, proposer_id=PROPOSER)))
    if review_ids is not None:
        review_ids.append(review_id)


def _seed(stage: Stage) -> None:
    numbers = iter(range(REVIEWS))
    closed: list[str] = []

    def propose() -> Script:
        for number in numbers:
            if number < _WHOLE_CYCLES:
                yield from whole_cycle(stage.port, proposal(number), "reviewer-1", closed)
            else:
                answer = yield tool_request(stage.port, "create_review", proposal(number))
                stage.review_ids.append(structured(answer)["review_id"])

    drive(stage.port, [propose() for _ in range(_CLIENTS)])
    stage.told_review = closed[0]


@contextlib.contextmanager
def _echo_server(stage: Stage) -> Iterator[None]:
    with stage.connection() as connection:
        payloads = {
            "list_reviews": connection.call("list_reviews"),
            "get_audit_log": connection.call("get_audit_log"),
            "get_review_timeline": connection.call("get_review_timeline", review_id=stage.told_review),
        }
    path = stage.folder / "payloads.json"
    path.write_text(json.dumps(payloads), "utf-8")
    with _yardstick("benchmarks.echo_server", str(path)) as port:
        stage.echo_port = port
        yield


@contextlib.contextmanager
def _yardstick(module: str, *arguments: str) -> Iterator[int]:
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, cwd=_PROJECT_ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(timeout=10)
