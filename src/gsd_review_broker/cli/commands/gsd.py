"""`tandem gsd`: what GSD's agents, their skill, the status line and the session hook call."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from gsd_review_broker.cli.broker.watching import exit_of, is_decided, wait_for_verdict
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, broker_options, later
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import Status, Verdict
from gsd_review_broker.errors import BrokerError, Code, StartError

_RULES = """\
For agents: which checkpoints need a review, how large a proposal is, and whether to wait for the verdict. The settings
are in docs/configuration.md; `tandem gsd rules` reads them again at each call."""
_CHECK = """\
For the optimistic mode: a commit with the trailer `Tandem-Review: ID` has landed before its verdict. Exits with 0 if
all of them are approved, 8 if some are pending, 5 if some have to be taken back: then it prints the command. What was
built on such a commit, in the same files, is taken back with it. It looks at the last 200 commits of HEAD."""
_START = """\
For the hook that `tandem install gsd` puts in place: starts the broker, and puts back what is missing of the skill and
of its entries in GSD's configuration. It never fails: what is wrong is printed, and the session starts."""
_CHECKPOINT = """\
For the gates of gsd-core's loop, which `tandem install gsd` puts in place. Exits with 0 if the phase may go on, 5 if it
has to stop (then the last line is the command to run), 3 without a broker, unless review.fail_mode is open. `plan`: the
plans of the current phase that have no summary. `execute`: the commits of HEAD since the gate was installed; in
optimistic mode pending ones pass. `verify`: the same, and pending ones do not pass."""
_REVIEW = """\
For `/gsd:review --tandem`. A reviewer, an agent or a person, gets the text and answers; the verdict, its
findings and the reviewer's messages are printed as Markdown. Nothing lands by it."""
_CHECKPOINTS = ("plan", "execute", "verify")
# A little less than GSD waits for the lane (`integrations/clients/gsd_capability`).
_LANE_SECONDS = 1140.0


def register(commands: Commands) -> None:
    group = commands.group("gsd", summary="review inside GSD's workflow", parents=[broker_options()])
    group.add(
        "rules",
        later("gsd_rules", "show_rules"),
        summary="say what GSD's agents have to do about reviews",
        details=_RULES,
    )
    group.add(
        "status",
        later("gsd_rules", "show_status"),
        summary="show which GSD is installed, and whether the overlay is whole",
    )
    group.add(
        "check",
        later("gsd_checkpoint", "check_commits"),
        summary="say which commits that landed before their verdict have to be taken back",
        details=_CHECK,
    )
    checkpoint = group.add(
        "checkpoint",
        later("gsd_checkpoint", "check_point"),
        summary="say whether a phase may go on: are its plans, or its commits, approved?",
        details=_CHECKPOINT,
    )
    checkpoint.add_argument("checkpoint", choices=_CHECKPOINTS, help="which one")
    review = group.add(
        "review",
        _review,
        summary="have the prompt on standard input reviewed, and print the review",
        details=_REVIEW,
    )
    review.add_argument(
        "--timeout", type=float, default=_LANE_SECONDS, metavar="SECONDS", help="how long to wait (1140)"
    )
    group.add(
        "statusline",
        _statusline,
        summary="print the state of the reviews in a few words, for a status line",
        details="It never fails and waits for nothing: without a broker it says so.",
    )
    group.add(
        "session-start",
        later("gsd_rules", "start_session"),
        summary="start the broker and repair the overlay",
        details=_START,
    )


_AGENT = "gsd-review"
_INTENT = "Review these plans for GSD (/gsd:review). The text says what to look at; the answer goes into REVIEWS.md."
# The broker's limit for a description is 64 KiB.
_LONGEST_DESCRIPTION = 60_000
_LONGEST_PROMPT = 8 * 1024 * 1024


