"""How values are spread, in constant space: sixteen buckets for each doubling, so a percentile is right to 3 %.

Values are whole and not negative (milliseconds, rounds). Two histograms add up to that of both.
"""

import struct
from dataclasses import dataclass, field

_EXACT = 32
_STEPS = 16
# Longer than two years of milliseconds is the last bucket's.
_LARGEST = (1 << 36) - 1
_BUCKETS = _EXACT + (_LARGEST.bit_length() - _EXACT.bit_length() + 1) * _STEPS
_COUNT = struct.Struct("<I")
_ALL = struct.Struct(f"<{_BUCKETS}I")


def _bucket_of(value: int) -> int:
    """Small values have a bucket each; a larger one is told by its five leading bits."""
    if value < _EXACT:
        return value
    shift = value.bit_length() - _EXACT.bit_length() + 1
    return _EXACT + (shift - 1) * _STEPS + (value >> shift) - _STEPS


def _bounds_of(bucket: int) -> tuple[int, int]:
    """The values of a bucket: from, and up to but without."""
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
    buckets: bytearray = field(default_factory=lambda: bytearray(_ALL.size))

    def add(self, value: int) -> None:
        value = min(max(value, 0), _LARGEST)
        self.least = value if self.count == 0 else min(self.least, value)
        self.most = max(self.most, value)
        self.count += 1
        self.total += value
        place = _bucket_of(value) * _COUNT.size
        _COUNT.pack_into(self.buckets, place, _COUNT.unpack_from(self.buckets, place)[0] + 1)

    def average(self) -> float | None:
        return self.total / self.count if self.count else None

    def percentile(self, percent: int) -> float | None:
        """The value that so many in a hundred do not exceed."""
        if not self.count:
            return None
        rank = -(-self.count * percent // 100)
        seen = 0
        for bucket, here in enumerate(_ALL.unpack(self.buckets)):
            if seen + here >= rank:
                low, high = _bounds_of(bucket)
                # The bucket's middle: half a bucket off at most, wherever in it the values are.
                return min(max((low + high - 1) / 2, self.least), self.most)
            seen += here
        return float(self.most)
