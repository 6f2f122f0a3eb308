"""Whole reviews a second with eight clients, over bare calls a second."""

from collections.abc import Sequence
from statistics import mean

from benchmarks.client import HANDSHAKE_ERA, MODERN
from benchmarks.crowd import Script, drive
from benchmarks.measuring import fsync_seconds
from benchmarks.report import Figure
from benchmarks.stage import Stage, whole_cycle

# Set by the echo of 2025-06-18. The SDK answers 2026-07-28 in less than half the time: that echo only informs.
_BAR = 2.2
_CLIENTS = 8
_CALLS = 5
_FSYNC_BAR_MILLISECONDS = 0.5


def cycles(stage: Stage) -> list[Figure]:
    return [
        figure
        for era, echoes in ((MODERN, (HANDSHAKE_ERA, MODERN)), (HANDSHAKE_ERA, (HANDSHAKE_ERA,)))
        for figure in _cycles_in(stage, era, echoes)
    ]


def _cycles_in(stage: Stage, era: str, echo_eras: Sequence[str]) -> list[Figure]:
    seconds = 0.7 if stage.quick else 1.5
    echoes: dict[str, list[float]] = {echo_era: [] for echo_era in echo_eras}
    broker: list[float] = []
    fsyncs: list[float] = []
    drive(stage.port, [_cycles(stage, number, era) for number in range(_CLIENTS)], seconds=0.5)
    for _ in range(3 if stage.quick else 6):
        fsyncs.append(fsync_seconds(stage.folder))
        for echo_era, calls in echoes.items():
            scripts = [_echoes(stage, echo_era) for _ in range(_CLIENTS)]
            calls.append(_calls_a_second(stage.echo_port, scripts, seconds))
        scripts = [_cycles(stage, number, era) for number in range(_CLIENTS)]
        broker.append(_calls_a_second(stage.port, scripts, seconds))
    fsync = sorted(fsyncs)[len(fsyncs) // 2] * 1000
    return [_figure(era, echo_era, mean(broker), mean(calls), fsync) for echo_era, calls in echoes.items()]


def _figure(era: str, echo_era: str, broker_calls: float, echo_calls: float, fsync: float) -> Figure:
    holds = "" if fsync < _FSYNC_BAR_MILLISECONDS else "; the bar holds below 0.5 ms"
    made_of = f"{broker_calls / _CALLS:.0f} cycles/s of 5 calls ÷ {echo_calls:.0f} calls/s"
    return Figure(
        name=f"cycles: 8 clients, {era} ÷ echo of {echo_era}",
        value=broker_calls / echo_calls,
        bar=_BAR if echo_era == HANDSHAKE_ERA else None,
        kind="at least",
        told=f"{made_of}; fsync {fsync:.3f} ms{holds}",
        details={"cycles_a_second": broker_calls / _CALLS, "echo_a_second": echo_calls, "fsync_ms": fsync},
    )


def _calls_a_second(port: int, scripts: list[Script], seconds: float) -> float:
    return drive(port, scripts, seconds=seconds).calls_a_second


def _echoes(stage: Stage, era: str) -> Script:
    prepared = stage.echo_request(protocol=era)
    while True:
        yield prepared


def _cycles(stage: Stage, number: int, era: str) -> Script:
    while True:
        yield from whole_cycle(stage.port, stage.new_proposal(), f"reviewer-{number}", protocol=era)
