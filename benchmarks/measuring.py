"""Timing in blocks that take turns, so that a disturbance of the machine affects all of them equally."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FSYNCS = 200
_BLOCK_BYTES = 4096


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@dataclass(slots=True)
class Samples:
    """Seconds, of one thing."""

    seconds: list[float] = field(default_factory=list[float])

    def time(self, action: Callable[[], object]) -> None:
        self.seconds.append(timed(action))

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def milliseconds(self) -> float:
        return round(self.p50 * 1000, 4)


def in_turns(actions: Mapping[str, Callable[[], object]], *, rounds: int, block: int) -> dict[str, Samples]:
    """Each action `rounds` times `block` times, a block of each in turn, after one block of warming up."""
    for action in actions.values():
        for _ in range(block):
            action()
    samples = {name: Samples() for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            for _ in range(block):
                samples[name].time(action)
    return samples


def fsync_seconds(folder: Path) -> float:
    """p50 of making 4 KiB durable in an existing file, as a WAL mostly is."""
    path = folder / "fsync-probe"
    samples = Samples()
    with path.open("wb", buffering=0) as file:
        file.write(bytes(_BLOCK_BYTES * _FSYNCS))
        os.fsync(file.fileno())
        for number in range(_FSYNCS):
            os.pwrite(file.fileno(), b"x" * _BLOCK_BYTES, number * _BLOCK_BYTES)
            samples.time(lambda: os.fsync(file.fileno()))
    path.unlink()
    return samples.p50
