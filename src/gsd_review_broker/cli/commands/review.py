"""The reviewer's commands: `claim`, `release`, `approve`, `request-changes`, `comment`, `counter`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.describe import moment, status_span
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.patches import add_source_options, as_text, chosen_change
from gsd_review_broker.cli.registering import Commands, add_review, broker_options, identity_option
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.text import same_identity
from gsd_review_broker.domain.words import CLAIM_IS_LIVE, Severity, either
from gsd_review_broker.errors import BrokerError, Code


def register(commands: Commands) -> None:
    shared = [broker_options(), identity_option()]
    claim = commands.add("claim", run_claim, summary="claim a review, to judge it", parents=shared)
    claim.add_argument("review", nargs="?", metavar="ID", help="the review; without it, the first that you may judge")
    claim.add_argument("--take-over", action="store_true", help="even if another reviewer has claimed it")
    release = commands.add("release", run_release, summary="release a claim without a verdict", parents=shared)
    add_review(release)
    approve = commands.add(
        "approve",
        run_approve,
        summary="approve a review: it may land unchanged (claims it if necessary)",
        parents=shared,
    )
    _add_verdict(approve, needs_reason=False)
    request = commands.add(
        "request-changes",
        run_request_changes,
        summary="say what has to change (claims the review if necessary)",
        parents=shared,
    )
    _add_verdict(request, needs_reason=True)
    comment = commands.add("comment", run_comment, summary="comment as the reviewer, without a verdict", parents=shared)
    _add_verdict(comment, needs_reason=True)
    counter = commands.add(
        "counter", run_counter, summary="offer a better diff instead (claims the review if necessary)", parents=shared
    )
    _add_verdict(counter, needs_reason=True)
    add_source_options(counter, may_be_none=False)


def _add_verdict(parser: argparse.ArgumentParser, *, needs_reason: bool) -> None:
    add_review(parser)
    parser.add_argument("-m", "--reason", required=needs_reason, metavar="TEXT", help="why")
    parser.add_argument("--revision", type=int, metavar="N", help="only if this is still the newest revision")
    parser.add_argument(
        "--finding",
        action="append",
        default=[],
        metavar="PATH:LINE[-LINE]:SEVERITY:TEXT",
        help=f"a remark on lines; SEVERITY is {either(tuple(Severity))}; can be repeated",
    )
    parser.add_argument("--findings", metavar="FILE", help="a JSON list of findings; - is standard input")


def run_claim(options: argparse.Namespace) -> int:
    context = Context(options)
    if options.review is None:
        if options.take_over:
            raise BrokerError(
                Code.INVALID_ARGUMENT, "--take-over: give the ID of the review", "`tandem list` shows the IDs."
            )
        claim = context.call("claim_next", reviewer_id=context.identity)
        if not claim["claimed"]:
            context.answer(claim, "No review is waiting for you.")
            return Exit.PENDING
    elif options.take_over and (status := _status(context, options))["status"] in CLAIM_IS_LIVE:
        claim = context.post(f"/api/reviews/{status['review_id']}/take-over", person=context.identity)
    else:
        claim = _claimed(context, options.review)
    return _tell_claim(context, claim)


def _tell_claim(context: Context, claim: Json) -> int:
    if claim.get("auto_rejected"):
        review_id, reasons = claim["review_id"], "; ".join(claim["validation_error"].splitlines())
        context.answer(claim, review_id, " was rejected: its diff does not apply: ", reasons)
        if not context.wants_json:
            context.screen.say(
                f"It went back to its author: `tandem propose --review {review_id}` with a diff of HEAD now."
            )
        return Exit.REFUSED
    until = moment(claim["claim_expires_at"]) if claim["claim_expires_at"] else "its verdict"
    context.answer(
        claim, claim["review_id"], " ", status_span(claim["status"]), f" by {claim['claimed_by']} until {until}"
    )
    return Exit.DONE


def _claimed(context: Context, review_id: str) -> Json:
    try:
        return context.call("claim_review", review_id=review_id, reviewer_id=context.identity)
    except BrokerError as error:
        _hint_at_take_over(context, review_id, error)
        raise


def _hint_at_take_over(context: Context, review_id: str, error: BrokerError) -> None:
    """Add the hint for a live claim only: a review reserved for its last reviewer cannot be taken over."""
    if error.code is not Code.ALREADY_CLAIMED:
        return
    status = context.call("get_review_status", review_id=review_id)
    if status["status"] in CLAIM_IS_LIVE:
        error.hint = (
            "Wait: the claim ends with a verdict, a release or its deadline. A person can take it over: "
            f"`tandem claim {status['review_id']} --take-over`."
        )


def run_release(options: argparse.Namespace) -> int:
    context = Context(options)
    status = _status(context, options)
    if status["status"] in CLAIM_IS_LIVE and not _is_me(context, status["claimed_by"]):
        raise BrokerError(
            Code.NOT_CLAIMANT,
            f"review {status['review_id']} is claimed by {status['claimed_by']}, not by {context.identity}",
            "Only the claimant can release it; `tandem claim --take-over` takes it over.",
        )
    if status["status"] not in CLAIM_IS_LIVE:
        raise BrokerError(
            Code.INVALID_TRANSITION,
            f"review {status['review_id']} is {status['status']}: it has no claim to release",
            "`tandem show` shows its state.",
        )
    # Claiming again returns the same claim, and with it the generation.
    claim = context.call("claim_review", review_id=status["review_id"], reviewer_id=context.identity)
    released = context.call("release_claim", review_id=status["review_id"], claim_generation=claim["claim_generation"])
    context.answer(released, released["review_id"], " ", status_span(released["status"]))
    return Exit.DONE


def run_approve(options: argparse.Namespace) -> int:
    return _judge(options, "approved")


def run_request_changes(options: argparse.Namespace) -> int:
    return _judge(options, "changes_requested")


def run_counter(options: argparse.Namespace) -> int:
    change = chosen_change(options)
    return _judge(options, "changes_requested", counter_patch=as_text(change.diff) if change else None)


def run_comment(options: argparse.Namespace) -> int:
    """Comment as the claimant: a comment does not claim the review."""
    context = Context(options)
    if options.revision is not None:
        status = _status(context, options)
        if status["revision"] != options.revision:
            raise _unread(options, f"review {status['review_id']} is at revision {status['revision']}")
    verdict = context.call(
        "submit_verdict",
        review_id=options.review,
        verdict="comment",
        reason=options.reason,
        findings=_findings(options) or None,
        reviewer_id=context.identity,
    )
    return _tell_verdict(context, verdict)


def _judge(options: argparse.Namespace, verdict: str, *, counter_patch: str | None = None) -> int:
    """Send the verdict; the broker claims the review in the same transaction."""
    context = Context(options)
    try:
        outcome = context.post(
            f"/api/reviews/{quote(options.review, safe='')}/verdict",
            reviewer_id=context.identity,
            verdict=verdict,
            reason=options.reason,
            counter_patch=counter_patch,
            findings=_findings(options) or None,
            revision=options.revision,
        )
    except BrokerError as error:
        if error.code is Code.CONFLICT and options.revision is not None:
            raise _unread(options, error.message) from error
        _hint_at_take_over(context, options.review, error)
        raise
    return _tell_claim(context, outcome) if outcome.get("auto_rejected") else _tell_verdict(context, outcome)


def _tell_verdict(context: Context, verdict: Json) -> int:
    missing = verdict.get("missing")
    # An approval that the policy takes as one of several.
    rest = (
        f"; your approval is recorded, and it still needs {' and '.join(missing)}"
        if missing
        else f" by {context.identity}"
    )
    context.answer(verdict, verdict["review_id"], " ", status_span(verdict["status"]), rest)
    return Exit.DONE


def _unread(options: argparse.Namespace, message: str) -> BrokerError:
    return BrokerError(
        Code.CONFLICT,
        message,
        f"Read what changed with `tandem diff {options.review} --since {options.revision}`, then judge that.",
    )


def _status(context: Context, options: argparse.Namespace) -> Json:
    return context.call("get_review_status", review_id=options.review)


def _is_me(context: Context, claimant: str | None) -> bool:
    return same_identity(claimant, context.identity)


def _findings(options: argparse.Namespace) -> list[Json]:
    findings = [_finding(spelled) for spelled in options.finding]
    if options.findings is None:
        return findings
    try:
        text = sys.stdin.read() if options.findings == "-" else Path(options.findings).read_text("utf-8")
        listed: Any = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"--findings {options.findings}: {why}", "Give a JSON list."
        ) from error
    if not isinstance(listed, list):
        raise BrokerError(Code.INVALID_ARGUMENT, f"--findings {options.findings}: not a list", "Give a JSON list.")
    return findings + cast("list[Json]", listed)


def _finding(spelled: str) -> Json:
    """PATH:LINE[-LINE]:SEVERITY:TEXT. The first line of the text is the title."""
    # A path may contain colons; line and severity show where it ends.
    parts = spelled.split(":")
    for at in range(1, len(parts) - 2):
        first, _, last = parts[at].partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            text = ":".join(parts[at + 2 :]).strip()
            return {
                "path": ":".join(parts[:at]),
                "line_start": int(first),
                "line_end": int(last or first),
                "severity": parts[at + 1].strip(),
                "title": text.split("\n", 1)[0],
                "body": text,
            }
    raise BrokerError(
        Code.INVALID_ARGUMENT,
        f"--finding {spelled!r} is not of the form PATH:LINE[-LINE]:SEVERITY:TEXT",
        "For example: src/app.py:12:high:The file is never closed.",
    )
