"""`tandem doctor`: checks this machine, then the broker, the clients, the pool and the gate."""

import argparse
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gsd_review_broker import __version__
from gsd_review_broker.cli.broker import ports
from gsd_review_broker.cli.context import keepers_token
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.machine_checks import (
    Check,
    CheckState,
    command,
    configuration,
    database,
    git,
    green,
    python,
    red,
    repository,
    reviewers,
    sqlite,
    state_folder,
    yellow,
)
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.cli.screen import Screen, Span, Style
from gsd_review_broker.client import RunningBroker, Target, UnreachableError, connect
from gsd_review_broker.client.connection import Connection, Json
from gsd_review_broker.client.discovery import answering
from gsd_review_broker.domain.text import in_words
from gsd_review_broker.errors import BrokerError, StartError
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.locations import own_token

if TYPE_CHECKING:
    from gsd_review_broker.integrations.detection import ClientStatus, ConfigFile

_RESTART = "Restart the broker from here: `tandem down; tandem up`."


def connected(target: Target) -> RunningBroker:
    return connect(target, token=own_token() or keepers_token(target))


def broker(target: Target) -> Iterator[Check]:
    try:
        running = connected(target)
        status = running.connection.call("broker_status", {})
    except UnreachableError as error:
        yield yellow("broker", error.message, error.hint)
        if target.url is None:
            yield _port(target)
        return
    except BrokerError as error:
        # It needs a token, or the token's file is not the user's alone.
        yield red("broker", error.message, error.hint)
        return
    since = in_words(status["uptime_seconds"])
    where = f"{running.connection.url}, pid {running.pid}, for {since}, serves {running.serves}"
    if running.version == __version__:
        yield green("broker", where)
    else:
        repair = "ask the person who runs it" if target.is_elsewhere else "stop it and start it again"
        hint = f"This is {__version__}: {repair}{'' if target.is_elsewhere else ' with `tandem down; tandem up`'}."
        yield yellow("broker", f"{where}, version {running.version}", hint)


def _port(target: Target) -> Check:
    value, origin = locations.setting("port", target.locations.root, flag=None, config=None)
    port = int(value) if str(value or "").isdigit() else ports.usual(target.locations.database)
    if ports.can_listen(port):
        return green("port", f"{port} is free")
    another = "`tandem up` takes another one; `tandem mcp` and the commands find it."
    hint = another if origin == "default" else f"Stop it, or set another port: this one comes from the {origin}."
    return yellow("port", f"{port} is taken{_holder(port)}", hint)


def _holder(port: int) -> str:
    try:
        health = Connection(f"http://127.0.0.1:{port}").get("/healthz")
        return f" by the broker that serves {health['serves']} (pid {health['pid']})"
    except (UnreachableError, KeyError):
        return " by another program"


def gate(target: Target) -> Check:
    from gsd_review_broker.gate import install

    root = target.locations.root
    if root is None:
        return green("gate", "outside a repository there is nothing to guard")
    site = install.GateSite.of(root)
    state, policy = install.state(site), install.policy_of(site)
    if policy.problem and state != "absent":
        return red("gate", f"its configuration cannot be read, so it blocks: {policy.problem}", "Fix that file.")
    match state:
        case "ok":
            asked = f", asks the broker at {target.url}" if target.is_elsewhere else ""
            return green("gate", f"in place, mode {policy.mode}{asked}")
        case "damaged":
            return red("gate", "its hook is damaged, and git may not run it", "Run `tandem gate install` again.")
        case _:
            return yellow(
                "gate",
                "not installed: git also commits changes without an approval",
                "With `tandem gate install`, only approved content can land.",
            )


# Which clients know the broker, and does what they know lead to the right one? The broker that answers there decides.


def clients(target: Target) -> Iterator[Check]:
    from gsd_review_broker.integrations import detection
    from gsd_review_broker.integrations.clients.setup import Environment

    around = Environment.of(Path.cwd())
    statuses = detection.status(around, versions=False)
    is_connected = any(place.url for status in statuses for place in status.places)
    for status in statuses:
        check = _check(status, target, is_enough=is_connected)
        if check is not None:
            yield check


