"""`tandem install` and `tandem uninstall`: each client's own configuration."""

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands
from gsd_review_broker.cli.screen import Screen, Span, Style
from gsd_review_broker.domain.words import INSTALLABLE, ROLES_WITH_TOOLS, Audience, values
from gsd_review_broker.errors import BrokerError, Code

if TYPE_CHECKING:
    from gsd_review_broker.integrations.clients.setup import Choice, Client, Environment, Scope
    from gsd_review_broker.integrations.detection import ClientStatus, ConfigFile
    from gsd_review_broker.integrations.planning import ClientPlan

_STATUS = "status"
_SCOPES = {"local": "project", "global": "user"}
_COLOURS = {"created": Style.GREEN, "changed": Style.YELLOW, "removed": Style.RED}
_INSTALL = """\
Adds one entry to the client's own configuration and keeps everything else byte for byte. `tandem uninstall` removes the
entry. By default the client starts `tandem mcp`, which finds the broker of the project, or starts it. Clients that have
skills and commands get them too. The files are kept out of git, unless --shared is given. Run it again to update an
older installation. `tandem install status` shows which clients are connected, and who answers them."""


class _NamesOrNone(tuple[str, ...]):
    """argparse compares the empty list of `nargs="*"` with the choices too."""

    __slots__ = ()

    def __contains__(self, value: object) -> bool:
        return value == [] or super().__contains__(value)


def register(commands: Commands) -> None:
    install = commands.add("install", run_install, summary="connect a client to the broker", details=_INSTALL)
    install.add_argument("clients", nargs="+", metavar="CLIENT", choices=[*INSTALLABLE, _STATUS], help=_named(_STATUS))
    _add_common(install)
    install.add_argument(
        "--role",
        choices=values((*ROLES_WITH_TOOLS, Audience.ALL)),
        default=Audience.PROPOSER.value,
        help="the role whose tools the client sees (proposer)",
    )
    how = install.add_mutually_exclusive_group()
    how.add_argument(
        "--http",
        action="store_true",
        help="connect to the address of the broker that serves this project, and not through `tandem mcp`",
    )
    how.add_argument("--url", help="connect to this address")
    install.add_argument(
        "--shared", action="store_true", help="the project's files are to be committed: do not keep them out of git"
    )
    install.add_argument(
        "--trust", action="store_true", help="let the client call the broker's tools without asking each time"
    )
    install.add_argument(
        "--gate", action="store_true", help="Claude Code: deny `git commit` without approval before it runs"
    )
    install.add_argument(
        "--runtime",
        action="append",
        choices=["claude", "codex"],
        help="GSD: the client that it runs in (each in which it is found)",
    )
    uninstall = commands.add("uninstall", run_uninstall, summary="remove what install wrote")
    uninstall.add_argument("clients", nargs="*", metavar="CLIENT", choices=_NamesOrNone(INSTALLABLE), help=_named())
    uninstall.add_argument(
        "--all", action="store_true", help="take back everything of `tandem setup` in this project, the gate too"
    )
    _add_common(uninstall)


def _named(*more: str) -> str:
    return ", ".join((*INSTALLABLE, *more))


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scope",
        type=lambda name: _SCOPES.get(name, name),
        choices=["project", "user"],
        help="this project (the default inside one), or all your projects; GSD calls them local and global",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the changes, write nothing")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")


def run_install(options: argparse.Namespace) -> int:
    from gsd_review_broker.integrations.clients.setup import Environment
    from gsd_review_broker.integrations.planning import Planner

    if _STATUS in options.clients:
        return _show_status(options)
    around = Environment.of(Path.cwd())
    choice = _choice(options, around)
    clients = _chosen(options)
    # All are planned before the first is written: a refusal comes before any file is changed.
    planner = Planner(around)
    plans = _carried_out([planner.install(client, choice) for client in clients], options)
    return _report(plans, options, around, undo=True)


def run_uninstall(options: argparse.Namespace) -> int:
    from gsd_review_broker.integrations.clients.setup import Environment
    from gsd_review_broker.integrations.planning import Planner

    around = Environment.of(Path.cwd())
    if options.all:
        return _uninstall_all(options, around)
    scope = _scope(options, around)
    clients = _chosen(options)
    planner = Planner(around)
    plans = _carried_out([planner.uninstall(client, scope) for client in clients], options)
    return _report(plans, options, around, undo=False)


