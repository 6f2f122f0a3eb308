"""The start of a session in a GSD project: the broker runs, and the overlay is whole."""

from pathlib import Path

from gsd_review_broker import integrations
from gsd_review_broker.cli.broker import background
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gsd.rules import rules_here
from gsd_review_broker.client import Target
from gsd_review_broker.client.connection import Json
from gsd_review_broker.errors import BrokerError, StartError
from gsd_review_broker.integrations import Environment
from gsd_review_broker.integrations.clients.gsd import NAME, project_config
from gsd_review_broker.settings import locations


def start_session(context: Context) -> int:
    """A hook that fails would disturb a session that needs no review; what is wrong is printed instead."""
    around = Environment.of(Path.cwd())
    result: Json = {"project": None, "broker": None, "repaired": [], "problems": []}
    if around.root is None or not _is_ours(around):
        return _finished(context, result)
    result["project"] = str(around.root)
    try:
        result["repaired"] = _repaired(around)
        if rules_here(around.root, config_file=context.options.config).is_on:
            result["broker"] = _broker(context)
    except (BrokerError, StartError) as error:
        result["problems"].append(str(error))
    return _finished(context, result)


def _is_ours(around: Environment) -> bool:
    """An account's hook runs in every folder; only GSD's projects, and those that were set up, are ours."""
    if around.root is None:
        return False
    in_project = integrations.connected_role(NAME, around) is not None
    return in_project or project_config(around.root).is_file()


def _repaired(around: Environment) -> list[str]:
    done = integrations.repair(integrations.client_named(NAME), around)
    return [str(change.path) for client in done for change in client.changes if change.is_change]


def _broker(context: Context) -> str:
    options = context.options
    target = Target.of(Path.cwd(), db=options.db, config=options.config, user=options.user, environment=None)
    target = Target(locations=target.locations, is_explicit=target.is_explicit)
    _, origin = locations.setting("port", target.locations.root, flag=None, config=options.config)
    started = background.start(target, port_is_free=origin == "default")
    started.broker.connection.close()
    return started.broker.connection.url


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
