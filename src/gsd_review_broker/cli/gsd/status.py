"""`tandem gsd status`: which GSD is here, is the overlay whole, and what counts."""

from pathlib import Path

from gsd_review_broker import integrations
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gsd.rules import rules_here
from gsd_review_broker.cli.render.screen import Span, Style
from gsd_review_broker.client.connection import Json
from gsd_review_broker.integrations import Environment, InstalledGsd

_STATES = {
    "ok": Span("ok", Style.GREEN),
    "absent": Span("not installed: tandem install gsd", Style.YELLOW),
    "damaged": Span("damaged: tandem install gsd puts it right", Style.RED),
}


def show_status(context: Context) -> int:
    around = Environment.of(Path.cwd())
    installed = integrations.installed_gsd(around)
    overlay = integrations.state_of(integrations.client_named("gsd"), around)
    rules = rules_here(Path.cwd(), config_file=context.options.config)
    if context.wants_json:
        context.screen.json(
            {"installed": [facts_of(one) for one in installed], "overlay": overlay.facts(), "rules": rules.facts()}
        )
        return Exit.DONE
    for one in installed:
        context.screen.say(Span(f"{'GSD':<10}", Style.DIM), str(one))
    if not installed:
        context.screen.say(Span(f"{'GSD':<10}", Style.DIM), "not found here")
    # Without GSD there is nothing to install it beside.
    is_needless = not installed and overlay.state == "absent"
    state = "not installed: it comes beside GSD" if is_needless else _STATES[overlay.state]
    context.screen.say(Span(f"{'overlay':<10}", Style.DIM), state)
    for problem in overlay.problems:
        context.screen.say(Span(f"{'problem':<10}", Style.RED), problem)
    for line in rules.lines():
        context.screen.say(Span(f"{'rule':<10}", Style.DIM), line)
    return Exit.DONE


def facts_of(one: InstalledGsd) -> Json:
    return {
        "line": one.line.value,
        "version": one.version,
        "runtime": one.runtime,
        "scope": one.scope.value,
        "folder": str(one.folder),
        "plugin": one.is_plugin,
    }