def _check(status: "ClientStatus", target: Target, *, is_enough: bool) -> Check | None:
    """`is_enough`: some client is connected, so that another one need not be."""
    name = status.client.name
    unreadable = next((place for place in status.places if place.problem), None)
    if unreadable is not None:
        return yellow(name, f"{unreadable.path}: {unreadable.problem}", "Fix the file.")
    connected = [place for place in status.places if place.url]
    if not connected:
        return _unconnected(name, is_enough=is_enough) if status.program else None
    if status.program is None:
        found = f"connected, but not installed: there is no {name} on the PATH"
        return yellow(name, found, f"Install {status.client.full_name}, or run tandem uninstall {name}.")
    wrong = next(filter(None, (_what_is_wrong(place, target) for place in connected)), None)
    if wrong is not None:
        return yellow(name, wrong, f"tandem install {name} connects it to the broker of this folder.")
    return green(name, f"connected: {', '.join(place.url or '' for place in connected)}")


def _unconnected(name: str, *, is_enough: bool) -> Check:
    if is_enough:
        return green(name, f"not connected (tandem install {name} connects it)")
    return yellow(name, "installed, but not connected", f"tandem install {name}")


def _what_is_wrong(place: "ConfigFile", target: Target) -> str | None:
    """Return None if the entry leads to the broker of this folder, or will start it."""
    address = place.url or ""
    if not address.startswith(("http://", "https://")):
        program = shlex.split(address)[0]
        return None if shutil.which(program) else f"{place.path} names {program}, which is not on the PATH"
    broker = answering(address)
    if broker is None:
        # Another machine may answer only to that machine's clients.
        return f"no broker answers at {address}" if address.startswith("http://") else None
    accepted = {target.locations.serves} if place.scope.value == "project" else {target.locations.serves, "user"}
    return None if broker.serves in accepted else f"connected to {address}, which serves {broker.serves}"


# The pool: is it on, is its agent logged in, does its environment reach it?


def pool(target: Target) -> Iterator[Check]:
    """Ask the running broker: the environment in which it was started applies."""
    try:
        running = connected(target)
        state = running.connection.get("/api/pool")
        problems = running.connection.get("/api/problems")["problems"]
        running.connection.close()
    except (UnreachableError, BrokerError):
        return
    for problem in problems:
        if problem["feature"] == "settings":
            yield yellow("settings", problem["message"], problem["fix"])
    if not state["enabled"]:
        return
    if state["problem"]:
        yield yellow("pool", state["problem"], "`tandem pool list` and `tandem pool logs` show more.")
    else:
        yield green("pool", f"on, starts {state['agent']}")
    # A broker of an older version says nothing about it.
    if login := state.get("login"):
        yield from _login(state["agent"], login)


def _login(agent: str, login: Json) -> Iterator[Check]:
    if login["known"] and not login["seen"]:
        yield yellow("pool login", f"nothing shows that {agent} is logged in where the broker runs", login["advice"])
    elif login["seen"]:
        yield green("pool login", f"{agent} by {login['seen']}")
    absent = [name for name in login["passed"] if os.environ.get(name) and name not in login["present"]]
    if absent:
        yield yellow(
            "pool environment",
            f"{', '.join(absent)}: set here, but the broker was started without, so reviewers do not get it",
            _RESTART,
        )


def every_check(target: Target, config: str | None) -> Iterator[Check]:
    simple: tuple[Callable[[], Check], ...] = (python, git, sqlite, command)
    for check in simple:
        yield check()
    yield repository(target)
    yield from configuration(target, config)
    yield from database(target)
    yield from state_folder()
    yield from broker(target)
    yield from clients(target)
    yield reviewers()
    yield from pool(target)
    yield gate(target)


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
