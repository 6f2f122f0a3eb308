"""A write tool's p50 over a round trip and the bare commit of the same rows; a claim's with git's share too."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bare_git import BareValidation
from benchmarks.client import Connection, structured, tool_request
from benchmarks.measuring import Samples
from benchmarks.raw_sqlite import RawDatabase, Recorder, Statement, read_only
from benchmarks.report import Figure, ratio
from benchmarks.stage import PROPOSER, Stage

_BAR = 1.3
_FLOOR_BAR = 2.0
_REVIEWER = "reviewer-1"
_TOOLS = ("create_review", "claim_review", "submit_verdict", "close_review")
_DIFF = """\
diff --git a/hello.txt b/hello.txt
--- a/hello.txt
+++ b/hello.txt
@@ -1,3 +1,3 @@
 line 0
-line 1
+line one
 line 2
"""


@dataclass(slots=True)
class _Session:
    """A connection to the broker, one to the echo and a raw database, used in turns."""

    stage: Stage
    broker: Connection
    echo: Connection
    floor: Connection
    raw: RawDatabase
    recorder: Recorder
    samples: dict[str, Samples] = field(default_factory=dict[str, Samples])

    def time(self, name: str, action: Callable[[], Any]) -> Any:
        answers: list[Any] = []
        self.samples.setdefault(name, Samples()).time(lambda: answers.append(action()))
        return answers[0]

    def time_tool(self, tool: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One block: the tool for each, then the same number of echoes and of the same rows by plain SQL."""
        prepared = [tool_request(self.stage.port, tool, arguments) for arguments in calls]
        bodies = [self.time(tool, lambda one=one: self.broker.exchange(one)) for one in prepared]
        answers = [structured(body) for body in bodies]
        self.time_raw(tool, [self.recorder.step(answer["review_id"]) for answer in answers])
        return answers

    def time_raw(self, tool: str, steps: list[list[Statement]]) -> None:
        """A commit follows each call, as in a broker: in a loop of its own its caches would be warm."""
        prepared, bare = self.stage.echo_request(), self.stage.floor_request()
        for statements in steps:
            self.time("echo", lambda: self.echo.exchange(prepared))
            self.time("floor", lambda: self.floor.exchange(bare))
            self.time(f"raw {tool}", lambda statements=statements: self.raw.commit(statements))

    def p50(self, name: str) -> float:
        return self.samples[name].p50


@contextlib.contextmanager
def _session(stage: Stage):
    database = stage.broker.database
    raw = RawDatabase(database, stage.folder / f"raw-{len(list(stage.folder.iterdir()))}.sqlite3")
    source = read_only(database)
    try:
        with stage.connection() as broker, stage.echo_connection() as echo, stage.floor_connection() as floor:
            yield _Session(stage, broker, echo, floor, raw, Recorder(source))
    finally:
        source.close()
        raw.close()


def writes(stage: Stage) -> list[Figure]:
    with _session(stage) as session:
        for _ in range(2):
            _block(session, 10)
        session.samples.clear()
        for _ in range(4 if stage.quick else 15):
            _block(session, 20)
        return [figure for tool in _TOOLS for figure in _figures(session, tool)]


def _block(session: _Session, size: int) -> None:
    created = session.time_tool("create_review", [session.stage.new_proposal() for _ in range(size)])
    ids = [answer["review_id"] for answer in created]
    claimed = session.time_tool("claim_review", [_claim(review_id) for review_id in ids])
    session.time_tool("submit_verdict", [_verdict(answer) for answer in claimed])
    session.time_tool("close_review", [{"review_id": review_id, "proposer_id": PROPOSER} for review_id in ids])


def _claim(review_id: str) -> dict[str, Any]:
    return {"review_id": review_id, "reviewer_id": _REVIEWER}


def _verdict(claimed: dict[str, Any]) -> dict[str, Any]:
    return {
        "review_id": claimed["review_id"],
        "verdict": "approved",
        "reason": "Reads well, and the tests cover it.",
        "reviewer_id": _REVIEWER,
        "claim_generation": claimed["claim_generation"],
    }


def _figures(session: _Session, tool: str) -> list[Figure]:
    measured, raw = session.p50(tool), session.p50(f"raw {tool}")
    echo, floor = session.p50("echo"), session.p50("floor")
    commit = f"raw commit {raw * 1000:.3f}"
    return [
        ratio(f"writes: {tool}", measured, echo + raw, _BAR, f"echo {echo * 1000:.3f} + {commit}"),
        ratio(f"writes: {tool} ÷ floor", measured, floor + raw, _FLOOR_BAR, f"floor {floor * 1000:.3f} + {commit}"),
    ]


def claim_with_diff(stage: Stage) -> list[Figure]:
    with _session(stage) as session:
        _claim_block(session, 3)
        session.samples.clear()
        for _ in range(3 if stage.quick else 10):
            _claim_block(session, 8)
        echo, raw, git = (session.p50(name) for name in ("echo", "raw claim_review", "git"))
        of = f"echo {echo * 1000:.2f} + raw commit {raw * 1000:.2f} + git {git * 1000:.2f}"
        return [ratio("claim_with_diff", session.p50("claim_review"), echo + raw + git, _BAR, of)]


def _claim_block(session: _Session, size: int) -> None:
    proposals = [session.stage.new_proposal(diff=_DIFF) for _ in range(size)]
    created = session.time_tool("create_review", proposals)
    claimed = session.time_tool("claim_review", [_claim(answer["review_id"]) for answer in created])
    if not all(answer["digest"] for answer in claimed):
        raise ValueError("git did not take the benchmark's diff")
    for _ in range(size):
        validation = BareValidation(session.stage.broker.folder, _DIFF.encode())
        session.time("git", validation.run)
        validation.close()
