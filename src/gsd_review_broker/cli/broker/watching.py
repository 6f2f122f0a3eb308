"""Watches a running broker: waits for a verdict, follows events, opens a page. Each goes on over a broker's restart.

The event stream signals that something happened; the audit says what.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from gsd_review_broker.cli.context import Context, keepers_connection
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import PROPOSERS_TURN, REVIEWERS_TURN, Verdict, proposer_must_act

_PAGE = 500
# How often to check the terminal's size and to look for a missing broker; a running broker is not polled.
_LOOK_SECONDS = 0.5
_AGAIN_SECONDS = 0.1


def follow(
    context: Context, *, review_id: str | None, after: int | None, until: float | None
) -> Iterator[list[Json] | None]:
    """Yield the new events, again and again: an empty list for none, None while no broker answers.

    Without `after`, from now on. For one review, it stops when the review is closed.
    """
    # Most commands that wait need no event stream, and no threads.
    from gsd_review_broker.client.events import EventStreamEndedError

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
        from gsd_review_broker.client.events import EventHints

        if self._after is not None:
            yield self._since(self._after)
        if self._is_closed():
            self.is_over = True
            return
        url, token = self._context.broker.connection.url, self._context.token
        with contextlib.closing(EventHints(url, token=token, review_id=self._review_id, after=self._after)) as stream:
            while not self.is_over and (left := _left(until)) > 0:
                yield self._news(stream.next(left))

    def _news(self, last_id: int | None) -> list[Json]:
        if last_id is None:
            return []
        if self._after is None:
            # The first event shows where the audit ends now.
            self._after = last_id
        return self._since(self._after) if last_id > self._after else []

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
        """Was the review closed by an event before `after`?"""
        if self._review_id is None or self.is_over:
            return self.is_over
        return self._context.ask("get_review_status", review_id=self._review_id)["status"] == "closed"


SLICE_SECONDS = 20.0
_RETRY_SECONDS = 0.5
# The broker answers at the end of a slice; this covers what lies between.
_MARGIN_SECONDS = 30.0
DEFAULT_SECONDS = 600.0


def wait_for_verdict(
    context: Context, review_id: str, *, seconds: float, changed: Callable[[Json], None] = lambda _: None
) -> Json:
    """Return the review's status when its proposer must act, or unchanged when the time is over.

    `changed` is called at each step.
    """
    end = time.monotonic() + seconds

    def tell(status: Json) -> None:
        changed(status)
        # A reader of a pipe gets the earlier output before the wait is over.
        context.screen.write("")

    # The first look must find a broker; afterwards, a missing broker is waited for.
    status = context.call("get_review_status", review_id=review_id)
    tell(status)
    lost: UnreachableError | None = None
    with context.screen.progress(f"waiting for a verdict on {status['review_id']}"):
        while not is_decided(status) and (left := end - time.monotonic()) > 0:
            try:
                answer, lost = _next(context, status, left), None
            except UnreachableError as error:
                lost = error
                context.forget_broker()
                time.sleep(min(_RETRY_SECONDS, max(0.0, end - time.monotonic())))
                continue
            if answer["changed"]:
                status = answer
                tell(status)
    if lost is not None:
        raise lost
    # The first look has nothing to compare with, and reports a change.
    return status if is_decided(status) else {**status, "changed": False}


def _next(context: Context, status: Json, left: float) -> Json:
    return context.ask(
        "get_review_status",
        review_id=status["review_id"],
        wait=True,
        wait_seconds=round(min(left, slice_seconds()), 3),
        since=status["version"],
        patience=slice_seconds() + _MARGIN_SECONDS,
    )


def slice_seconds() -> float:
    """Well below the timeouts of proxies and clients; shorter slices cost the broker a look each."""
    return float(os.environ.get("TANDEM_WAIT_SLICE_SECONDS", SLICE_SECONDS))


def is_decided(status: Json) -> bool:
    return proposer_must_act(status["status"], status["counter_patch_status"])


def exit_of(review: Json) -> Exit:
    """Return the exit code of `wait` and `propose --wait`; an approval also applies after the review was closed.

    A state that only a newer broker knows is a failure; it is not waited for.
    """
    status = review["status"]
    if Verdict.APPROVED in {status, review["verdict"]}:
        return Exit.DONE
    if status in REVIEWERS_TURN:
        return Exit.PENDING
    return Exit.REFUSED if status in PROPOSERS_TURN else Exit.FAILED


def open_page(context: Context, path: str) -> int:
    """Print the address, and open it in a browser if there is one."""
    import webbrowser

    connection = keepers_connection(context) or context.broker.connection
    url = connection.url + connection.post("/api/sign-in", {"page": path})["path"]
    opened = webbrowser.open(url)
    if context.wants_json:
        context.screen.json({"url": url, "opened": opened})
    else:
        context.screen.say(url)
    return Exit.DONE
