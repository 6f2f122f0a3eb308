"""What the running broker measures of itself. These are plain numbers, so that measuring costs almost nothing."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

# Seconds. A wait may take minutes; the last bucket has no bound.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 240.0)


@dataclass(slots=True)
class Timing:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class Meters:
    # By tool and outcome: "ok", or the error's code.
    tools: dict[tuple[str, str], Timing] = field(default_factory=lambda: defaultdict[tuple[str, str], Timing](Timing))
    commits: Timing = field(default_factory=Timing)
    # Commands that were committed; divided by the commits, how many shared one.
    commands: int = 0
    # Commands that are queued now.
    queued: int = 0
