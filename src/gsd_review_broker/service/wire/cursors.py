"""Opaque positions in a list. A cursor belongs to the query that it was made for.

A query is a dataclass, and a cursor is bound to all of its fields, including fields that are added later.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any, cast

from gsd_review_broker.domain.model import values_of
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep


def _bound(query: Any) -> str:
    """The class name distinguishes two tools whose queries have equal values."""
    whole = [type(query).__name__, values_of(query)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]


def make(query: Any, position: Sequence[Any]) -> str:
    text = json.dumps([_bound(query), position], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def read(cursor: str, query: Any) -> list[Any]:
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
