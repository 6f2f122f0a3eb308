"""`tandem audit log`: every event, in the order it was committed. Other modules add to the group."""

import argparse

from gsd_review_broker.cli.events import EVENT_TITLES, event_row
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.cli.session import Session


def register(commands: Commands) -> None:
    group = commands.group("audit", summary="the record of everything that happened")
    log = group.add("log", show_log, summary="list events in the order they were committed", parents=[broker_options()])
    log.add_argument("review", nargs="?", metavar="ID", help="only this review's")
    log.add_argument("--after", type=int, metavar="EVENT", help="only later than this event's id")
    log.add_argument("--limit", type=int, help="at most so many (50)")


def show_log(options: argparse.Namespace) -> int:
    session = Session(options)
    found = session.call("get_audit_log", review_id=options.review, after=options.after, limit=options.limit)
    if session.wants_json:
        session.screen.json(found)
        return Exit.DONE
    rows = [event_row(event, short=session.screen.is_terminal) for event in found["events"]]
    session.screen.table(EVENT_TITLES, rows)
    if found["next_cursor"] is not None:
        session.screen.warn(f"There is more: --after {found['next_cursor']}")
    return Exit.DONE
