"""The plan of `tandem setup`: what it found, what it would write, and what to do next.

Making a plan writes nothing; `carry_out` does what the plan says. It chooses who proposes and who reviews: two clients
of different vendors, or a client and a person.
"""

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.broker import background
from gsd_review_broker.cli.commands.doctor import every_check
from gsd_review_broker.cli.describe import counted
from gsd_review_broker.cli.machine_checks import Check, CheckState
from gsd_review_broker.cli.project_files import GateState, gate_state, install_gate
from gsd_review_broker.cli.screen import Screen, Span, Style
from gsd_review_broker.client import Target
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import CLIENTS, VENDORS, Audience, either
from gsd_review_broker.integrations import detection, planning
from gsd_review_broker.integrations.clients import client_named, pool_settings
from gsd_review_broker.integrations.clients.gsd import InstalledGsd, installed_gsd
from gsd_review_broker.integrations.clients.setup import Choice, Client, Environment, Scope, tandem_program
from gsd_review_broker.integrations.detection import ClientStatus
from gsd_review_broker.integrations.planning import ClientPlan, Planner, connected_role, kept_choice

PERSON = "you"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    proposer: str | None
    """None: no client is on this machine."""
    reviewer: str = PERSON


def every_pair(installed: Sequence[str]) -> list[Pair]:
    """Return the best pair first: another vendor's model makes other mistakes. A person can always review."""
    agents = [
        Pair(proposer=proposer, reviewer=reviewer)
        for proposer in installed
        for reviewer in installed
        if _vendor(proposer) != _vendor(reviewer)
    ]
    return [*agents, *(Pair(proposer=proposer) for proposer in installed)] or [Pair(proposer=None)]


def _vendor(client: str) -> str:
    """Accept a client that can use any vendor's model: a pair approves nothing."""
    return VENDORS.get(client) or client


def chosen_pair(pairs: Sequence[Pair], present: Pair | None, *, proposer: str | None, reviewer: str | None) -> Pair:
    """Choose what the user named, else what is set up, else the best. A named client need not be installed."""
    if present is not None:
        # The partner of the named client stays, unless it changes sides.
        proposer = proposer or (present.proposer if present.proposer != reviewer else None)
        reviewer = reviewer or (present.reviewer if present.reviewer != proposer else None)
    if proposer is None:
        fitting = (pair for pair in pairs if reviewer in {None, pair.reviewer})
        return next(fitting, Pair(proposer=None, reviewer=reviewer or PERSON))
    fitting = (pair for pair in pairs if pair.proposer == proposer and reviewer in {None, pair.reviewer})
    return next(fitting, Pair(proposer=proposer, reviewer=reviewer or PERSON))


def present_pair(roles: Mapping[str, str]) -> Pair | None:
    """Return the pair that is set up in the project, by the role of each connected client."""
    proposer = next((name for name, role in roles.items() if role == "proposer"), None)
    reviewer = next((name for name, role in roles.items() if role == "reviewer"), PERSON)
    return Pair(proposer=proposer, reviewer=reviewer) if proposer else None


def left_out(present: Pair | None, new: Pair) -> list[str]:
    """Return the clients of the present pair that are not in the new one. Other clients stay connected."""
    members = (present.proposer, present.reviewer) if present else ()
    return [name for name in members if name and name not in {PERSON, new.proposer, new.reviewer}]


_GSD = "gsd"


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupPlan:
    around: Environment
    found: tuple[ClientStatus, ...]
    """The clients that are on this machine."""
    gsd: tuple[InstalledGsd, ...]
    pairs: tuple[Pair, ...]
    pair: Pair
    leaving: tuple[Client, ...]
    """The clients of the present pair that are not in the new one. They are disconnected."""
    clients: tuple[ClientPlan, ...]
    """In the order in which they are carried out."""
    gate: GateState
    wants_gate: bool

    @property
    def is_change(self) -> bool:
        return self.changes_gate or any(client.is_change for client in self.clients)

    @property
    def files(self) -> dict[Path, str]:
        changes = [change for client in self.clients for change in client.changes if change.is_change]
        return {change.path: change.action for change in changes}

    @property
    def changes_gate(self) -> bool:
        return self.wants_gate and not self.gate.is_installed


