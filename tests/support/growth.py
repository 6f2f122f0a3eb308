"""Work in proportion to size: compared with a plain loop over the same bytes, in the same thread's processor time.

A loop that looks at each byte once is linear, whatever the machine does meanwhile. What is linear too takes a small
multiple of it; what is quadratic takes thousands of times as long for a megabyte.
"""

import gc
import time
from collections.abc import Callable

# The dearest of today's takes 180 times the loop; the quickest quadratic search over a megabyte takes 3,500 times.
LIMIT = 1_000
_ROUNDS = 3


def times_a_loop(work: Callable[[bytes], object], content: bytes) -> float:
    """How many times as long the work takes as a loop over the content. The best of some rounds each, in turns."""
    best = [1e9, 1e9]
    gc.collect()
    for _ in range(_ROUNDS):
        for index, run in enumerate((_loop, work)):
            began = time.thread_time()
            run(content)
            best[index] = min(best[index], time.thread_time() - began)
        if best[1] < LIMIT * best[0]:
            break
    return best[1] / best[0]


def _loop(content: bytes) -> None:
    for _ in content:
        pass
