"""What GSD's agents have to do about reviews, from the settings and the gate's mode."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.broker import background
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.project_files import gate_state
from gsd_review_broker.cli.screen import Span, Style
from gsd_review_broker.client import Target
from gsd_review_broker.client.connection import Json
from gsd_review_broker.errors import BrokerError, StartError
from gsd_review_broker.git.discovery import find_root
from gsd_review_broker.integrations.clients import client_named
from gsd_review_broker.integrations.clients.gsd import NAME, InstalledGsd, installed_gsd, project_config
from gsd_review_broker.integrations.clients.setup import Environment
from gsd_review_broker.integrations.detection import state_of
from gsd_review_broker.integrations.planning import connected_role, repair
from gsd_review_broker.settings import config
from gsd_review_broker.settings.config import REVIEW_SETTINGS
from gsd_review_broker.settings.schema import Settings

_FAIL_MODES = {
    "closed": "fail_mode closed: without a broker, commit nothing, and report that you are blocked.",
    "open": 'fail_mode open: without a broker, commit, and write "not reviewed" into SUMMARY.md.',
}
_SIZES = {
    "per_task": "per_task: propose each task by itself, before its commit.",
    "per_plan": "per_plan: do all tasks of the plan, stage them together, propose once, and commit once.",
}
_MODES = {
    "blocking": "blocking: wait for the verdict before you commit.",
    "optimistic": "optimistic: propose with --skip-diff-validation, commit with the trailer, go on, and run "
    "`tandem gsd check` before each task and at the end.",
}
_GATE_LINES = {
    "block": "The git gate refuses a commit without an approval.",
    "warn": "The git gate only warns about a commit without an approval.",
    "off": "There is no git gate here.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    settings: Settings
    gate_mode: str
    """off, too, where no gate is installed."""
    plan_first: bool = False
    problems: tuple[str, ...] = ()

    @property
    def is_on(self) -> bool:
        return self.settings.review.enabled

    @property
    def execution_mode(self) -> str:
        """Return "blocking" if the gate blocks: it takes no commit whose review is pending."""
        return "blocking" if self.gate_mode == "block" else self.settings.execution_mode

    @property
    def gates(self) -> dict[str, bool]:
        return self.settings.review.required_gates.model_dump()

    def facts(self) -> dict[str, Any]:
        return {
            "enabled": self.is_on,
            "fail_mode": self.settings.review.fail_mode,
            "required_gates": self.gates,
            "review_granularity": self.settings.review_granularity,
            "execution_mode": self.execution_mode,
            "gate_mode": self.gate_mode,
            "plan_first": self.plan_first,
            "problems": list(self.problems),
        }

    def lines(self) -> Iterator[str]:
        if self.is_on:
            needed = ", ".join(name for name, is_needed in self.gates.items() if is_needed) or "none"
            skipped = ", ".join(name for name, is_needed in self.gates.items() if not is_needed) or "none"
            yield f"review is on. Checkpoints that need an approval: {needed}. That need none: {skipped}."
            yield _SIZES[self.settings.review_granularity]
            yield _MODES[self.execution_mode]
            if self.execution_mode != self.settings.execution_mode:
                yield "(execution_mode is optimistic in the settings, but the gate is in mode block, so wait.)"
            yield _FAIL_MODES[self.settings.review.fail_mode]
        else:
            yield "review is off: propose nothing, and work as GSD says."
        yield _GATE_LINES[self.gate_mode]
        if self.plan_first:
            yield "plan_first: code is not taken while a plan of the current phase is not approved as it is."
        for problem in self.problems:
            yield f"problem: {problem}"


def rules_here(folder: Path, *, config_file: str | None = None) -> Rules:
    loaded = config.load(root=find_root(folder), flags={"config": config_file})
    gate = gate_state(folder)
    return Rules(
        settings=loaded.settings,
        gate_mode=gate.mode if gate.is_installed else "off",
        plan_first=gate.is_installed and gate.plan_first,
        problems=tuple(problem.message for problem in loaded.problems if problem.feature in REVIEW_SETTINGS),
    )


_STATES = {
    "ok": Span("ok", Style.GREEN),
    "absent": Span("not installed: tandem install gsd", Style.YELLOW),
    "damaged": Span("damaged: tandem install gsd puts it right", Style.RED),
}


def show_rules(context: Context) -> int:
    rules = rules_here(Path.cwd(), config_file=context.options.config)
    if context.wants_json:
        context.screen.json(rules.facts())
    else:
        for line in rules.lines():
            context.screen.say(line)
    return Exit.DONE


def show_status(context: Context) -> int:
    around = Environment.of(Path.cwd())
    installed = installed_gsd(around)
    overlay = state_of(client_named("gsd"), around)
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


def start_session(context: Context) -> int:
    """Print problems instead of failing: a failing hook would disturb a session that needs no review."""
    around = Environment.of(Path.cwd())
    result: Json = {"project": None, "broker": None, "repaired": [], "problems": []}
    # An account's hook runs in every folder: in projects of GSD, in those that were set up, and in others.
    if around.root is None or not (connected_role(NAME, around) is not None or project_config(around.root).is_file()):
        return _finished(context, result)
    result["project"] = str(around.root)
    try:
        result["repaired"] = _repaired(around)
        if rules_here(around.root, config_file=context.options.config).is_on:
            result["broker"] = _broker(context)
    except (BrokerError, StartError) as error:
        result["problems"].append(str(error))
    return _finished(context, result)


def _repaired(around: Environment) -> list[str]:
    done = repair(client_named(NAME), around)
    return [str(change.path) for client in done for change in client.changes if change.is_change]


def _broker(context: Context) -> str:
    options = context.options
    target = Target.of(Path.cwd(), db=options.db, config=options.config, user=options.user)
    broker = background.start(target, config=options.config).broker
    broker.connection.close()
    return broker.connection.url


def _finished(context: Context, result: Json) -> int:
    if context.wants_json:
        context.screen.json(result)
        return Exit.DONE
    if result["broker"]:
        context.screen.say(
            f"Tandem: plans and commits are reviewed here (skill tandem-review). The broker runs at {result['broker']}."
        )
    for path in result["repaired"]:
        context.screen.say(f"Tandem: put back what was missing in {path}.")
    for problem in result["problems"]:
        context.screen.say(f"Tandem: {problem}")
    return Exit.DONE