def _carried_out(plans: "list[ClientPlan]", options: argparse.Namespace) -> "list[ClientPlan]":
    from gsd_review_broker.integrations.planning import carry_out

    return plans if options.dry_run else [carry_out(plan) for plan in plans]


def _uninstall_all(options: argparse.Namespace, around: "Environment") -> int:
    from gsd_review_broker.cli.project_files import gate_state, uninstall_gate
    from gsd_review_broker.integrations.clients import everything_installable, pool_settings
    from gsd_review_broker.integrations.clients.setup import Scope
    from gsd_review_broker.integrations.planning import Planner

    if options.clients or options.scope == "user":
        raise BrokerError(
            Code.INVALID_ARGUMENT, "--all takes back one project as a whole", "Leave the clients and --scope out."
        )
    scope = Scope.PROJECT
    everything = [*everything_installable(), pool_settings()]
    planner = Planner(around)
    has_gate = gate_state(around.project()).state != "absent"
    plans = _carried_out([planner.uninstall(client, scope) for client in everything], options)
    if not options.dry_run:
        uninstall_gate(around.project())
    _report([plan for plan in plans if plan.address], options, around, undo=False, gate=has_gate)
    if options.json:
        return Exit.DONE
    screen = Screen()
    taken_back = "would be taken back" if options.dry_run else "taken back"
    screen.say("The gate: ", taken_back if has_gate else "nothing to remove")
    screen.say("The review history stays. The broker runs until you stop it with tandem down.")
    return Exit.DONE


def _chosen(options: argparse.Namespace) -> "list[Client]":
    from gsd_review_broker.integrations.clients import client_named

    if not options.clients:
        raise BrokerError(Code.INVALID_ARGUMENT, "no client is named", f"Name some of {_named()}, or use --all.")
    return [client_named(name) for name in dict.fromkeys(options.clients)]


def _scope(options: argparse.Namespace, around: "Environment") -> "Scope":
    from gsd_review_broker.integrations.clients.setup import Scope

    return Scope(options.scope or ("project" if around.root else "user"))


def _choice(options: argparse.Namespace, around: "Environment") -> "Choice":
    from gsd_review_broker.integrations.clients.setup import Choice, given_endpoint, running_endpoint, tandem_program

    scope = _scope(options, around)
    role = Audience(options.role)
    if options.gate and options.clients != ["claude"]:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            "--gate is for Claude Code only",
            "Run tandem install claude --gate. For the others, tandem gate install puts the git hook in place.",
        )
    url = None
    if options.url is not None:
        url = given_endpoint(options.url, role, scope, around)
    elif options.http:
        url = running_endpoint(role, scope, around)
    return Choice(
        url=url,
        role=role,
        scope=scope,
        trust=options.trust,
        gate=options.gate,
        shared=options.shared,
        runtimes=tuple(options.runtime or ()),
        tandem=tandem_program(around, shared=options.shared),
    )


def _report(
    plans: "list[ClientPlan]", options: argparse.Namespace, around: "Environment", *, undo: bool, **facts: bool
) -> int:
    screen = Screen()
    if options.json:
        screen.json({"dry_run": options.dry_run, "results": [_facts(plan, around) for plan in plans], **facts})
        return Exit.DONE
    for plan in plans:
        if options.dry_run:
            _show_difference(screen, plan)
        else:
            _show_done(screen, plan, around, undo=undo)
        for note in plan.notes:
            screen.say("  ", note)
    return Exit.DONE


def _show_difference(screen: Screen, plan: "ClientPlan") -> None:
    if not plan.is_change:
        screen.say(f"{plan.client.full_name} ({plan.scope}): nothing to change")
    for change in plan.changes:
        if change.is_change:
            screen.block(change.difference().removesuffix("\n"))


