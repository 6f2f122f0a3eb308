"""Reviewer programs that misbehave in every way we know: the broker goes on, and nothing is left of them (I8)."""

import asyncio
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.mcp import AsyncMcp
from tests.support.pool import QUICK, PoolBroker, alive, pool_broker, program, script
from tests.support.processes import BrokerProcess, make_repository
from tests.support.waiting import PATIENCE

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who left its group")
# I8: after the end of a reviewer, or of the broker, nothing runs any more within this.

SLEEP = "import time\nwhile True: time.sleep(60)\n"
HANGS = "print('ready', flush=True)\n" + SLEEP
IGNORES_TERM = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n" + SLEEP
FORKS = (
    """
import subprocess
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("ready", flush=True)
"""
    + SLEEP
)
DAEMONISES = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    os._exit(0)
os.wait()
print("ready", flush=True)
"""
HIDES = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
os.wait()
time.sleep(0.2)
print("ready", flush=True)
"""


async def until_gone(reviewer_id: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while alive("BROKER_REVIEWER_ID", reviewer_id):
            await asyncio.sleep(0.05)


async def ready(broker: PoolBroker, text: str = "ready") -> dict:
    """The reviewer that runs, when its program says so."""
    (reviewer,) = await broker.until_state("active")

    async def said() -> bool:
        return text in (await broker.pool.log(reviewer["id"]))["text"]

    await broker.until(said)
    return reviewer


@pytest.mark.parametrize("text", [HANGS, IGNORES_TERM, FORKS], ids=["hangs", "ignores TERM", "forks"])
async def test_a_reviewer_that_does_not_want_to_go_is_ended_with_all_its_processes(
    tmp_path: Path, own_home: Path, repository: Path, text: str
) -> None:
    command = script(tmp_path, text)
    async with pool_broker(tmp_path, own_home, repository, command, kill_grace_seconds=1) as broker:
        await broker.create()
        reviewer = await ready(broker)
        if text is FORKS:
            assert len(alive("BROKER_REVIEWER_ID", reviewer["id"])) == 4
        killed = await broker.call("kill_reviewer", reviewer_id=reviewer["id"], force=True)
        assert killed["state"] == "terminated"
        assert alive("BROKER_REVIEWER_ID", reviewer["id"]) == []


@LINUX
async def test_a_grandchild_that_daemonised_is_ended_when_its_reviewer_exits(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    command = script(tmp_path, DAEMONISES)
    async with pool_broker(tmp_path, own_home, repository, command, max_spawns_per_day=1) as broker:
        await broker.create()
        (reviewer,) = await broker.until_state("terminated")
        await until_gone(reviewer["id"])
        assert reviewer["exit_code"] == 0


@LINUX
async def test_a_daemon_that_cleared_its_environment_is_ended_with_the_broker(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    command = script(tmp_path, HIDES)
    async with pool_broker(tmp_path, own_home, repository, command, max_spawns_per_day=1) as broker:
        await broker.create()
        await broker.until_state("terminated")
        children = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
        hidden = [child for child in children if "time.sleep(600)" in " ".join(child.cmdline())]
        assert len(hidden) == 1, "it was adopted by the broker"
    assert not hidden[0].is_running() or hidden[0].status() == psutil.STATUS_ZOMBIE


async def test_the_end_of_the_broker_ends_reviewers_that_ignore_it(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, IGNORES_TERM)) as broker:
        await broker.create()
        reviewer = await ready(broker)
    assert alive("BROKER_REVIEWER_ID", reviewer["id"]) == []


async def test_a_reviewer_that_never_reads_its_prompt_hinders_nobody(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    template = own_home / "prompt.md"
    template.write_text("{reviewer_id}\n" + "x" * 1_000_000)
    command = script(tmp_path, "import client\nclient.judge(client.claim())\nprint('judged', flush=True)\n" + SLEEP)
    async with pool_broker(
        tmp_path, own_home, repository, command, prompt_template_path=str(template), kill_grace_seconds=1
    ) as broker:
        review_id = await broker.create()
        await broker.until_status(review_id, "approved")
        reviewer = await ready(broker, "judged")
        await broker.call("kill_reviewer", reviewer_id=reviewer["id"], force=True)
        assert alive("BROKER_REVIEWER_ID", reviewer["id"]) == []


async def test_the_prompt_arrives_whole_and_its_end_too(tmp_path: Path, own_home: Path, repository: Path) -> None:
    template = own_home / "prompt.md"
    template.write_text("for {reviewer_id} {unknown}\n" + "x" * 1_000_000)
    text = "said = sys.stdin.read()\nprint(len(said), said[:60].split('\\n')[0], 'ready', flush=True)\n" + SLEEP
    async with pool_broker(
        tmp_path, own_home, repository, script(tmp_path, text), prompt_template_path=str(template)
    ) as broker:
        await broker.create()
        reviewer = await ready(broker)
        first = f"for {reviewer['id']} {{unknown}}"
        log = (await broker.pool.log(reviewer["id"]))["text"]
        assert log == f"{len(first) + 1 + 1_000_000} {first} ready\n"


async def test_lines_of_any_length_and_any_bytes_are_read(tmp_path: Path, own_home: Path, repository: Path) -> None:
    text = (
        """
import client, json
out = sys.stdout.buffer
out.write(b"x" * 300_000 + b"\\n")
out.write(b"\\xff\\xfe\\x00 bytes \\x80\\n")
said = {"type": "item.started", "item": {"type": "agent_message", "text": "y" * 220_000}}
out.write(json.dumps(said).encode() + b"\\n")
out.write(b"no end of line")
out.flush()
client.judge(client.claim())
out.write(b"\\n" + json.dumps({"type": "usage", "input_tokens": 5, "output_tokens": 6}).encode() + b"\\nready\\n")
out.flush()
"""
        + SLEEP
    )
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text)) as broker:
        review_id = await broker.create()
        await broker.until_status(review_id, "approved")
        await ready(broker)
        (file,) = own_home.rglob("output.log")
        log = file.read_text()
        assert log.startswith("x" * (256 * 1024) + "\n")
        assert "\ufffd\ufffd\0 bytes \ufffd\n" in log
        assert "no end of line\n" in log

        async def booked() -> dict[str, Any] | None:
            """A line is in the log before what it tells is written to the database."""
            (row,) = await broker.listed()
            return row if row["input_tokens"] else None

        row = await broker.until(booked)
        assert (row["input_tokens"], row["output_tokens"]) == (5, 6)
        assert row["doing"] == "says: " + "y" * 113 + "…"


async def test_a_reviewer_that_exits_without_a_verdict_is_tried_three_times_and_then_a_person_is_asked(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    command = script(tmp_path, "import client\nclient.claim()\n")
    async with pool_broker(tmp_path, own_home, repository, command) as broker:
        review_id = await broker.create()

        async def asked() -> str | None:
            return (await broker.call("get_review_status", review_id=review_id))["needs_human"]

        reason = await broker.until(asked)
        assert reason.startswith("3 reviewers ended without a verdict, the last of them command-r1, exit code 0")
        await broker.until_state("terminated", 3)
        reclaimed = await broker.events("review_reclaimed")
        assert [event["metadata"]["old_claimant"] for event in reclaimed] == [
            event["metadata"]["reviewer_id"] for event in await broker.events("reviewer_spawned")
        ]
        assert all("exit code 0" in event["metadata"]["reason"] for event in reclaimed)
        pauses = [one["timestamp"] for one in await broker.events("reviewer_spawned")]
        assert pauses == sorted(pauses)
        # The pool leaves it alone; another reviewer, and another review, are not hindered.
        assert (await broker.pool.state())["pending"] == 0
        assert await broker.status(review_id) == "pending"
        claimed = await broker.call("claim_review", review_id=review_id, reviewer_id="by-hand")
        assert claimed["claimed_by"] == "by-hand"


async def test_a_crash_loop_spawns_three_and_not_thirty_seven(tmp_path: Path, own_home: Path, repository: Path) -> None:
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, "sys.exit(7)")) as broker:
        review_id = await broker.create()

        async def asked() -> str | None:
            return (await broker.call("get_review_status", review_id=review_id))["needs_human"]

        assert "exit code 7" in await broker.until(asked)
        await broker.until_state("terminated", 3)
        # Ten more looks of the pool change nothing.
        for _ in range(10):
            await broker.application.pool.look()
        assert len(await broker.events("reviewer_spawned")) == 3
        assert [one["exit_code"] for one in await broker.listed()] == [7, 7, 7]
        # A person who says something gives it another chance.
        claim = await broker.call("claim_review", review_id=review_id, reviewer_id="human:ada")
        await broker.call(
            "add_message", review_id=review_id, sender_role="reviewer", sender_id="human:ada", body="try again"
        )
        status = await broker.call("get_review_status", review_id=review_id)
        assert status["needs_human"] is None
        await broker.call("release_claim", review_id=review_id, claim_generation=claim["claim_generation"])
        await broker.until_state("terminated", 4)


