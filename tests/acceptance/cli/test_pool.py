"""`tandem pool …` and `tandem stats` against a real broker with real reviewer programs."""

import signal
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.local import PROPOSAL
from tests.support.mcp import Mcp
from tests.support.pool import pool_of, script, user_file
from tests.support.processes import BrokerProcess, make_repository
from tests.support.tandem import Tandem
from tests.support.waiting import until

DASH = "\u2013"
# Lives until it is ended, and says something hostile.
IDLE = "import time\nprint('here \\x1b]52;c;x\\x07 I am', flush=True)\nwhile True:\n    time.sleep(60)\n"


@pytest.fixture
def pool(tmp_path: Path, own_home: Path) -> Generator[BrokerProcess]:
    user_file(own_home, **pool_of(script(tmp_path, IDLE), kill_grace_seconds=1, spawn_cooldown_seconds=1))
    with BrokerProcess(make_repository(tmp_path / "repository"), home=own_home) as running:
        yield running
        # Not killed: it ends the reviewers that it started.
        running.stop(signal.SIGTERM)


@pytest.fixture
def tandem(pool: BrokerProcess) -> Tandem:
    return Tandem(pool.folder, pool.home)


def test_reviewers_are_started_listed_read_and_ended(tandem: Tandem) -> None:
    started = tandem("pool", "spawn")
    assert set(started) == {"reviewer_id", "display_name", "pid"}
    reviewer = started["reviewer_id"]
    state = tandem("pool", "list")
    assert [(row["id"], row["state"], row["pid"]) for row in state["reviewers"]] == [
        (reviewer, "active", started["pid"])
    ]
    said = tandem.run("pool", "list")
    assert said.out.startswith(f"{reviewer}\tactive\t")
    assert "pool on; command, at most 3" in said.out
    log = until(lambda: tandem("pool", "logs", reviewer)["text"])
    assert "\x1b]52" in log
    shown = tandem.run("pool", "logs", reviewer).out
    assert "here \\x1b]52;c;x\\x07 I am" in shown
    assert "\x1b" not in shown
    assert tandem("pool", "kill", reviewer)["reviewer_id"] == reviewer
    until(lambda: tandem("pool", "list")["reviewers"][0]["state"] == "terminated")
    assert tandem.run("pool", "kill", "codex-r9-00000000").code == 7


def test_the_pool_is_paused_resumed_and_scaled(tandem: Tandem) -> None:
    assert tandem("pool", "pause")["paused"] is True
    assert "pool paused" in tandem.run("pool", "list").out
    assert tandem("pool", "resume")["paused"] is False
    assert tandem("pool", "scale", "2")["max_pool_size"] == 2
    assert tandem.run("pool", "scale", "99").code == 2
    drained = tandem("pool", "spawn")["reviewer_id"]
    assert tandem("pool", "drain", drained)["state"] in {"draining", "terminated"}


def test_a_pool_that_is_off_says_how_to_switch_it_on(process: BrokerProcess) -> None:
    tandem = Tandem(process.folder, process.home)
    assert "tandem pool enable" in tandem.run("pool", "list").out
    said = tandem.run("pool", "spawn")
    assert said.code == 3
    assert "tandem pool enable" in said.err


# Statistics.


def test_stats_show_what_there_is_and_a_dash_for_what_there_is_not(process: BrokerProcess) -> None:
    tandem, mcp = Tandem(process.folder, process.home), process.client()
    empty = rows(tandem)
    assert (empty["all"], empty["approval rate"]) == (["0"], [DASH])
    assert empty["time to verdict"] == [DASH, DASH, DASH]
    judge(mcp, "approved")
    judge(mcp, "changes_requested")
    mcp("create_review", **PROPOSAL, project="other", category="plan_review")
    full = rows(tandem)
    assert (full["all"], full["pending"], full["plan_review"]) == (["3"], ["1"], ["1"])
    assert full["time to verdict"][0].endswith(" s")
    assert tandem("stats") == mcp("get_review_stats")
    assert tandem("stats", "--project", "other")["total_reviews"] == 1


def rows(tandem: Tandem) -> dict[str, list[str]]:
    said = tandem.run("stats")
    assert said.code == 0
    found: dict[str, list[str]] = {}
    for line in filter(None, said.out.splitlines()):
        name, *values = line.split("\t")
        found.setdefault(name, values)
    return found


def judge(mcp: Mcp, verdict: str) -> None:
    review_id = mcp("create_review", **PROPOSAL)["review_id"]
    mcp("claim_review", review_id=review_id, reviewer_id="codex")
    mcp("submit_verdict", review_id=review_id, verdict=verdict, reason="so", reviewer_id="codex")


def test_status_doctor_and_dashboard_say_what_keeps_the_pool_from_working(tmp_path: Path, own_home: Path) -> None:
    user_file(own_home, enabled=True, agent="codex")
    with BrokerProcess(make_repository(tmp_path / "repository"), home=own_home) as running:
        tandem = Tandem(running.folder, running.home)
        for environment in ({}, {"CODEX_API_KEY": "mine", "HTTPS_PROXY": "http://127.0.0.1:9"}):
            checks = {check["name"]: check for check in tandem("doctor", **environment)["checks"]}
            assert checks["pool login"]["state"] == "yellow"
            assert "codex login" in checks["pool login"]["hint"]
            assert ("pool environment" in checks) is bool(environment)
        assert checks["pool environment"]["found"].startswith("CODEX_API_KEY, HTTPS_PROXY: set here, ")
        assert "tandem down; tandem up" in checks["pool environment"]["hint"]
        assert "codex login" in _page(running, "/pool")
        assert "settings" not in checks
        assert tandem("status")["problems"] == []
        tandem("pool", "disable", "--scope", "user")
        [problem] = tandem("status")["problems"]
        assert (problem["feature"], "tandem down; tandem up" in problem["fix"]) == ("settings", True)
        assert "tandem down; tandem up" in tandem.run("doctor").out
        assert "tandem down; tandem up" in _page(running, "/")


def _page(running: BrokerProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{running.port}{path}") as answer:
        return answer.read().decode()