def make_plan(options: argparse.Namespace, pair: Pair | None = None) -> SetupPlan:
    around = Environment.of(Path.cwd())
    root = around.project("Go into one, or make one here with `git init`.")
    found = tuple(status for status in detection.status(around, versions=False) if status.program)
    pairs = every_pair([status.client.name for status in found])
    present = present_pair(_roles(around))
    pair = pair or chosen_pair(pairs, present, proposer=options.proposer, reviewer=options.reviewer)
    leaving = tuple(map(client_named, left_out(present, pair)))
    gsd = installed_gsd(around)
    planner = Planner(around)
    clients = [planner.uninstall(client, Scope.PROJECT) for client in leaving]
    wanted = _wanted(pair, options, around, with_gsd=bool(gsd))
    clients += [planner.install(client, choice) for client, choice in wanted]
    return SetupPlan(
        around=around,
        found=found,
        gsd=gsd,
        pairs=tuple(pairs),
        pair=pair,
        leaving=leaving,
        clients=tuple(clients),
        gate=gate_state(root),
        wants_gate=not options.no_gate,
    )


def _roles(around: Environment) -> dict[str, str]:
    roles = {name: connected_role(name, around) for name in CLIENTS}
    return {name: role for name, role in roles.items() if role}


def _wanted(
    pair: Pair, options: argparse.Namespace, around: Environment, *, with_gsd: bool
) -> list[tuple[Client, Choice]]:
    names = {pair.proposer: Audience.PROPOSER, pair.reviewer: Audience.REVIEWER}
    wanted = [(client_named(name), role) for name, role in names.items() if name not in {None, PERSON}]
    if with_gsd:
        wanted.append((client_named(_GSD), Audience.PROPOSER))
    if options.pool:
        wanted.append((pool_settings(options.pool), Audience.PROPOSER))
    program = tandem_program(around, shared=options.shared)
    choice = Choice(url=None, trust=options.trust, shared=options.shared, tandem=program)
    return [(client, kept_choice(client, replace(choice, role=role), around)) for client, role in wanted]


_COLOURS = {"created": Style.GREEN, "changed": Style.YELLOW, "removed": Style.RED}
_MARKS = {CheckState.YELLOW: Span("look", Style.YELLOW), CheckState.RED: Span("bad ", Style.RED)}
_WIDEST = 100
_GATE = {
    "off": "the gate, which is off in the settings",
    "warn": "the gate, in mode warn: git reports a commit without an approval, and lets it pass",
    "block": "the gate, in mode block: git refuses a commit without an approval",
}


def show_plan(screen: Screen, plan: SetupPlan, *, was_asked: bool) -> None:
    _heading(screen, "Who does what")
    screen.say("  ", in_words(plan.pair))
    for client in plan.leaving:
        screen.say(f"  {client.full_name} is disconnected.")
    if len(plan.pairs) > 1 and not was_asked:
        screen.say(Span("  Choose another pair with --proposer and --reviewer.", Style.DIM))
    _heading(screen, "What is written")
    for path, action in plan.files.items():
        screen.say("  ", Span(f"{action:<8}", _COLOURS[action]), " ", _short(path, plan))
    if plan.changes_gate:
        screen.say("  ", Span("created ", Style.GREEN), " ", _GATE[plan.gate.mode])
    if not plan.is_change:
        screen.say("  Nothing: everything is in place.")
    else:
        screen.say(Span("  Git ignores these files, unless you use --shared. Undo: tandem uninstall --all", Style.DIM))


def show_found(screen: Screen, plan: SetupPlan) -> None:
    screen.say(Span("Tandem", Style.BOLD), f" for {plan.around.root}")
    _heading(screen, "Found on this machine")
    for status in plan.found:
        screen.say(f"  {status.client.full_name:<12} {status.program}")
    if not plan.found:
        screen.say(f"  No agent: neither {either(CLIENTS, joined='nor')} is on the PATH.")
    for one in plan.gsd:
        screen.say(f"  {'GSD':<12} {one}")


def show_pairs(screen: Screen, plan: SetupPlan) -> None:
    _heading(screen, "Who proposes, and who reviews?")
    for number, pair in enumerate(plan.pairs, 1):
        screen.say(f"  {number}  {in_words(pair)}", Span("  (suggested)" if pair == plan.pair else "", Style.DIM))


def show_checks(screen: Screen, checks: Sequence[Check]) -> None:
    _heading(screen, "Checks (tandem doctor)")
    good = sum(check.state is CheckState.GREEN for check in checks)
    screen.say("  ", Span("ok  ", Style.GREEN), f" {counted(good, 'check')}")
    for check in checks:
        if check.state is not CheckState.GREEN:
            screen.say("  ", _MARKS[check.state], f" {check.name}: {check.found}")
            _say_wrapped(screen, check.hint, indent=7)


