"""Follows events over a broker's restarts: the event stream signals that something happened, the audit says what."""

import contextlib
import time
from collections.abc import Iterator

from gsd_review_broker.cli.context import Context
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.client.events import EventHint, EventHints, EventStreamEndedError

_PAGE = 500
# How often to check the terminal's size and to look for a missing broker; a running broker is not polled.
_LOOK_SECONDS = 0.5
_AGAIN_SECONDS = 0.1


def follow(
    context: Context, *, review_id: str | None, after: int | None, until: float | None
) -> Iterator[list[Json] | None]:
    """Yields the new events, again and again: an empty list for none, None while no broker answers.

    Without `after`, from now on. For one review, it stops when the review is closed.
    """
    follower = _Follower(context, review_id, after)
    while not follower.is_over and _left(until) > 0:
        try:
            yield from follower.events(until)
        except EventStreamEndedError:
            # The broker may be stopping: the next look shows it.
            context.forget_broker()
            time.sleep(_AGAIN_SECONDS)
        except UnreachableError:
            context.forget_broker()
            yield None
            time.sleep(_LOOK_SECONDS)


def _left(until: float | None) -> float:
    return _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - time.monotonic())


class _Follower:
    def __init__(self, context: Context, review_id: str | None, after: int | None) -> None:
        self._context = context
        self._review_id = review_id
        self._after = after
        self.is_over = False

    def events(self, until: float | None) -> Iterator[list[Json]]:
        """Until the stream ends, or everything was yielded."""
        if self._after is not None:
            yield self._since(self._after)
        if self._is_closed():
            self.is_over = True
            return
        url, token = self._context.broker.connection.url, self._context.token
        with contextlib.closing(EventHints(url, token=token, review_id=self._review_id, after=self._after)) as stream:
            while not self.is_over and (left := _left(until)) > 0:
                yield self._news(stream.next(left))

    def _news(self, hint: EventHint | None) -> list[Json]:
        if hint is None:
            return []
        if self._after is None:
            # The first event shows where the audit ends now.
            self._after = hint.last_id
        return self._since(self._after) if hint.last_id > self._after else []

    def _since(self, after: int) -> list[Json]:
        events: list[Json] = []
        cursor: int | None = after
        while cursor is not None:
            page = self._context.ask("get_audit_log", review_id=self._review_id, after=cursor, limit=_PAGE)
            events += page["events"]
            cursor = page["next_cursor"]
        if events:
            self._after = events[-1]["id"]
            self.is_over = self._review_id is not None and events[-1]["new_status"] == "closed"
        return events

    def _is_closed(self) -> bool:
        """By an event that lies before `after`."""
        if self._review_id is None or self.is_over:
            return self.is_over
        return self._context.ask("get_review_status", review_id=self._review_id)["status"] == "closed"
