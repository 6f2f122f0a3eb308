"""What the proposer does next: `accept`, `reject`, `close`; and what both sides say: `message`, `resolve`."""

import argparse
import os

from gsd_review_broker.cli import describing
from gsd_review_broker.cli.events import status_span
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options, identity_option
from gsd_review_broker.cli.session import Session
from gsd_review_broker.client.connection import Json
from gsd_review_broker.errors import BrokerError, Code


def register(commands: Commands) -> None:
    shared = [broker_options(), identity_option()]
    accept = commands.add(
        "accept", run_accept, summary="take the reviewer's counter-patch as the newest revision", parents=shared
    )
    add_review(accept)
    reject = commands.add("reject", run_reject, summary="decline the reviewer's counter-patch", parents=shared)
    add_review(reject)
    reject.add_argument("-m", "--reason", metavar="TEXT", help="why")
    close = commands.add("close", run_close, summary="end a review: landed, given up, or withdrawn", parents=shared)
    add_review(close)
    close.add_argument("-m", "--reason", metavar="TEXT", help="why")
    message = commands.add("message", run_message, summary="say something to the other side", parents=shared)
    add_review(message)
    message.add_argument("-m", "--body", required=True, metavar="TEXT", help="what")
    message.add_argument("--role", choices=["proposer", "reviewer"], help="on whose side (found out, if left out)")
    message.add_argument("--path", help="about this file")
    message.add_argument("--line", type=int, help="about this line of it")
    message.add_argument("--reply-to", type=int, metavar="MESSAGE", help="in answer to this message's number")
    resolve = commands.add("resolve", run_resolve, summary="say what became of a finding", parents=shared)
    add_review(resolve)
    resolve.add_argument("finding", metavar="FINDING", help="its id, as `tandem show` lists it")
    resolve.add_argument("disposition", choices=["fixed", "rejected", "deferred"])
    resolve.add_argument("-m", "--note", metavar="TEXT", help="why; needed for rejected")
    resolve.add_argument(
        "--role", choices=["proposer", "reviewer"], help="on whose side (that of --as; without it, the proposer's)"
    )


def proposer(session: Session) -> str:
    """Who acts for the proposer: the agent that the environment names, or the person."""
    named = os.environ.get("TANDEM_PROPOSER_ID") or os.environ.get("TANDEM_AGENT_TYPE")
    return session.options.identity or named or session.identity


def run_accept(options: argparse.Namespace) -> int:
    session = Session(options)
    status = session.call("accept_counter_patch", review_id=options.review, proposer_id=proposer(session))
    session.answer(status, *describing.outcome(status), f", revision {status['revision']}")
    return Exit.DONE


def run_reject(options: argparse.Namespace) -> int:
    session = Session(options)
    status = session.call(
        "reject_counter_patch", review_id=options.review, reason=options.reason, proposer_id=proposer(session)
    )
    session.answer(status, *describing.outcome(status))
    return Exit.DONE


def run_close(options: argparse.Namespace) -> int:
    session = Session(options)
    closed = session.call(
        "close_review", review_id=options.review, reason=options.reason, proposer_id=proposer(session)
    )
    session.answer(closed, closed["review_id"], " ", status_span(closed["status"]), f" ({closed['outcome']})")
    return Exit.DONE


def run_message(options: argparse.Namespace) -> int:
    session = Session(options)
    role, sender = _side(session, options)
    sent = session.call(
        "add_message",
        review_id=options.review,
        sender_role=role,
        body=options.body,
        sender_id=sender,
        path=options.path,
        line=options.line,
        in_reply_to=options.reply_to,
    )
    session.answer(sent, sent["review_id"], " ", status_span(sent["status"]), f", message {sent['message_id']}")
    return Exit.DONE


def _side(session: Session, options: argparse.Namespace) -> tuple[str, str]:
    """Whoever proposed it speaks as the proposer, anybody else as a reviewer."""
    if options.role == "reviewer":
        return "reviewer", session.identity
    speaker = proposer(session)
    if options.role == "proposer":
        return "proposer", speaker
    proposal: Json = session.call("get_proposal", review_id=options.review)
    behind = proposal["proposer_id"] or proposal["agent_type"]
    is_proposer = speaker.casefold() == behind.casefold()
    return ("proposer", speaker) if is_proposer else ("reviewer", session.identity)


def _resolving_side(session: Session, options: argparse.Namespace) -> str:
    """The record names the side's own identity, so nobody else can be meant by --as."""
    if options.identity is None:
        return options.role or "proposer"
    proposal = session.call("get_proposal", review_id=options.review)
    status = session.call("get_review_status", review_id=options.review)
    sides = {"proposer": proposal["proposer_id"] or proposal["agent_type"], "reviewer": status["claimed_by"] or ""}
    for side, who in sides.items():
        if who.casefold() == options.identity.casefold() and options.role in {None, side}:
            return side
    raise BrokerError(
        Code.FORBIDDEN,
        f"{options.identity} is not the {options.role or 'proposer or the reviewer'} of review {status['review_id']}",
        f"Its proposer is {sides['proposer']}, its reviewer {sides['reviewer'] or 'nobody'}.",
    )


def run_resolve(options: argparse.Namespace) -> int:
    session = Session(options)
    role = _resolving_side(session, options)
    finding = session.call(
        "resolve_finding",
        endpoint=f"/mcp/{role}",
        review_id=options.review,
        finding_id=options.finding,
        disposition=options.disposition,
        note=options.note,
    )
    session.answer(finding, finding["finding_id"], f" {finding['disposition']}: ", finding["title"])
    return Exit.DONE
