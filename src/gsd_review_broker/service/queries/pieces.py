"""Long pages are converted a piece at a time, so that a short call need not wait for a whole page."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# About 50 microseconds of work.
_ROWS = 16


async def in_pieces(convert: Callable[[T], R], rows: Sequence[T]) -> list[R]:
    """All rows converted, in their order. Other calls run between two pieces."""
    converted: list[R] = []
    for first in range(0, len(rows), _ROWS):
        if first:
            await asyncio.sleep(0)
        converted.extend(map(convert, rows[first : first + _ROWS]))
    return converted
