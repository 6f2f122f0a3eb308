"""Times as callers see them."""

from datetime import UTC, datetime
from functools import lru_cache

from gsd_review_broker.domain.model import Milliseconds


def iso(moment: Milliseconds) -> str:
    """ISO 8601 in UTC with milliseconds and Z."""
    seconds, milliseconds = divmod(moment, 1000)
    return f"{_second(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    """Events that happen together are shown together: most times of an answer share a few seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
