"""`tandem audit log`: every event, in the order it was committed. Other modules add to the group."""

import argparse

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.cli.render.describe import EVENT_TITLES, event_row


def register(commands: Commands) -> None:
    group = commands.group("audit", summary="the record of everything that happened")
    log = group.add("log", show_log, summary="list events in the order they were committed", parents=[broker_options()])
    log.add_argument("review", nargs="?", metavar="ID", help="only this review's")
    log.add_argument("--after", type=int, metavar="EVENT", help="only later than this event's id")
    log.add_argument("--limit", type=int, help="how many at most (50)")


def show_log(options: argparse.Namespace) -> int:
    context = Context(options)
    page = context.call("get_audit_log", review_id=options.review, after=options.after, limit=options.limit)
    if context.wants_json:
        context.screen.json(page)
        return Exit.DONE
    rows = [event_row(event, short=context.screen.is_terminal) for event in page["events"]]
    context.screen.table(EVENT_TITLES, rows)
    if page["next_cursor"] is not None:
        context.screen.warn(f"There is more: --after {page['next_cursor']}")
    return Exit.DONE
