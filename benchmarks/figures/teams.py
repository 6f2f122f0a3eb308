"""Several brokers on one PostgreSQL: whole reviews a second with 1, 2 and 4, and how soon one wakes another's waiter.

Everything runs on this machine: brokers, clients and the server share its cores, so more brokers gain only where there
are cores for them. The last figure is what no number of brokers exceeds: commits a second of the one row that orders
them all."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.postgres import OwnServer, broker_on
from tests.support.processes import BrokerProcess, make_repository

from benchmarks.client import Connection, tool_request
from benchmarks.crowd import Script, drive
from benchmarks.figures.waits import arrivals, until_waiting
from benchmarks.measuring import Samples
from benchmarks.report import Figure
from benchmarks.stage import Stage, whole_cycle

_COUNTS = (1, 2, 4)
_CLIENTS = 16
_CALLS = 5
_WAKE_BAR = 4.0
_HEAD_CONNECTIONS = 8
_LOCK_HEAD = "SELECT sequence FROM audit_head WHERE id = 1 FOR UPDATE"
_MOVE_HEAD = "UPDATE audit_head SET hash = hash WHERE id = 1"


def teams(stage: Stage) -> list[Figure]:
    # A socket's path must be short.
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True))
        server = stack.enter_context(OwnServer(Path(name)))
        brokers = stack.enter_context(_brokers(server.url(), stage.folder))
        return [*_throughput(stage, brokers), _wake(stage, brokers), _head(stage, server.url())]


@contextlib.contextmanager
def _brokers(url: str, folder: Path) -> Iterator[list[BrokerProcess]]:
    repository = make_repository(folder / "shared")
    with contextlib.ExitStack() as stack:
        brokers: list[BrokerProcess] = []
        for number in range(max(_COUNTS)):
            home = folder / f"home-{number}"
            home.mkdir()
            brokers.append(stack.enter_context(broker_on(url, repository, home)))
        yield brokers


def _throughput(stage: Stage, brokers: list[BrokerProcess]) -> list[Figure]:
    """In turns, so that a disturbance of the machine affects all alike."""
    seconds, rates = (1.0 if stage.quick else 4.0), {count: list[float]() for count in _COUNTS}
    for turn in range(3 if stage.quick else 6):
        for count in _COUNTS:
            ports = [broker.port for broker in brokers[:count]]
            scripts = [_cycles(stage, ports[number % count], f"reviewer-{number}") for number in range(_CLIENTS)]
            rate = drive(ports, scripts, seconds=seconds).calls_a_second / _CALLS
            if turn:
                rates[count].append(rate)
    means = {count: sum(values) / len(values) for count, values in rates.items()}
    alone = means[1]
    return [
        Figure(
            name=f"teams: cycles with {count} broker{'s' if count > 1 else ''} ÷ with 1",
            value=mean / alone,
            told=f"{mean:.0f} cycles/s of 5 calls, {_CLIENTS} clients",
            details={"cycles_a_second": mean},
        )
        for count, mean in means.items()
    ]


def _cycles(stage: Stage, port: int, reviewer: str) -> Script:
    while True:
        yield from whole_cycle(port, stage.new_proposal(), reviewer)


def _wake(stage: Stage, brokers: list[BrokerProcess]) -> Figure:
    """verdict acknowledged on one broker → the proposer who waits on the other has the answer."""
    one, other = brokers[:2]
    lag, echo = Samples(), Samples()
    prepared = stage.echo_request()
    with contextlib.ExitStack() as stack:
        proposer, looking = (stack.enter_context(Connection(one.port)) for _ in range(2))
        reviewer, bare = stack.enter_context(Connection(other.port)), stack.enter_context(stage.echo_connection())
        for number in range(40 if stage.quick else 150):
            seconds = _one_wake(stage, (one.port, other.port), proposer, reviewer, looking)
            if number >= 10:
                lag.seconds.append(seconds)
            for _ in range(4):
                echo.time(lambda: bare.exchange(prepared))
    return Figure(
        name="teams: verdict on one → proposer on another ÷ echo",
        value=max(lag.p50, 0.0) / echo.p50,
        bar=_WAKE_BAR,
        told=f"{lag.p50 * 1000:+.3f} ms after the acknowledgement ÷ echo {echo.milliseconds:.3f} ms",
        details={"lag_ms": lag.milliseconds, "echo_ms": echo.milliseconds},
    )


def _one_wake(
    stage: Stage, ports: tuple[int, int], proposer: Connection, reviewer: Connection, looking: Connection
) -> float:
    review_id = reviewer.call("create_review", **stage.new_proposal())["review_id"]
    claimed = reviewer.call("claim_review", review_id=review_id, reviewer_id="reviewer-1")
    waiting = {"review_id": review_id, "wait": True, "since": claimed["version"]}
    proposer.send(tool_request(ports[0], "get_review_status", waiting))
    until_waiting(looking, 1)
    verdict = {
        "review_id": review_id,
        "verdict": "approved",
        "reviewer_id": "reviewer-1",
        "claim_generation": claimed["claim_generation"],
    }
    reviewer.send(tool_request(ports[1], "submit_verdict", verdict))
    arrived = arrivals([proposer, reviewer])
    return arrived[proposer.socket] - arrived[reviewer.socket]


def _head(stage: Stage, url: str) -> Figure:
    seconds = 1.0 if stage.quick else 4.0
    rate = asyncio.run(_commits_a_second(url, seconds))
    told = f"{_HEAD_CONNECTIONS} connections of bare asyncpg: lock the audit's head, write it, commit"
    return Figure(name="teams: the most that brokers can commit", value=rate, unit="commits/s", told=told)


async def _commits_a_second(url: str, seconds: float) -> float:
    import asyncpg  # noqa: PLC0415 - an extra

    deadline = time.perf_counter() + seconds

    async def commit_until_then(connection: Any) -> int:
        count = 0
        while time.perf_counter() < deadline:
            async with connection.transaction():
                await connection.fetch(_LOCK_HEAD)
                await connection.execute(_MOVE_HEAD)
            count += 1
        return count

    connections = [await asyncpg.connect(url) for _ in range(_HEAD_CONNECTIONS)]
    try:
        began = time.perf_counter()
        counts = await asyncio.gather(*(commit_until_then(connection) for connection in connections))
        return sum(counts) / (time.perf_counter() - began)
    finally:
        for connection in connections:
            await connection.close()
