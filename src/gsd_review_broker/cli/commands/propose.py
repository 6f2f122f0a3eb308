"""`tandem propose`: sends a change to the broker, and waits for the verdict."""

import argparse
import os
import sys
from pathlib import Path

from gsd_review_broker.cli import describe
from gsd_review_broker.cli.broker.watching import DEFAULT_SECONDS, exit_of, open_page, wait_for_verdict
from gsd_review_broker.cli.changes import top_level
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.patches import add_source_options, as_text, chosen_change
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import Category, values
from gsd_review_broker.errors import BrokerError, Code

_DETAILS = """\
Exits with 0 as soon as the proposal is stored. With --wait, the exit code is the verdict: 0 approved, 5 changes
requested, 8 still pending after that time.

A script can set the proposer once in the environment: TANDEM_AGENT_TYPE, TANDEM_PROPOSER_ID, TANDEM_PHASE,
TANDEM_PLAN, TANDEM_TASK, TANDEM_CATEGORY, TANDEM_PROJECT. Without these, you are the proposer."""
_UNPLANNED = "unplanned"
_PERSON = "human"


def register(commands: Commands) -> None:
    propose = commands.add(
        "propose",
        run_propose,
        summary="propose a change before it lands: an intent, and a diff",
        details=_DETAILS,
        parents=[broker_options()],
    )
    propose.add_argument(
        "-m", "--intent", required=True, metavar="INTENT", help="what the change is for, in a sentence"
    )
    propose.add_argument(
        "--description", metavar="TEXT", help="what changed and why; @FILE reads it, @- from standard input"
    )
    propose.add_argument("--review", "--review-id", metavar="ID", help="revise this review: the whole new content")
    propose.add_argument(
        "--wait", nargs="?", type=float, const=DEFAULT_SECONDS, metavar="SECONDS", help="wait for a verdict (600)"
    )
    propose.add_argument("--web", action="store_true", help="open the review's page in the browser")
    add_source_options(propose, may_be_none=True)
    who = propose.add_argument_group("the proposer and the task")
    for flag, text in (
        ("--agent-type", "such as gsd-executor"),
        ("--proposer-id", "the proposer's own name, if several have one agent type"),
        ("--phase", f"({_UNPLANNED})"),
        ("--plan", None),
        ("--task", None),
        ("--project", None),
    ):
        who.add_argument(flag, default=_from_environment(flag), metavar="NAME", help=text)
    who.add_argument("--category", choices=values(Category), default=_from_environment("--category"))
    who.add_argument("--parent-id", metavar="ID", help="the review that this one follows")
    more = propose.add_argument_group("more")
    more.add_argument(
        "--workspace",
        metavar="PATH",
        help="the work tree on the broker's machine, for one that serves several repositories (TANDEM_WORKSPACE)",
    )
    more.add_argument("--skip-diff-validation", action="store_true", help="the change is already in the tree")
    more.add_argument("--idempotency-key", metavar="KEY", help="a repeated call with the same key is done once")


def _from_environment(flag: str) -> str | None:
    return os.environ.get("TANDEM_" + flag.removeprefix("--").upper().replace("-", "_")) or None


def run_propose(options: argparse.Namespace) -> int:
    context = Context(options)
    arguments = _arguments(options, context)
    created = context.call("create_review", **arguments)
    if options.wait is None or not context.wants_json:
        _tell(context, created, has_diff=arguments["diff"] is not None)
    if options.web and not context.wants_json:
        open_page(context, f"/r/{created['review_id']}")
    if options.wait is None:
        return Exit.DONE
    # A reader of a pipe gets the review's id before the wait, not after it.
    context.screen.write("")
    status = wait_for_verdict(context, created["review_id"], seconds=options.wait)
    if context.wants_json:
        context.screen.json({**created, "waited": status})
    else:
        context.screen.say(*describe.outcome(status))
    return exit_of(status)


def _tell(context: Context, created: Json, *, has_diff: bool) -> None:
    if context.wants_json:
        context.screen.json(created)
        return
    files = created["affected_files"]
    without = "a diff that cannot be read" if has_diff else "no diff"
    size = describe.counted(len(files), "file") if files else without
    context.screen.say(created["review_id"], f" {created['status']}, revision {created['revision']}, {size}")


def _arguments(options: argparse.Namespace, context: Context) -> Json:
    change = chosen_change(options)
    by_agent = options.agent_type or options.proposer_id
    return {
        "intent": options.intent,
        "agent_type": options.agent_type or options.proposer_id or _PERSON,
        "agent_role": "proposer",
        "phase": options.phase or _UNPLANNED,
        "plan": options.plan,
        "task": options.task,
        "category": options.category,
        "description": _description(options.description),
        "diff": as_text(change.diff) if change else None,
        "review_id": options.review,
        "project": options.project,
        "workspace": options.workspace or context.workspace_of(top_level(Path.cwd())),
        "proposer_id": options.proposer_id or (None if by_agent else context.identity),
        "parent_id": options.parent_id,
        "skip_diff_validation": True if options.skip_diff_validation or (change and change.is_committed) else None,
        "idempotency_key": options.idempotency_key,
    }


def _description(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    try:
        return sys.stdin.read() if text == "@-" else Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"--description {text}: {why}", "Give a file of UTF-8 text."
        ) from error
