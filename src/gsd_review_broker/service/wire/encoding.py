"""Values on the wire: moments as ISO 8601, texts cut short, places in a list as cursors.

A cursor belongs to the query that it was made for. A query is a dataclass, and a cursor is bound to all of its fields,
including fields that are added later.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

from gsd_review_broker.domain.model import Milliseconds, values_of
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep


def iso(moment: Milliseconds) -> str:
    """ISO 8601 in UTC with milliseconds and Z."""
    seconds, milliseconds = divmod(moment, 1000)
    return f"{_second(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    """Events that happen together are shown together: most times of an answer share a few seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def moment(value: Milliseconds | None) -> str | None:
    return iso(value) if value is not None else None


def shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def make_cursor(query: Any, position: Sequence[Any]) -> str:
    text = json.dumps([_bound(query), position], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def read_cursor(cursor: str, query: Any) -> list[Any]:
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        bound, position = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise _wrong("is not one that this broker made") from error
    if bound != _bound(query):
        raise _wrong("belongs to a call with other arguments")
    if not isinstance(position, list) or not all(_is_plain(part) for part in cast("list[Any]", position)):
        raise _wrong("is not one that this broker made")
    return cast("list[Any]", position)


def _bound(query: Any) -> str:
    """Hash the query. The class name distinguishes two tools whose queries have equal values."""
    whole = [type(query).__name__, values_of(query)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]


def _is_plain(part: Any) -> bool:
    """Can a database be asked for it?"""
    if isinstance(part, str):
        return part.isascii()
    return isinstance(part, int) and abs(part) < 2**63


def _wrong(why: str) -> BrokerError:
    return BrokerError(
        Code.INVALID_ARGUMENT,
        f"cursor: it {why}",
        NextStep(Next.REPEAT_CURSOR),
    )
