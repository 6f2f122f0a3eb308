"""`tandem up`, `tandem down`, `tandem status`: the broker in the background."""

import argparse
from pathlib import Path

from gsd_review_broker import __version__
from gsd_review_broker.cli.broker.ports import Files
from gsd_review_broker.cli.commands.serve import add_settings
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.describe import counted
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_place_options, broker_options
from gsd_review_broker.cli.screen import Screen, Span, Style
from gsd_review_broker.client import RunningBroker, Target, find
from gsd_review_broker.client.connection import Json
from gsd_review_broker.client.discovery import described
from gsd_review_broker.errors import BrokerError


def register(commands: Commands) -> None:
    up = commands.add(
        "up",
        run_up,
        summary="start the broker in the background, unless it is running",
        details="There is one broker for each user and database, even if several calls run at once.",
    )
    add_settings(up)
    up.add_argument("--json", action="store_true", help="print exactly one JSON document")
    down = commands.add("down", run_down, summary="stop the broker")
    add_place_options(down)
    down.add_argument("--force", action="store_true", help="kill it if it does not stop")
    down.add_argument("--json", action="store_true", help="print exactly one JSON document")
    commands.add(
        "status",
        run_status,
        summary="show the running broker: its address, start, database and waiting reviews",
        details="Exits with 3 if no broker is running.",
        parents=[broker_options()],
    )


def run_up(options: argparse.Namespace) -> int:
    screen = Screen()
    target = Target.of(Path.cwd(), db=options.db, config=options.config, user=options.user)
    from gsd_review_broker.cli.broker import background

    with screen.progress("the broker starts"):
        started = background.start(target, flags=background.flags_of(options), port=options.port, config=options.config)
    broker = started.broker
    result = {
        "started": started.is_new,
        "url": broker.connection.url,
        "pid": broker.pid,
        "serves": broker.serves,
        "database": broker.database,
        "log": str(started.log),
    }
    if options.json:
        screen.json(result)
    else:
        verb = "started" if started.is_new else "runs"
        screen.say(f"broker {verb}: {broker.connection.url} serves {described(target.locations)} (pid {broker.pid})")
        if target.is_elsewhere:
            screen.say(f"The commands here still use the broker at {target.url}, and so does the gate.")
        for problem in _problems_of(broker):
            screen.warn(f"problem: {problem['message']}. {problem['fix']}")
    return Exit.DONE


def _problems_of(broker: RunningBroker) -> list[Json]:
    """Return the settings that the broker ignores. A broker with tokens tells them to holders of a token only."""
    try:
        return broker.connection.get("/api/problems")["problems"]
    except BrokerError:
        return []


def run_down(options: argparse.Namespace) -> int:
    screen = Screen()
    target = Target.of(Path.cwd(), db=options.db, config=options.config, user=options.user)
    target = Target(locations=target.locations, is_explicit=target.is_explicit)
    broker = find(target)
    if broker is not None:
        from gsd_review_broker.cli.broker import background

        with screen.progress("the broker is stopping"):
            background.stop(broker, target.locations.database, force=options.force)
    if options.json:
        screen.json({"ended": broker is not None, "pid": broker.pid if broker else None})
    elif broker is None:
        screen.say(f"no broker is running for {described(target.locations)}")
    else:
        screen.say(f"broker stopped: it served {described(target.locations)} (pid {broker.pid})")
    return Exit.DONE


def run_status(options: argparse.Namespace) -> int:
    context = Context(options)
    broker = context.broker
    status = context.call("broker_status")
    log = Files.of(context.target.locations.database).log
    problems = _problems_of(broker)
    result = {
        **status,
        "url": broker.connection.url,
        "pid": broker.pid,
        "database": broker.database,
        "started_at": broker.started_at,
        "log": str(log) if log.exists() else None,
        "problems": problems,
    }
    if context.wants_json:
        context.screen.json({**result, "integrations": _integrations()})
        return Exit.DONE
    waiting = sum(status["queue"].values())
    kinds = ", ".join(f"{number} {name}" for name, number in status["queue"].items() if number)
    facts = {
        "broker": f"{broker.connection.url} (pid {broker.pid}, version {broker.version})",
        "serves": broker.serves,
        "database": broker.database,
        "since": broker.started_at,
        "pending": counted(waiting, "review") + (f" ({kinds})" if kinds else ""),
        "oldest": status["oldest_pending_at"],
        "last activity": status["last_activity_at"],
        "callers waiting": str(status["waiting"]),
        "log": result["log"],
    }
    for name, value in facts.items():
        if value:
            context.screen.say(Span(f"{name:<16}", Style.DIM), str(value))
    for problem in problems:
        context.screen.say(Span(f"{'problem':<16}", Style.RED), f"{problem['message']}. {problem['fix']}")
    if broker.version != __version__:
        context.screen.warn(
            f"This command is version {__version__}: stop the broker and start it again to use one version."
        )
    return Exit.DONE


def _integrations() -> Json:
    from gsd_review_broker.cli.project_files import gate_state
    from gsd_review_broker.integrations.clients import everything_installable
    from gsd_review_broker.integrations.clients.setup import Environment
    from gsd_review_broker.integrations.detection import state_of

    around = Environment.of(Path.cwd())
    states = {str(one): state_of(one, around).facts() for one in everything_installable()}
    return {**states, "gate": {"state": gate_state(Path.cwd()).state}}
