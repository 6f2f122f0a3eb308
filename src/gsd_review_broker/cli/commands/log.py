"""`tandem log`, and `tandem watch`: a review's story, and everything as it happens."""

import argparse
import json
import time

from gsd_review_broker.cli.broker.watching import follow
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options
from gsd_review_broker.cli.render.describe import event_line, status_span
from gsd_review_broker.cli.render.live_view import LiveView
from gsd_review_broker.cli.render.screen import Span, Style
from gsd_review_broker.client.connection import Json

_DETAILS = """\
With an ID, prints the history of that review and follows it until it is closed. Without one, prints new events of all
reviews, and on a terminal a list of the open ones. With --json, prints one event on each line. Stops with Ctrl-C, or
after --for SECONDS."""


def register(commands: Commands) -> None:
    log = commands.add("log", show_log, summary="show the history of a review", parents=[broker_options()])
    add_review(log)
    watch = commands.add(
        "watch", run_watch, summary="watch a review, or everything, live", details=_DETAILS, parents=[broker_options()]
    )
    watch.add_argument("review", nargs="?", metavar="ID", help="the review's id, or at least its first 6 characters")
    watch.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="only so long")
    watch.add_argument("--after", type=int, metavar="EVENT", help="begin after this event's id")


def show_log(options: argparse.Namespace) -> int:
    context = Context(options)
    story = context.call("get_review_timeline", review_id=options.review)
    if context.wants_json:
        context.screen.json(story)
        return Exit.DONE
    screen = context.screen
    screen.say(Span(story["review_id"], Style.BOLD), "  ", status_span(story["current_status"]))
    screen.say(story["intent"])
    for event in story["events"]:
        screen.say(*event_line(event, with_review=False))
    if story["next_cursor"] is not None:
        screen.warn(f"There is more: tandem audit log {story['review_id']} --after {story['next_cursor']}")
    return Exit.DONE


def run_watch(options: argparse.Namespace) -> int:
    context = Context(options)
    until = None if options.seconds is None else time.monotonic() + options.seconds
    review_id, after = None, options.after
    if options.review is not None:
        review_id = context.call("get_review_status", review_id=options.review)["review_id"]
        after = options.after or 0
    if review_id is None and context.screen.is_terminal and not context.wants_json:
        return _watch_all(context, after, until)
    return _watch_lines(context, review_id, after, until)


def _watch_all(context: Context, after: int | None, until: float | None) -> int:
    view = LiveView(context)
    with view.shown():
        at_first = True
        for events in follow(context, review_id=None, after=after, until=until):
            view.take(events, at_first=at_first)
            at_first = False
    return Exit.DONE


def _watch_lines(context: Context, review_id: str | None, after: int | None, until: float | None) -> int:
    is_lost = False
    for events in follow(context, review_id=review_id, after=after, until=until):
        if events is None:
            if not is_lost:
                context.screen.warn("The broker does not answer; waiting for it.")
            is_lost = True
            continue
        is_lost = False
        for event in events:
            _tell(context, event, with_review=review_id is None)
    return Exit.DONE


def _tell(context: Context, event: Json, *, with_review: bool) -> None:
    if context.wants_json:
        context.screen.write(json.dumps(event) + "\n")
        return
    context.screen.say(*event_line(event, with_review=with_review))
    context.screen.write("")
