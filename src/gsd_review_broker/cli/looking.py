"""Lists and single reviews, as people read them."""

import argparse

from gsd_review_broker.cli.events import moment, short_id, status_span
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.screen import Part, Span, Style
from gsd_review_broker.cli.session import Session
from gsd_review_broker.client.connection import Json


def list_reviews(options: argparse.Namespace) -> int:
    session = Session(options)
    found = session.call(
        "list_reviews",
        status=options.status,
        category=options.category,
        project=options.project,
        phase=options.phase,
        plan=options.plan,
        proposer_id=options.proposer,
        parent_id=options.parent,
        needs_human=True if options.needs_human else None,
        limit=options.limit,
        cursor=options.cursor,
    )
    if session.wants_json:
        session.screen.json(found)
        return Exit.DONE
    session.screen.table(
        ("ID", "STATUS", "PRIORITY", "ROUND", "WHO", "INTENT"), [_row(row) for row in found["reviews"]]
    )
    return Exit.DONE


def _row(review: Json) -> list[Part]:
    return [
        Span(short_id(review["id"]), Style.BOLD),
        status_span(review["status"]),
        review["priority"],
        str(review["round"]),
        review["claimed_by"] or review["proposer_id"] or review["agent_type"],
        review["intent"],
    ]


def show_review(options: argparse.Namespace) -> int:
    session = Session(options)
    status = session.call("get_review_status", review_id=options.review)
    if session.wants_json:
        session.screen.json(status)
        return Exit.DONE
    session.screen.say(Span(status["review_id"], Style.BOLD), "  ", status_span(status["status"]))
    session.screen.say("updated ", moment(status["updated_at"]))
    return Exit.DONE