async def test_a_program_that_is_not_there_is_a_problem_that_is_told(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    async with pool_broker(tmp_path, own_home, repository, ["no-such-program-anywhere"]) as broker:
        state = await broker.pool.state()
        assert "no-such-program-anywhere" in state["problem"]
        review_id = await broker.create()

        async def asked() -> str | None:
            return (await broker.call("get_review_status", review_id=review_id))["needs_human"]

        assert "was not found on the PATH" in await broker.until(asked)
        assert await broker.events("reviewer_spawned") == []


FLOOD = """
import client, time
megabytes = {megabytes}
claimed = client.claim()
piece = ({line!r} * 65536)[:65536].encode()
for _ in range(megabytes * 16):
    sys.stdout.buffer.write(piece)
sys.stdout.buffer.flush()
client.judge(claimed)
while True:
    print("ready", flush=True)
    time.sleep(0.1)
"""


class Latency:
    """Calls to a broker in turns with calls to another one, which has nothing else to do: what slows the whole machine
    down slows both."""

    def __init__(self, broker: PoolBroker, control: AsyncMcp) -> None:
        self._calls = (broker.call, control)
        self._seconds: tuple[list[float], list[float]] = ([], [])

    async def sample(self, calls: int) -> None:
        for _ in range(calls):
            for call, seconds in zip(self._calls, self._seconds, strict=True):
                began = time.perf_counter()
                await call("broker_status")
                seconds.append(time.perf_counter() - began)

    @property
    def ratio(self) -> float:
        ours, controls = self._seconds
        return statistics.median(ours) / statistics.median(controls)


async def _flood(record_property: Any, folder: Path, home: Path, root: Path, megabytes: int, line: str) -> float:
    """How many times slower the broker answers meanwhile."""
    command = script(folder, FLOOD.format(megabytes=megabytes, line=line))
    (folder / "control-home").mkdir()
    with BrokerProcess(make_repository(folder / "control"), home=folder / "control-home") as idle:
        return await _flooded(record_property, idle, (folder, home, root), command, megabytes)


async def _flooded(
    record_property: Any, idle: BrokerProcess, places: tuple[Path, Path, Path], command: list[str], megabytes: int
) -> float:
    home = places[1]
    async with pool_broker(*places, command, limits=replace(QUICK, max_pool_size=1)) as broker:
        control = AsyncMcp(broker.session, idle.port)
        await broker.pool.pause()
        review_id = await broker.create()
        before, during = Latency(broker, control), Latency(broker, control)
        await before.sample(300)
        await broker.pool.resume()
        while await broker.status(review_id) != "approved":
            await during.sample(20)
        slower = during.ratio / before.ratio
        (reviewer,) = [one for one in await broker.listed() if one["state"] == "active"]

        async def tells_what_is_missing() -> bool:
            # With the lines that it keeps next, which may come after the verdict.
            return "bytes were left out" in (await broker.pool.log(reviewer["id"], 200_000))["text"]

        await broker.until(tells_what_is_missing)
        size = sum(file.stat().st_size for file in home.rglob("output.log*"))
        report = f"flood of {megabytes} MB: latency {slower:.2f} times a quiet pool's, log of {size} bytes"
        record_property("flood", report)
        sys.stdout.write(f"\n{report}\n")
        assert size < 5_000_000
        memory = psutil.Process(os.getpid()).memory_info().rss
        assert memory < 1_000_000_000
        return slower


_LINES = {"tiny lines": "x\n", "long lines": "y" * 10_000 + "\n", "events": '{"type":"turn.started"}\n'}


# The longest lines every day; `make torture` takes all.
@pytest.mark.parametrize(
    "kind", ["long lines", *(pytest.param(kind, marks=pytest.mark.torture) for kind in ("tiny lines", "events"))]
)
async def test_a_flood_is_read_to_its_end_and_a_bounded_part_of_it_is_kept(
    record_property: Any, tmp_path: Path, own_home: Path, repository: Path, kind: str
) -> None:
    await _flood(record_property, tmp_path, own_home, repository, 12, _LINES[kind])


@pytest.mark.torture
@pytest.mark.parametrize("kind", _LINES)
async def test_a_flood_leaves_the_brokers_latency_as_it_was(
    record_property: Any, tmp_path: Path, own_home: Path, repository: Path, kind: str
) -> None:
    slower = await _flood(record_property, tmp_path, own_home, repository, 110, _LINES[kind])
    # The child itself keeps one of the machine's cores busy; the broker's own share is small.
    assert slower < 3


@pytest.mark.torture
async def test_a_flood_of_a_gigabyte(record_property: Any, tmp_path: Path, own_home: Path, repository: Path) -> None:
    await _flood(record_property, tmp_path, own_home, repository, 1024, "z" * 79 + "\n")


async def test_a_good_reviewer_beside_bad_ones_gets_its_work_done(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    async with pool_broker(tmp_path, own_home, repository, program("good")) as broker:
        reviews = [await broker.create() for _ in range(3)]
        for review_id in reviews:
            await broker.until_status(review_id, "approved")
