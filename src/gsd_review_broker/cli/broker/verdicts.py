"""Waits for a verdict: in slices, over a broker's restart, without output until there is one."""

import os
import time
from collections.abc import Callable

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import PROPOSERS_TURN, REVIEWERS_TURN, Verdict, proposer_must_act

SLICE_SECONDS = 20.0
_RETRY_SECONDS = 0.5
# The broker answers at the end of a slice; this covers what lies between.
_MARGIN_SECONDS = 30.0
DEFAULT_SECONDS = 600.0


def wait_for_verdict(
    context: Context, review_id: str, *, seconds: float, changed: Callable[[Json], None] = lambda _: None
) -> Json:
    """The review's status when its proposer must act, or when the time is over; then it says that nothing changed.

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
