"""What `tandem setup` found in a project, and what it would do there. It reads, and writes nothing.

It also chooses who proposes and who reviews: two clients of different vendors, or a client and a person.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gsd_review_broker import integrations
from gsd_review_broker.cli.gate.setup import GateState, gate_state
from gsd_review_broker.domain.words import CLIENTS, VENDORS, Audience
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations import Choice, Client, ClientPlan, ClientStatus, Environment, InstalledGsd, Scope

PERSON = "you"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    proposer: str | None
    """None: no client is on this machine."""
    reviewer: str = PERSON


def every_pair(installed: Sequence[str]) -> list[Pair]:
    """The best first: another vendor's model makes other mistakes. A person can review in any case."""
    agents = [
        Pair(proposer=proposer, reviewer=reviewer)
        for proposer in installed
        for reviewer in installed
        if _vendor(proposer) != _vendor(reviewer)
    ]
    return [*agents, *(Pair(proposer=proposer) for proposer in installed)] or [Pair(proposer=None)]


def _vendor(client: str) -> str:
    """A client that can use any vendor's model is as good as another vendor here: nothing is approved by a pair."""
    return VENDORS.get(client) or client


def chosen_pair(pairs: Sequence[Pair], present: Pair | None, *, proposer: str | None, reviewer: str | None) -> Pair:
    """What the user named; else what is set up already; else the best. A named client need not be installed."""
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
    """What is set up in the project, by the role of each connected client."""
    proposer = next((name for name, role in roles.items() if role == "proposer"), None)
    reviewer = next((name for name, role in roles.items() if role == "reviewer"), PERSON)
    return Pair(proposer=proposer, reviewer=reviewer) if proposer else None


def left_out(present: Pair | None, new: Pair) -> list[str]:
    """The clients of the present pair that the new one does without. Other connected clients are the user's own."""
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
        """What happens to each; two clients may change the same one."""
        changes = [change for client in self.clients for change in client.changes if change.is_change]
        return {change.path: change.action for change in changes}

    @property
    def changes_gate(self) -> bool:
        return self.wants_gate and not self.gate.is_installed


def make_plan(options: argparse.Namespace, pair: Pair | None = None) -> SetupPlan:
    """With a pair that the user picked from the list, or with the one that the options name."""
    around = Environment.of(Path.cwd())
    root = around.project("Go into one, or make one here with `git init`.")
    found = tuple(status for status in integrations.status(around, versions=False) if status.program)
    pairs = every_pair([status.client.name for status in found])
    present = present_pair(_roles(around))
    pair = pair or chosen_pair(pairs, present, proposer=options.proposer, reviewer=options.reviewer)
    leaving = tuple(map(integrations.client_named, left_out(present, pair)))
    gsd = integrations.installed_gsd(around)
    planner = integrations.Planner(around)
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
        gate=must_gate_state(root),
        wants_gate=not options.no_gate,
    )


def must_gate_state(root: Path) -> GateState:
    state = gate_state(root)
    if state is None:
        raise BrokerError(Code.NOT_FOUND, f"{root} is not a git repository any more", "Go to the repository.")
    return state


def _roles(around: Environment) -> dict[str, str]:
    roles = {name: integrations.connected_role(name, around) for name in CLIENTS}
    return {name: role for name, role in roles.items() if role}


def _wanted(
    pair: Pair, options: argparse.Namespace, around: Environment, *, with_gsd: bool
) -> list[tuple[Client, Choice]]:
    """Each client, and how it is connected."""
    names = {pair.proposer: Audience.PROPOSER, pair.reviewer: Audience.REVIEWER}
    wanted = [(integrations.client_named(name), role) for name, role in names.items() if name not in {None, PERSON}]
    if with_gsd:
        wanted.append((integrations.client_named(_GSD), Audience.PROPOSER))
    if options.pool:
        wanted.append((integrations.pool_settings(options.pool), Audience.PROPOSER))
    program = integrations.tandem_program(around, shared=options.shared)
    choice = Choice(url=None, trust=options.trust, shared=options.shared, tandem=program)
    return [(client, integrations.kept_choice(client, replace(choice, role=role), around)) for client, role in wanted]