def _show_done(screen: Screen, plan: "ClientPlan", around: "Environment", *, undo: bool) -> None:
    name = f"{plan.client.full_name} ({plan.scope})"
    if undo:
        missing = _missing(plan.client, around)
        screen.say(Span(name, Style.BOLD), f": {_done(plan, is_missing=missing is not None)}")
        if missing:
            screen.say("  ", missing)
    else:
        done = "taken back" if plan.address else "nothing to remove"
        screen.say(Span(name, Style.BOLD), f": {done}")
    for change in plan.changes:
        if change.is_change:
            screen.say("  ", Span(f"{change.action:<8}", _COLOURS[change.action]), " ", _short(change.path, around))
    if undo and plan.is_change:
        screen.say(f"  Undo: tandem uninstall {plan.client} --scope {plan.scope}")


def _done(plan: "ClientPlan", *, is_missing: bool) -> str:
    if plan.client.server is None:
        return "installed" if plan.is_change else "already installed"
    verb = "will connect to" if is_missing else "connected to" if plan.is_change else "already connected to"
    return f"{verb} {plan.address}"


def _missing(client: "Client", around: "Environment") -> str | None:
    """Return a note about a client that is not on this machine: its files are written all the same."""
    if client.server is None or shutil.which(client.name, path=around.path):
        return None
    return f"{client.full_name} is not installed: there is no {client.name} on the PATH."


def _short(path: Path, around: "Environment") -> str:
    if around.root and path.is_relative_to(around.root):
        return str(path.relative_to(around.root))
    return f"~/{path.relative_to(around.home)}" if path.is_relative_to(around.home) else str(path)


def _facts(plan: "ClientPlan", around: "Environment") -> dict[str, Any]:
    return {
        "client": plan.client.name,
        "scope": plan.scope.value,
        "address": plan.address,
        "installed": _missing(plan.client, around) is None,
        "changed": plan.is_change,
        "files": [
            {"path": str(change.path), "action": change.action, "diff": change.difference()} for change in plan.changes
        ],
        "notes": list(plan.notes),
    }


def _show_status(options: argparse.Namespace) -> int:
    from gsd_review_broker.integrations.clients.setup import Environment
    from gsd_review_broker.integrations.detection import status

    if options.clients != [_STATUS]:
        raise BrokerError(Code.INVALID_ARGUMENT, "status cannot be combined with clients", "Run tandem install status.")
    screen = Screen()
    around = Environment.of(Path.cwd())
    with screen.progress("asking the clients for their versions"):
        clients = status(around)
    if options.json:
        screen.json({"clients": [_client_facts(client) for client in clients]})
        return Exit.DONE
    rows = [
        (
            client.client.full_name,
            client.version or ("found" if client.program else "not found"),
            *_shown(place, around),
        )
        for client in clients
        for place in client.places
    ]
    screen.table(("CLIENT", "VERSION", "SCOPE", "SERVER", "FILE"), rows)
    return Exit.DONE


def _shown(place: "ConfigFile", around: "Environment") -> tuple[str, str, str]:
    match place.owner:
        case "ours":
            text = _with_answer(place)
        case "foreign":
            text = f"{_with_answer(place)} (not by tandem install)"
        case "unreadable":
            text = "cannot be read"
        case _:
            text = "-"
    return place.scope.value, text, _short(place.path, around)


def _with_answer(place: "ConfigFile") -> str:
    if not _is_address(place):
        return place.url or "?"
    serves = _serves(place)
    return f"{place.url} ({f'serves {serves}' if serves else 'no answer'})"


def _is_address(place: "ConfigFile") -> bool:
    return (place.url or "").startswith(("http://", "https://"))


def _serves(place: "ConfigFile") -> str | None:
    from gsd_review_broker.client.discovery import answering

    broker = answering(place.url or "") if _is_address(place) else None
    return broker.serves if broker else None


def _client_facts(client: "ClientStatus") -> dict[str, Any]:
    return {
        "client": client.client.name,
        "program": str(client.program) if client.program else None,
        "version": client.version,
        "configured": client.is_configured,
        "places": [
            {
                "scope": place.scope.value,
                "path": str(place.path),
                "origin": place.owner.value,
                "url": place.url,
                "serves": _serves(place),
                "problem": place.problem,
            }
            for place in client.places
        ],
    }
