"""`tandem gsd`: what GSD's agents, their skill and the hook at the start of a session call."""

import argparse
from pathlib import Path

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, broker_options

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
For `/gsd:review --tandem`. Somebody who reviews here, an agent or a person, gets the text and answers; the verdict, its
findings and the reviewer's messages are printed as Markdown. Nothing lands by it."""
_CHECKPOINTS = ("plan", "execute", "verify")
# A little less than GSD waits for the lane (`integrations/clients/gsd_capability`).
_LANE_SECONDS = 1140.0


def register(commands: Commands) -> None:
    group = commands.group("gsd", summary="review inside GSD's workflow")
    options = broker_options()
    group.add(
        "rules", _rules, summary="say what GSD's agents have to do about reviews", details=_RULES, parents=[options]
    )
    group.add(
        "status", _status, summary="show which GSD is installed, and whether the overlay is whole", parents=[options]
    )
    group.add(
        "check",
        _check,
        summary="say which commits that landed before their verdict have to be taken back",
        details=_CHECK,
        parents=[options],
    )
    checkpoint = group.add(
        "checkpoint",
        _checkpoint,
        summary="say whether a phase may go on: are its plans, or its commits, approved?",
        details=_CHECKPOINT,
        parents=[options],
    )
    checkpoint.add_argument("checkpoint", choices=_CHECKPOINTS, help="which one")
    review = group.add(
        "review",
        _review,
        summary="have the prompt on standard input reviewed, and print the review",
        details=_REVIEW,
        parents=[options],
    )
    review.add_argument(
        "--timeout", type=float, default=_LANE_SECONDS, metavar="SECONDS", help="how long to wait (1140)"
    )
    group.add(
        "statusline",
        _statusline,
        summary="print the state of the reviews in a few words, for a status line",
        details="It never fails and waits for nothing: without a broker it says so.",
        parents=[options],
    )
    group.add(
        "session-start",
        _session_start,
        summary="start the broker and repair the overlay",
        details=_START,
        parents=[options],
    )


def _rules(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.gsd.rules import rules_here

    context = Context(options)
    rules = rules_here(Path.cwd(), config_file=options.config)
    if context.wants_json:
        context.screen.json(rules.facts())
    else:
        for line in rules.lines():
            context.screen.say(line)
    return Exit.DONE


def _check(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.gsd.checkpoint import check_commits

    return check_commits(Context(options))


def _checkpoint(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.gsd.checkpoint import check_point

    return check_point(Context(options), options.checkpoint)


def _review(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.gsd.review import review_prompt

    return review_prompt(Context(options), options.timeout)


def _status(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.gsd.rules import show_status

    return show_status(Context(options))


def _statusline(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.gsd.statusline import show_statusline

    return show_statusline(Context(options))


def _session_start(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.gsd.rules import start_session

    return start_session(Context(options))
