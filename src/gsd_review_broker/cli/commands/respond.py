"""The proposer's next steps: `accept`, `reject`, `close`; and both sides' `message` and `resolve`."""

import argparse
import os

from gsd_review_broker.cli import describe
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.describe import status_span
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options, identity_option
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.text import same_identity
from gsd_review_broker.domain.words import RESOLUTIONS, Role, values
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
    close = commands.add("close", run_close, summary="close a review: landed, given up or withdrawn", parents=shared)
    add_review(close)
    close.add_argument("-m", "--reason", metavar="TEXT", help="why")
    message = commands.add("message", run_message, summary="send a message to the other side", parents=shared)
    add_review(message)
    message.add_argument("-m", "--body", required=True, metavar="TEXT", help="what")
    message.add_argument("--role", choices=values(Role), help="on which side you act (found from your identity)")
    message.add_argument("--path", help="about this file")
    message.add_argument("--line", type=int, help="about this line of the file")
    message.add_argument("--reply-to", type=int, metavar="MESSAGE", help="in reply to the message with this number")
    resolve = commands.add("resolve", run_resolve, summary="record what was done about a finding", parents=shared)
    add_review(resolve)
    resolve.add_argument("finding", metavar="FINDING", help="its id, as `tandem show` lists it")
    resolve.add_argument("disposition", choices=values(RESOLUTIONS))
    resolve.add_argument("-m", "--note", metavar="TEXT", help="why; needed for rejected")
    resolve.add_argument(
        "--role",
        choices=values(Role),
        help="on which side you act (the side of --as; without it, the proposer's)",
    )


def proposer(context: Context) -> str:
    """Return the proposer's name: the token's holder, the agent that the environment names, or the person."""
    named = os.environ.get("TANDEM_PROPOSER_ID") or os.environ.get("TANDEM_AGENT_TYPE")
    return context.options.identity or context.token_identity or named or context.identity


def run_accept(options: argparse.Namespace) -> int:
    context = Context(options)
    status = context.call("accept_counter_patch", review_id=options.review, proposer_id=proposer(context))
    context.answer(status, *describe.outcome(status), f", revision {status['revision']}")
    return Exit.DONE


def run_reject(options: argparse.Namespace) -> int:
    context = Context(options)
    status = context.call(
        "reject_counter_patch", review_id=options.review, reason=options.reason, proposer_id=proposer(context)
    )
    context.answer(status, *describe.outcome(status))
    return Exit.DONE


def run_close(options: argparse.Namespace) -> int:
    context = Context(options)
    closed = context.call(
        "close_review", review_id=options.review, reason=options.reason, proposer_id=proposer(context)
    )
    context.answer(closed, closed["review_id"], " ", status_span(closed["status"]), f" ({closed['outcome']})")
    return Exit.DONE


def run_message(options: argparse.Namespace) -> int:
    context = Context(options)
    role, sender = _side(context, options)
    sent = context.call(
        "add_message",
        review_id=options.review,
        sender_role=role,
        body=options.body,
        sender_id=sender,
        path=options.path,
        line=options.line,
        in_reply_to=options.reply_to,
    )
    context.answer(sent, sent["review_id"], " ", status_span(sent["status"]), f", message {sent['message_id']}")
    return Exit.DONE


def _side(context: Context, options: argparse.Namespace) -> tuple[str, str]:
    """Return the role and the name of the sender; a caller that is not the proposer is a reviewer."""
    if options.role == "reviewer":
        return "reviewer", context.identity
    speaker = proposer(context)
    if options.role == "proposer":
        return "proposer", speaker
    proposal: Json = context.call("get_proposal", review_id=options.review)
    behind = proposal["proposer_id"] or proposal["agent_type"]
    is_proposer = same_identity(speaker, behind)
    return ("proposer", speaker) if is_proposer else ("reviewer", context.identity)


def _resolving_side(context: Context, options: argparse.Namespace) -> str:
    """Return the role of --as, which must be the review's proposer or its reviewer."""
    if options.identity is None:
        return options.role or "proposer"
    proposal = context.call("get_proposal", review_id=options.review)
    status = context.call("get_review_status", review_id=options.review)
    sides = {"proposer": proposal["proposer_id"] or proposal["agent_type"], "reviewer": status["claimed_by"] or ""}
    for side, who in sides.items():
        if same_identity(who, options.identity) and options.role in {None, side}:
            return side
    raise BrokerError(
        Code.FORBIDDEN,
        f"{options.identity} is not the {options.role or 'proposer or the reviewer'} of review {status['review_id']}",
        f"Its proposer is {sides['proposer']}, its reviewer {sides['reviewer'] or '(none)'}.",
    )


def run_resolve(options: argparse.Namespace) -> int:
    context = Context(options)
    role = _resolving_side(context, options)
    finding = context.call(
        "resolve_finding",
        endpoint=f"/mcp/{role}",
        review_id=options.review,
        finding_id=options.finding,
        disposition=options.disposition,
        note=options.note,
    )
    context.answer(finding, finding["finding_id"], f" {finding['disposition']}: ", finding["title"])
    return Exit.DONE