def _review(options: argparse.Namespace) -> int:
    context, seconds = Context(options), options.timeout
    prompt = sys.stdin.buffer.read(_LONGEST_PROMPT).decode("utf-8", "replace")
    if not prompt.strip():
        raise BrokerError(Code.INVALID_ARGUMENT, "there is no prompt", "Give it on standard input.")
    created = context.call("create_review", **_proposal(context, prompt))
    status = wait_for_verdict(context, created["review_id"], seconds=seconds)
    if not is_decided(status):
        _close(context, status["review_id"], f"no reviewer answered within {seconds:.0f} s")
        raise BrokerError(
            Code.UNAVAILABLE,
            f"no reviewer answered within {seconds:.0f} s",
            "Start a reviewer, or open the dashboard with `tandem open`; then run /gsd:review again.",
        )
    discussion = context.call("get_discussion", review_id=status["review_id"], limit=500)
    _close(context, status["review_id"], "its answer is in REVIEWS.md")
    if context.wants_json:
        context.screen.json({**status, "findings": discussion["findings"], "messages": discussion["messages"]})
    else:
        context.screen.block("\n\n".join(_as_markdown(status, discussion)))
    # A verdict is an answer, whichever it is: GSD weighs it.
    return Exit.DONE if exit_of(status) in {Exit.DONE, Exit.REFUSED, Exit.PENDING} else exit_of(status)


def _proposal(context: Context, prompt: str) -> Json:
    from gsd_review_broker.cli.changes import top_level

    is_long = len(prompt.encode()) > _LONGEST_DESCRIPTION
    return {
        "intent": _INTENT,
        "agent_type": _AGENT,
        "agent_role": "proposer",
        "phase": "review",
        "category": "plan_review",
        "description": None if is_long else prompt,
        "diff": _as_new_file(prompt) if is_long else None,
        "workspace": context.workspace_of(top_level(Path.cwd())),
    }


def _as_new_file(prompt: str) -> str:
    """Return a diff that adds the prompt as a file: it is too long for a description."""
    import hashlib

    name = f".planning/reviews/gsd-review-{hashlib.sha256(prompt.encode()).hexdigest()[:12]}.md"
    lines = prompt.removesuffix("\n").split("\n")
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)


def _close(context: Context, review_id: str, reason: str) -> None:
    context.call("close_review", review_id=review_id, reason=reason)


def _as_markdown(status: Json, discussion: Json) -> Iterator[str]:
    is_open = status["verdict"] in {None, Verdict.COMMENT}
    verdict = "no verdict" if is_open else status["verdict"].replace("_", " ")
    yield f"**Verdict:** {verdict}, by {status['claimed_by'] or 'no reviewer'} (review {status['review_id']})"
    if status["verdict_reason"]:
        yield status["verdict_reason"]
    for finding in discussion["findings"]:
        place = f" `{finding['path']}:{finding['line_start']}`" if finding["path"] and finding["line_start"] else ""
        yield f"- **{finding['severity'].upper()}**{place} {finding['title']}: {finding['body']}"
        if finding["suggestion"]:
            yield f"  Suggestion: {finding['suggestion']}"
    for message in discussion["messages"]:
        if message["sender_role"] == "reviewer":
            yield f"> {message['sender_id']}: {message['body']}"


# In the order of what the proposer has to do first.
_WORDS = {
    Status.CHANGES_REQUESTED: "to fix",
    Status.APPROVED: "approved",
    Status.IN_REVIEW: "in review",
    Status.CLAIMED: "in review",
    Status.PENDING: "waiting",
}


def _statusline(options: argparse.Namespace) -> int:
    context = Context(options)
    try:
        counts: Json | None = context.ask("get_review_stats")["by_status"]
    except (BrokerError, StartError, OSError):
        counts = None
    words = _fragment(counts)
    context.answer({"text": words, "by_status": counts}, words)
    return Exit.DONE


def _fragment(counts: Json | None) -> str:
    if counts is None:
        return "tandem: no broker"
    numbers: dict[str, int] = {}
    for status, word in _WORDS.items():
        numbers[word] = numbers.get(word, 0) + counts.get(status, 0)
    parts = [f"{number} {word}" for word, number in numbers.items() if number]
    return f"tandem: {', '.join(parts) or 'no open review'}"
