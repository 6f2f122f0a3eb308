"""Events as they come, over a broker's restarts."""

import time
from collections.abc import Iterator

from gsd_review_broker.cli.broker.verdicts import slice_seconds
from gsd_review_broker.cli.context import Context
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json

_PAGE = 500
_PAUSE_SECONDS = 0.5
_MARGIN_SECONDS = 30.0


def last_event(context: Context) -> int:
    """The newest event's id: the audit is read forwards, so it is found by halving."""

    def has_later(event: int) -> bool:
        return bool(context.ask("get_audit_log", after=event, limit=1)["events"])

    if not has_later(0):
        return 0
    low, high = 0, 1
    while has_later(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if has_later(middle) else (low, middle)
    return high


def follow(context: Context, *, review_id: str | None, after: int, until: float | None) -> Iterator[list[Json] | None]:
    """What came since the last look, again and again: an empty list for nothing, None while nobody answers. Of one
    review, each look is a wait for news, and its end is the end."""
    version = 0
    is_closed = False
    while not is_closed and (until is None or time.monotonic() < until):
        try:
            left = slice_seconds() if until is None else max(0.0, until - time.monotonic())
            if review_id is not None:
                # Before the events are read, so that none is older than the version that is waited on next.
                version, is_closed = _wait(context, review_id, version, min(slice_seconds(), left))
            events = _since(context, review_id, after)
        except UnreachableError:
            context.forget_broker()
            yield None
            time.sleep(_PAUSE_SECONDS)
            continue
        after = events[-1]["id"] if events else after
        yield events
        if review_id is None and not events:
            time.sleep(min(_PAUSE_SECONDS, left))


def _since(context: Context, review_id: str | None, after: int) -> list[Json]:
    events: list[Json] = []
    cursor: int | None = after
    while cursor is not None:
        page = context.ask("get_audit_log", review_id=review_id, after=cursor, limit=_PAGE)
        events += page["events"]
        cursor = page["next_cursor"]
    return events


def _wait(context: Context, review_id: str, version: int, seconds: float) -> tuple[int, bool]:
    """The review's version, and whether nothing more will come."""
    status = context.ask(
        "get_review_status",
        review_id=review_id,
        wait=True,
        wait_seconds=round(seconds, 3),
        since=version,
        patience=seconds + _MARGIN_SECONDS,
    )
    return status["version"], status["status"] == "closed"
