"""`tandem gsd review`, for `/gsd:review --tandem`: a prompt comes in, a review goes out."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from gsd_review_broker.cli.broker.watching import exit_of, is_decided, wait_for_verdict
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.git.changes import top_level
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import Verdict
from gsd_review_broker.errors import BrokerError, Code

_AGENT = "gsd-review"
_INTENT = "Review these plans for GSD (/gsd:review). The text says what to look at; the answer goes into REVIEWS.md."
# The broker's limit for a description is 64 KiB.
_LONGEST_DESCRIPTION = 60_000
_LONGEST_PROMPT = 8 * 1024 * 1024


def review_prompt(context: Context, seconds: float) -> int:
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
        context.screen.block("\n\n".join(_review(status, discussion)))
    # A verdict is an answer, whichever it is: GSD weighs it.
    return Exit.DONE if exit_of(status) in {Exit.DONE, Exit.REFUSED, Exit.PENDING} else exit_of(status)


def _proposal(context: Context, prompt: str) -> Json:
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
    """What is too long for a description is shown as a file."""
    name = f".planning/reviews/gsd-review-{hashlib.sha256(prompt.encode()).hexdigest()[:12]}.md"
    lines = prompt.removesuffix("\n").split("\n")
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)


def _close(context: Context, review_id: str, reason: str) -> None:
    context.call("close_review", review_id=review_id, reason=reason)


def _review(status: Json, discussion: Json) -> Iterator[str]:
    is_open = status["verdict"] in {None, Verdict.COMMENT}
    verdict = "no verdict" if is_open else status["verdict"].replace("_", " ")
    yield f"**Verdict:** {verdict}, by {status['claimed_by'] or 'nobody'} (review {status['review_id']})"
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
