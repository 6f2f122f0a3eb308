"""Cuts a child's bytes into lines, whatever it writes: lines of any length, any bytes, any amount."""

import time
from collections.abc import Callable

# How much of one line is kept. The agents' events are far shorter, except those with a tool's output.
LONGEST_LINE = 256 * 1024


class Lines:
    """Cuts a stream into lines and keeps at most the beginning of each."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._begun = bytearray()
        # In the rest of a line whose beginning was already returned or skipped.
        self._dropping = False
        self.left_out = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        first, *whole = chunk.split(b"\n")
        if not whole:
            self._append(first)
            return []
        last = whole.pop()
        lines = self._ended(first)
        if len(chunk) <= self._longest:
            # There may be very many, and each is short enough.
            lines += whole
        else:
            for line in whole:
                lines += self._ended(line)
        self._append(last)
        return lines

    def skip(self, chunk: bytes) -> None:
        """Bytes that nobody reads. The start of the next line is still found."""
        self.left_out += len(chunk) + len(self._begun)
        self._begun.clear()
        self._dropping = not chunk.endswith(b"\n")

    def rest(self) -> list[bytes]:
        """At the end of the stream: a last line without a line feed."""
        return self._ended(b"") if self._begun else []

    def _append(self, piece: bytes) -> None:
        if self._dropping:
            self.left_out += len(piece)
            return
        room = self._longest - len(self._begun)
        self._begun += piece[:room]
        self.left_out += max(0, len(piece) - room)

    def _ended(self, piece: bytes) -> list[bytes]:
        self._append(piece)
        if self._dropping:
            self._dropping = False
            return []
        line = bytes(self._begun)
        self._begun.clear()
        return [line]


class Allowance:
    """A number of bytes a second, with a reserve of some seconds for a quiet writer."""

    def __init__(self, *, per_second: int, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._clock = clock
        self._left = float(at_once)
        self._then = clock()

    def take(self, amount: int) -> bool:
        self._fill()
        if self._left < amount:
            return False
        self._left -= amount
        return True

    def owe(self, amount: int) -> float:
        """Take the bytes in any case. Returns how many seconds to pause until they are covered."""
        self._fill()
        self._left -= amount
        return max(0.0, -self._left / self._per_second)

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._then) * self._per_second)
        self._then = now
