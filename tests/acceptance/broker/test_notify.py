"""The user's notification program: told of inbox entries and verdicts, and never in anybody's way."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gsd_review_broker.notify import Notifier
from gsd_review_broker.ports.world import EVENTS
from gsd_review_broker.settings import config
from tests.support.dashboard import hello, propose
from tests.support.local import LocalBroker
from tests.support.processes import BrokerProcess
from tests.support.waiting import PATIENCE

WRITES = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write(sys.stdin.read() + '\\n')"


def told(path: Path, count: int, deadline: float = PATIENCE) -> list[dict[str, Any]]:
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return [json.loads(line) for line in lines]
        time.sleep(0.02)
    raise AssertionError(f"the program was not run {count} times")


def test_verdicts_and_inbox_entries_reach_the_program_of_the_user_s_file(repository: Path, own_home: Path) -> None:
    heard = own_home / "heard"
    settings = own_home / "config" / "gsd-review-broker" / "config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        json.dumps({"max_rounds": 2, "notify_command": [sys.executable, "-c", WRITES, str(heard), "$(touch owned)"]})
    )
    with BrokerProcess(repository, home=own_home) as broker:
        agent = broker.client()
        review_id = propose(agent, diff=hello("deux"), intent="'; touch owned #")
        for number in range(2):
            claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
            agent(
                "submit_verdict", review_id=review_id, verdict="changes_requested", reason="no",
                claim_generation=claim["claim_generation"],
            )  # fmt: skip
            propose(agent, review_id=review_id, diff=hello(f"d{number}"))
        heard_of = told(heard, 3)
        verdicts = [one for one in heard_of if one["kind"] == "verdict"]
        assert [(one["verdict"], one["actor"], one["reason"]) for one in verdicts] == [
            ("changes_requested", "codex-r1", "no")
        ] * 2
        assert verdicts[0]["url"] == f"http://127.0.0.1:{broker.port}/r/{review_id}"
        entry = next(one for one in heard_of if one["kind"] == "inbox")
        assert (entry["need"], entry["review_id"]) == ("asked", review_id)
        assert entry["reason"].startswith("round 2 of at most 2")
    assert not (repository / "owned").exists()


def test_a_project_does_not_choose_what_runs(repository: Path, own_home: Path) -> None:
    (repository / ".planning").mkdir()
    (repository / ".planning" / "review-broker.json").write_text('{"notify_command": ["touch", "owned"]}')
    configuration = config.load(root=repository, flags={}, environment={})
    assert list(configuration.settings.notify_command) == []
    (problem,) = configuration.problems
    assert "notify_command: applies only in the user's file" in problem.message


@contextlib.asynccontextmanager
async def notifying(broker: LocalBroker, *command: str, **options: Any) -> AsyncGenerator[Notifier]:
    notifier = Notifier(
        broker.application.broker,
        broker.application.wakeups,
        command=command,
        person="human:ada",
        url="http://x",
        **options,
    )
    running = asyncio.create_task(notifier.run())
    await until(lambda: EVENTS in broker.application.wakeups._waiters)
    try:
        yield notifier
    finally:
        running.cancel()
        await notifier.close()


async def judged(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex-r1")
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=claim["claim_generation"])


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_notifier_is_not_counted_among_those_who_wait(broker: LocalBroker) -> None:
    async with notifying(broker, "true"):
        assert (await broker("broker_status"))["waiting"] == 0


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(
    broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; wait"
    async with notifying(broker, "sh", "-c", script, longest_run=0.5) as notifier:
        await judged(broker)
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        await until(lambda: not notifier._running)
    for pid in map(int, pids.read_text().split()):
        await until(lambda pid=pid: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("command", [("no-such-program-at-all",), ("false",), ("sh", "-c", "exec 0<&-; sleep 0")])
async def test_a_program_that_fails_holds_nothing_up(broker: LocalBroker, command: tuple[str, ...]) -> None:
    async with notifying(broker, *command) as notifier:
        await judged(broker)
        await judged(broker)
        await until(lambda: not notifier._waiting and not notifier._running)
    assert (await broker("get_review_stats"))["by_status"]["approved"] == 2


async def test_what_time_alone_brings_into_the_inbox_is_told_once(broker: LocalBroker, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    async with notifying(broker, sys.executable, "-c", WRITES, str(heard), look_every=0.05):
        await broker.create()
        broker.clock.pass_time(16 * 60)
        await until(lambda: heard.exists() and heard.read_text().strip())
        entry = json.loads(heard.read_text())
        assert (entry["kind"], entry["need"]) == ("inbox", "stuck")
        await judged(broker)
        await until(lambda: len(heard.read_text().splitlines()) == 2)
        assert json.loads(heard.read_text().splitlines()[1])["kind"] == "verdict"
