"""Waiting for something that will happen, and limits on how long it may take, on machines that have other work too."""

import contextlib
import time
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
# No test waits this long unless something is broken. `within` says how quick a thing has to be.
PATIENCE = 60.0
_SAMPLE_SECONDS = 0.1


def until(look: Callable[[], T], seconds: float = PATIENCE) -> T:
    """What `look` returns, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)
    return seen


def slowness() -> float:
    """How much longer a computation takes now than on a free core: 1 if nothing else computes."""
    began, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < _SAMPLE_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - began) / _SAMPLE_SECONDS)


@contextlib.contextmanager
def within(seconds: float) -> Generator[None]:
    """The block takes less than this on a quiet machine; on a busy one, in proportion to the load of others."""
    before = slowness()
    began = time.perf_counter()
    yield
    took = time.perf_counter() - began
    busy = max(before, slowness())
    assert took < seconds * busy, f"took {took:.1f} s, while the machine was {busy:.1f} times as slow as when quiet"
