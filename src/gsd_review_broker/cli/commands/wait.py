"""`tandem wait`."""

import argparse

from gsd_review_broker.cli.broker.watching import DEFAULT_SECONDS, exit_of, wait_for_verdict
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options
from gsd_review_broker.cli.render import describe
from gsd_review_broker.client.connection import Json

_DETAILS = """\
Continues after a restart of the broker, and prints one line at the end. Exits with 0 if approved, 5 if changes were
requested or the review was withdrawn, 8 if it is still pending (or a counter-patch needs your answer)."""


def register(commands: Commands) -> None:
    wait = commands.add(
        "wait",
        run_wait,
        summary="wait for a verdict, and report it as the exit code",
        details=_DETAILS,
        parents=[broker_options()],
    )
    add_review(wait)
    wait.add_argument(
        "--timeout", type=float, default=DEFAULT_SECONDS, metavar="SECONDS", help="how long at most (600)"
    )
    wait.add_argument("-v", "--verbose", action="store_true", help="print a line for each change")


def run_wait(options: argparse.Namespace) -> int:
    context = Context(options)

    def tell(status: Json) -> None:
        if options.verbose and not context.wants_json:
            context.screen.say(*describe.outcome(status))
            context.screen.write("")

    status = wait_for_verdict(context, options.review, seconds=options.timeout, changed=tell)
    if context.wants_json:
        context.screen.json(status)
    elif not options.verbose:
        context.screen.say(*describe.outcome(status))
    return Exit(exit_of(status))
