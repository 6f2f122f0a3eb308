"""Opaque places in a list. A cursor belongs to the filters it was made with."""

import base64
import hashlib
import json
from typing import Any, cast

from gsd_review_broker.errors import BrokerError, Code


def _bound(filters: object) -> str:
    return hashlib.sha256(json.dumps(filters, sort_keys=True, default=str).encode()).hexdigest()[:12]


def make(filters: object, position: list[Any]) -> str:
    said = json.dumps([_bound(filters), position], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(said).decode().rstrip("=")


def read(cursor: str, filters: object) -> list[Any]:
    try:
        said = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        bound, position = json.loads(said)
    except (ValueError, TypeError, RecursionError) as error:
        raise _wrong("is not one that this broker made") from error
    if bound != _bound(filters):
        raise _wrong("belongs to a call with other arguments")
    if not isinstance(position, list) or not all(_is_plain(part) for part in cast("list[Any]", position)):
        raise _wrong("is not one that this broker made")
    return cast("list[Any]", position)


def _is_plain(part: Any) -> bool:
    """What a database can be asked for."""
    if isinstance(part, str):
        return part.isascii()
    return isinstance(part, int) and abs(part) < 2**63


def _wrong(why: str) -> BrokerError:
    return BrokerError(
        Code.INVALID_ARGUMENT,
        f"cursor: it {why}",
        "Pass next_cursor as it came, with the same arguments as before; or leave it out to begin anew.",
    )
