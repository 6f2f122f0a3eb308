"""`tandem setup`: everything that a project needs, in one command."""

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands
from gsd_review_broker.cli.screen import Screen
from gsd_review_broker.domain.words import AGENTS, CLIENTS
from gsd_review_broker.errors import BrokerError, Code

if TYPE_CHECKING:
    from gsd_review_broker.cli.setup_plan import SetupPlan, SetupResult

_PERSON = "you"
_DETAILS = """\
Starts the broker, finds the agents on this machine, proposes who proposes and who reviews, shows what it would write,
writes it after a yes, runs the checks of `tandem doctor`, and says what to type next. A second run changes nothing.
`tandem uninstall --all` takes everything back, and leaves the review history."""


def register(commands: Commands) -> None:
    setup = commands.add("setup", run_setup, summary="set up a project, and say what to type next", details=_DETAILS)
    setup.add_argument("--yes", "-y", action="store_true", help="do not ask")
    setup.add_argument("--dry-run", action="store_true", help="show what would be written, write nothing")
    setup.add_argument("--json", action="store_true", help="print exactly one JSON document; writes only with --yes")
    setup.add_argument("--proposer", choices=CLIENTS, help="the client that proposes")
    setup.add_argument("--reviewer", choices=[*CLIENTS, _PERSON], help=f"who reviews; {_PERSON}: in the browser")
    setup.add_argument("--pool", choices=AGENTS, help="let the broker start this agent as a reviewer; it costs money")
    setup.add_argument("--no-gate", action="store_true", help="leave out the gate (a git hook that only warns)")
    setup.add_argument(
        "--trust", action="store_true", help="let the clients call the broker's tools without asking each time"
    )
    setup.add_argument("--shared", action="store_true", help="the written files are to be committed")


def run_setup(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.setup_plan import make_plan

    if options.proposer is not None and options.proposer == options.reviewer:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"{options.proposer} cannot review its own proposals", "Choose another reviewer."
        )
    screen = Screen()
    plan = make_plan(options)
    if options.json:
        return _run_for_program(screen, plan, options)
    return _run_for_person(screen, plan, options)


def _run_for_program(screen: Screen, plan: "SetupPlan", options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.setup_plan import carry_out, planned_facts

    facts = planned_facts(plan)
    if options.dry_run or not options.yes:
        screen.json({"dry_run": True, **facts})
        return Exit.DONE
    result = carry_out(plan)
    screen.json(
        {
            "dry_run": False,
            **facts,
            "broker": {"url": result.url, "started": result.is_new},
            "checks": [asdict(check) for check in result.checks],
        }
    )
    return _exit(result)


def _run_for_person(screen: Screen, plan: "SetupPlan", options: argparse.Namespace) -> int:
    from gsd_review_broker.cli import setup_plan
    from gsd_review_broker.cli.setup_plan import carry_out

    setup_plan.show_found(screen, plan)
    was_asked = False
    can_ask = not options.yes and not options.dry_run and sys.stdin.isatty()
    if can_ask and len(plan.pairs) > 1 and options.proposer is None and options.reviewer is None:
        plan, was_asked = _asked_for_pair(screen, plan, options), True
    setup_plan.show_plan(screen, plan, was_asked=was_asked)
    if options.dry_run:
        return Exit.DONE
    if plan.is_change and not options.yes and not (can_ask and _is_yes("\nWrite this? [Y/n] ")):
        screen.say("Nothing was written." if can_ask else "Nothing was written: run it again with --yes.")
        return Exit.DONE if can_ask else Exit.USAGE
    with screen.progress("setting up"):
        result = carry_out(plan)
    setup_plan.show_checks(screen, result.checks)
    setup_plan.show_next(screen, setup_plan.next_steps(plan), result.url, result.notes)
    return _exit(result)


def _asked_for_pair(screen: Screen, plan: "SetupPlan", options: argparse.Namespace) -> "SetupPlan":
    from gsd_review_broker.cli.setup_plan import make_plan, show_pairs

    show_pairs(screen, plan)
    now = plan.pairs.index(plan.pair) + 1 if plan.pair in plan.pairs else 1
    while True:
        answer = _answer(f"Which one? [{now}] ") or str(now)
        if answer.isdecimal() and 1 <= int(answer) <= len(plan.pairs):
            return make_plan(options, plan.pairs[int(answer) - 1])
        screen.say(f"Type a number from 1 to {len(plan.pairs)}.")


def _is_yes(question: str) -> bool:
    return _answer(question).lower() in {"", "y", "yes"}


def _answer(question: str) -> str:
    """Ask the user; the end of the input is an interruption."""
    try:
        return input(question).strip()
    except EOFError:
        raise KeyboardInterrupt from None


def _exit(result: "SetupResult") -> int:
    return Exit.DONE if result.is_well else Exit.FAILED
