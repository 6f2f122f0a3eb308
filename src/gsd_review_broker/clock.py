"""The wall clock for timestamps, and a steady one to notice when the wall clock was moved."""

import time

from gsd_review_broker.domain.model import Milliseconds


class SystemClock:
    def now(self) -> Milliseconds:
        return Milliseconds(time.time_ns() // 1_000_000)

    def steady(self) -> Milliseconds:
        """Monotonic time. It stands still while the machine sleeps, and so do the reviewers."""
        return Milliseconds(time.monotonic_ns() // 1_000_000)
