"""Waiting: how soon the answer arrives, what each waiter costs, and what it costs the model."""

import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from benchmarks.client import HANDSHAKE_ERA, MODERN, Connection, connect, result_of, tool_request
from benchmarks.measuring import Samples
from benchmarks.report import Figure
from benchmarks.stage import Stage

_WAITERS = 1_000
_WARMING_CALLS = 300
_SLICES = 24
_DEADLINE_SECONDS = 30
# Longer than the SDK's keep-alive interval of 15 s, so that it contains one round of pings.
_IDLE_SECONDS = 17


def wake(stage: Stage) -> list[Figure]:
    """verdict acknowledged → waiting proposer has the answer. Both sockets are watched by one thread."""
    lag, echo = Samples(), Samples()
    prepared = stage.echo_request()
    with stage.connection() as proposer, stage.connection() as reviewer, stage.echo_connection() as bare:
        for number in range(40 if stage.quick else 150):
            seconds = _one_wake(stage, proposer, reviewer)
            if number >= 10:
                lag.seconds.append(seconds)
            for _ in range(4):
                echo.time(lambda: bare.exchange(prepared))
    value = max(lag.p50, 0.0) / echo.p50
    made_of = f"{lag.p50 * 1000:+.3f} ms after the acknowledgement ÷ echo {echo.milliseconds:.3f} ms"
    details = {"lag_ms": lag.milliseconds, "echo_ms": echo.milliseconds}
    return [Figure(name="wake: verdict → proposer ÷ echo", value=value, bar=1.5, told=made_of, details=details)]


def _one_wake(stage: Stage, proposer: Connection, reviewer: Connection) -> float:
    review_id = reviewer.call("create_review", **stage.new_proposal())["review_id"]
    claimed = reviewer.call("claim_review", review_id=review_id, reviewer_id="reviewer-1")
    waiting = {"review_id": review_id, "wait": True, "since": claimed["version"]}
    proposer.send(tool_request(stage.port, "get_review_status", waiting))
    until_waiting(reviewer, 1)
    verdict = {
        "review_id": review_id,
        "verdict": "approved",
        "reviewer_id": "reviewer-1",
        "claim_generation": claimed["claim_generation"],
    }
    reviewer.send(tool_request(stage.port, "submit_verdict", verdict))
    arrived = arrivals([proposer, reviewer])
    return arrived[proposer.socket] - arrived[reviewer.socket]


def arrivals(connections: list[Connection]) -> dict[socket.socket, float]:
    """When each had its complete answer; those that are ready at the same look have arrived at the same time."""
    pending = {connection.socket: connection for connection in connections}
    arrived: dict[socket.socket, float] = {}
    while pending:
        ready, _, _ = select.select(list(pending), [], [], _DEADLINE_SECONDS)
        if not ready:
            raise TimeoutError("no answer to a wait")
        now = time.perf_counter()
        for one in ready:
            pending.pop(one).receive()
            arrived[one] = now
    return arrived


def until_waiting(connection: Connection, count: int) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while connection.call("broker_status")["waiting"] < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} waiters did not get there")


@dataclass(frozen=True, slots=True)
class _Cost:
    kibibytes_each: float
    processor_percent: float


def waiters(stage: Stage) -> list[Figure]:
    figures: list[Figure] = []
    for protocol, bar in ((MODERN, 64), (HANDSHAKE_ERA, 160)):
        cost = _thousand_waiting(stage, protocol)
        figures += [
            Figure(
                name=f"waiters: memory each, {protocol}",
                value=cost.kibibytes_each,
                bar=bar,
                unit="KiB",
                told=f"growth of the resident set ÷ {_WAITERS}",
            ),
            Figure(
                name=f"waiters: CPU with 1,000 idle, {protocol}",
                value=cost.processor_percent,
                bar=2,
                unit="%",
                told="of one core",
            ),
        ]
    return figures


def _thousand_waiting(stage: Stage, protocol: str) -> _Cost:
    _allow_files(4 * _WAITERS)
    stage.stop_broker()
    with stage.connection() as connection:
        _warm(stage, connection, protocol)
        process = psutil.Process(stage.broker_pid)
        before = process.memory_info().rss
        with _waiting(stage, protocol):
            until_waiting(connection, _WAITERS)
            used = _processor_seconds(process)
            began = time.monotonic()
            time.sleep(4 if stage.quick else _IDLE_SECONDS)
            percent = (_processor_seconds(process) - used) / (time.monotonic() - began) * 100
            growth = process.memory_info().rss - before
    stage.stop_broker()
    return _Cost(growth / _WAITERS / 1024, percent)


def _warm(stage: Stage, connection: Connection, protocol: str) -> None:
    """Anything that is made once, at a first call, is not a waiter's cost."""
    prepared = tool_request(stage.port, "get_review_status", {"review_id": stage.review_ids[0]})
    for _ in range(_WARMING_CALLS):
        connection.exchange(prepared)
    # The first wait imports the SDK.
    first = {"review_id": stage.review_ids[0], "wait": True, "wait_seconds": 1}
    connection.exchange(tool_request(stage.port, "get_review_status", first))
    if protocol != MODERN:
        early = tool_request(stage.port, "get_review_status", {"review_id": stage.review_ids[0]}, protocol=protocol)
        for _ in range(20):
            with Connection(stage.port) as other:
                other.send(early)
                other.socket.recv(1 << 16)


@contextmanager
def _waiting(stage: Stage, protocol: str) -> Iterator[None]:
    """Each waits for a review of its own, if there are enough."""
    sockets: list[socket.socket] = []
    try:
        for number in range(_WAITERS):
            review_id = stage.review_ids[number % len(stage.review_ids)]
            arguments = {"review_id": review_id, "wait": True, "wait_seconds": 120}
            one = connect(stage.port)
            one.sendall(tool_request(stage.port, "get_review_status", arguments, protocol=protocol))
            sockets.append(one)
        yield
    finally:
        for one in sockets:
            one.close()


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def slices(stage: Stage) -> list[Figure]:
    """Ten minutes are 24 slices of 25 s; one real slice, cut to a second, shows the answer of each."""
    arguments = {"review_id": stage.review_ids[0], "wait": True, "wait_seconds": 1}
    with stage.connection() as connection:
        answer = result_of(connection.exchange(tool_request(stage.port, "get_review_status", arguments)))
    text = sum(len(part["text"].encode()) for part in answer["content"])
    return [
        Figure(
            name="slices: ten minutes of waiting",
            value=text * _SLICES,
            bar=6_000,
            unit="bytes",
            told=f"{text} bytes in each of {_SLICES} slices: {answer['content'][0]['text']}",
        )
    ]
