"""Waiting for something that will happen.

No test asserts how many seconds something takes: on a busy machine everything takes longer. What has to be quick is
compared with something that would last longer than PATIENCE, with the log, or in turns with a control; times
themselves are measured by `make bench`.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# No test waits this long unless something is broken.
PATIENCE = 60.0


def until(look: Callable[[], T], seconds: float = PATIENCE) -> T:
    """What `look` returns, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)
    return seen
