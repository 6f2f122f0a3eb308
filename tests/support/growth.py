"""How the work grows with the size of what is worked on: processor time of this thread, which others cannot take."""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# What is linear takes 16 times as long for 16 times as much, and what is quadratic 256 times: a limit half-way between
# (by factors) leaves room for a machine that is four times as slow at one moment as at another.
FACTOR = 16
LIMIT = 64
_ROUNDS = 3
_LEAST_SECONDS = 1e-3


def growth(work: Callable[[T], object], small: T, large: T) -> float:
    """How many times as long `large` takes as `small`. The best of some rounds each, in turns."""
    best = [1e9, 1e9]
    gc.collect()
    for _ in range(_ROUNDS):
        for index, given in enumerate((small, large)):
            began = time.thread_time()
            work(given)
            best[index] = min(best[index], time.thread_time() - began)
    return best[1] / max(best[0], _LEAST_SECONDS)
