"""The distribution of values, in constant space: sixteen buckets for each doubling, so a percentile is right to 3 %.

Values are whole and not negative (milliseconds, rounds). Adding two histograms gives the histogram of both.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

_EXACT = 32
_STEPS = 16
# Everything above two years in milliseconds falls into the last bucket.
_LARGEST = (1 << 36) - 1
BUCKETS = _EXACT + (_LARGEST.bit_length() - _EXACT.bit_length() + 1) * _STEPS


def within_bounds(value: int) -> int:
    return min(max(value, 0), _LARGEST)


def bucket_of(value: int) -> int:
    """Small values have a bucket each; a larger value is put by its five leading bits."""
    if value < _EXACT:
        return value
    shift = value.bit_length() - _EXACT.bit_length() + 1
    return _EXACT + (shift - 1) * _STEPS + (value >> shift) - _STEPS


def bounds_of(bucket: int) -> tuple[int, int]:
    """The values of a bucket: from the first bound up to, but not including, the second."""
    if bucket < _EXACT:
        return bucket, bucket + 1
    doubling, step = divmod(bucket - _EXACT, _STEPS)
    shift = doubling + 1
    return (_STEPS + step) << shift, (_STEPS + step + 1) << shift


@dataclass(slots=True)
class Histogram:
    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0
    # How many values each bucket holds.
    buckets: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, value: int) -> None:
        value = within_bounds(value)
        self.add_bucket(bucket_of(value), count=1, total=value, least=value, most=value)

    def add_bucket(self, bucket: int, *, count: int, total: int, least: int, most: int) -> None:
        """Add several values of one bucket at once."""
        if bucket < 0:
            raise IndexError(f"there is no bucket {bucket}")
        self.least = least if self.count == 0 else min(self.least, least)
        self.most = max(self.most, most)
        self.count += count
        self.total += total
        self.buckets[bucket] += count

    def average(self) -> float | None:
        return self.total / self.count if self.count else None

    def percentile(self, percent: int) -> float | None:
        """The value that this many percent of the values do not exceed."""
        return self.percentiles(percent)[0]

    def percentiles(self, *percents: int) -> list[float | None]:
        if not self.count:
            return [None] * len(percents)
        # All other buckets are empty.
        first, last = bucket_of(self.least), bucket_of(self.most)
        reached = list(accumulate(self.buckets[first : last + 1]))
        return [self._middle(first + bisect_left(reached, -(-self.count * percent // 100))) for percent in percents]

    def _middle(self, bucket: int) -> float:
        """It is off by half a bucket at most."""
        low, high = bounds_of(bucket)
        return min(max((low + high - 1) / 2, self.least), self.most)