def show_next(screen: Screen, steps: Sequence[Json], url: str, notes: Sequence[str]) -> None:
    _heading(screen, "What to type next")
    for step in steps:
        if step["client"] == PERSON:
            screen.say("  You review in the browser: ", Span("tandem open", Style.BOLD), f", or {url}/")
        else:
            name = client_named(step["client"]).full_name
            screen.say(f"  {step['doing']} run ", Span(step["client"], Style.BOLD), f" here, and type in {name}:")
            screen.say("      ", Span(step["type"], Style.BOLD))
    if steps:
        screen.say(f"  Watch both at {url}/")
    else:
        screen.say("  Install an agent, then run tandem setup again. To see how it works: tandem demo")
        screen.say(f"  The dashboard is at {url}/ (tandem open)")
    for note in notes:
        _say_wrapped(screen, note, indent=2)


def next_steps(plan: SetupPlan) -> list[Json]:
    steps: list[Json] = []
    if plan.pair.proposer is not None:
        steps.append(_step(plan.pair.proposer, Audience.PROPOSER, "To propose a change,"))
        if plan.pair.reviewer == PERSON:
            steps.append({"client": PERSON, "role": "reviewer", "type": "tandem open", "doing": ""})
    if plan.pair.reviewer != PERSON:
        steps.append(_step(plan.pair.reviewer, Audience.REVIEWER, "To review,"))
    return steps


def _step(client: str, role: Audience, doing: str) -> Json:
    return {"client": client, "role": role.value, "type": client_named(client).sentences[role], "doing": doing}


def in_words(pair: Pair) -> str:
    if pair.proposer is None and pair.reviewer == PERSON:
        return "No agent proposes yet; you review in the browser."
    proposes = f"{client_named(pair.proposer).full_name} proposes" if pair.proposer else "no agent proposes yet"
    reviews = (
        "you review in the browser" if pair.reviewer == PERSON else f"{client_named(pair.reviewer).full_name} reviews"
    )
    return f"{proposes}, {reviews}."


def _heading(screen: Screen, text: str) -> None:
    screen.say()
    screen.say(Span(text, Style.BOLD))


def _say_wrapped(screen: Screen, text: str, *, indent: int) -> None:
    for line in textwrap.wrap(text, max(min(screen.width, _WIDEST) - indent, 40)):
        screen.say(" " * indent, Span(line, Style.DIM))


def _short(path: Path, plan: SetupPlan) -> str:
    root = plan.around.project()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupResult:
    url: str
    is_new: bool
    """The broker was started now."""
    checks: tuple[Check, ...]
    notes: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return all(check.state is not CheckState.RED for check in self.checks)


def carry_out(plan: SetupPlan) -> SetupResult:
    """Write the files first: a broker that is started now already has the pool's settings."""
    done = [planning.carry_out(client) for client in plan.clients]
    target = Target.of(Path.cwd())
    target = Target(locations=target.locations, is_explicit=target.is_explicit)
    if plan.changes_gate:
        install_gate(plan.around.project(), database=target.locations.database)
    started = background.start(target)
    started.broker.connection.close()
    return SetupResult(
        url=started.broker.connection.url,
        is_new=started.is_new,
        checks=tuple(every_check(target, None)),
        notes=tuple(dict.fromkeys(note for client in done for note in client.notes)),
    )


def planned_facts(plan: SetupPlan) -> dict[str, Any]:
    return {
        "project": str(plan.around.root),
        "changed": plan.is_change,
        "clients": [{"client": status.client.name, "program": str(status.program)} for status in plan.found],
        "gsd": [
            {"line": one.line.value, "version": one.version, "runtime": one.runtime, "folder": str(one.folder)}
            for one in plan.gsd
        ],
        "pairs": [{"proposer": pair.proposer, "reviewer": pair.reviewer} for pair in plan.pairs],
        "proposer": plan.pair.proposer,
        "reviewer": plan.pair.reviewer,
        "leaving": [client.name for client in plan.leaving],
        "files": [{"path": str(path), "action": action} for path, action in plan.files.items()],
        "gate": {"state": plan.gate.state, "mode": plan.gate.mode, "wanted": plan.wants_gate},
        "next": [{key: step[key] for key in ("client", "role", "type")} for step in next_steps(plan)],
    }
