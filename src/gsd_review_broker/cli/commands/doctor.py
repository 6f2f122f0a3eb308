"""`tandem doctor`."""

import argparse
from dataclasses import asdict
from pathlib import Path

from gsd_review_broker.cli.doctor.checks import every_check
from gsd_review_broker.cli.doctor.machine import Check, CheckState, red
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.cli.render.screen import Screen, Span, Style
from gsd_review_broker.client import Target
from gsd_review_broker.errors import StartError

_STYLES = {CheckState.GREEN: Style.GREEN, CheckState.YELLOW: Style.YELLOW, CheckState.RED: Style.RED}
_MARKS = {CheckState.GREEN: "ok", CheckState.YELLOW: "look", CheckState.RED: "bad"}


def register(commands: Commands) -> None:
    commands.add(
        "doctor",
        run_doctor,
        summary="check everything the broker depends on, and say how to fix it",
        details="Exits with 1 if a check is red.",
        parents=[broker_options()],
    )


def run_doctor(options: argparse.Namespace) -> int:
    screen = Screen()
    try:
        target = Target.of(Path.cwd(), url=options.url, db=options.db, config=options.config, user=options.user)
        with screen.progress("looking"):
            checks = list(every_check(target, options.config))
    except StartError as error:
        checks = [red("configuration", str(error), "Fix it, then run `tandem doctor` again.")]
    is_well = all(check.state is not CheckState.RED for check in checks)
    if options.json:
        screen.json({"ok": is_well, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            _tell(screen, check)
    return Exit.DONE if is_well else Exit.FAILED


def _tell(screen: Screen, check: Check) -> None:
    screen.say(Span(f"{_MARKS[check.state]:<5}", _STYLES[check.state]), f"{check.name:<18} ", check.found)
    if check.hint:
        screen.say(" " * 24, Span(check.hint, Style.DIM))
