"""`tandem token …`: who may call the broker, and as what.

The running broker makes a token; without one, this command writes it into the database. A user who can open the
database is its administrator: the command calls a running broker with the keeper's token from its runtime file.
"""

import argparse
from collections.abc import Awaitable, Callable
from typing import Any, cast

from gsd_review_broker.cli.context import Context, configuration_of, keepers_connection
from gsd_review_broker.cli.describe import moment
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.cli.screen import Part
from gsd_review_broker.client.connection import Connection, Json
from gsd_review_broker.domain.words import TokenRole, values
from gsd_review_broker.settings.names import person_here

_TITLES = ("NAME", "ROLE", "PROJECT", "STATE", "CREATED", "EXPIRES", "BY")


def register(commands: Commands) -> None:
    token = commands.group("token", summary="who may call the broker, and as what", parents=[broker_options()])
    new = token.add(
        "new",
        run_new,
        summary="make a token and print it once",
        details="The broker stores only a hash of it. It applies where the setting auth is token. A user who\n"
        "can open the database may do this, whether the broker is running or not.",
    )
    new.add_argument("--role", required=True, choices=values(TokenRole), help="what it allows")
    new.add_argument("--name", help="whose it is; rules compare this name (a new one)")
    new.add_argument("--project", help="its holder sees only this project")
    new.add_argument("--expires", metavar="TIME", help="in minutes, hours or days: 90m, 12h, 30d (never)")
    token.add("list", run_list, summary="list tokens, the newest first")
    revoke = token.add("revoke", run_revoke, summary="make a token invalid at once")
    revoke.add_argument("name", metavar="NAME", help="its name, as `tandem token list` shows it")


def run_new(options: argparse.Namespace) -> int:
    context = Context(options)
    facts = {"role": options.role, "name": options.name, "project": options.project, "expires": options.expires}
    connection = _connection(context)
    if connection is not None:
        made = connection.post("/api/tokens", {name: value for name, value in facts.items() if value is not None})
    else:
        made = _in_database(options, lambda tokens: tokens.new(person_here(), facts.pop("role"), **facts))
    if context.wants_json:
        context.screen.json(made)
        return Exit.DONE
    print(made["token"])
    until = f"until {made['expires_at']}" if made["expires_at"] else "until it is revoked"
    where = f" in project {made['project']}" if made["project"] else ""
    context.screen.warn(
        f"This is the token of {made['identity']}, {made['role']}{where}, {until}. It is not shown again."
    )
    return Exit.DONE


def run_list(options: argparse.Namespace) -> int:
    context = Context(options)
    connection = _connection(context)
    listed = connection.get("/api/tokens") if connection else _in_database(options, lambda tokens: tokens.listed())
    if context.wants_json:
        context.screen.json(listed)
    elif listed["tokens"]:
        context.screen.table(_TITLES, [_row(token) for token in listed["tokens"]])
    else:
        context.screen.say("no tokens")
    return Exit.DONE


def _row(token: Json) -> list[Part]:
    created, expires = moment(token["created_at"]), moment(token["expires_at"] or "")
    return [token["name"], token["role"], token["project"] or "", token["state"], created, expires, token["created_by"]]


def run_revoke(options: argparse.Namespace) -> int:
    context = Context(options)
    connection = _connection(context)
    if connection is not None:
        revoked = connection.post("/api/tokens/revoke", {"name": options.name})
    else:
        revoked = _in_database(options, lambda tokens: tokens.revoke(options.name))
    context.answer(revoked, revoked["name"], " is revoked")
    return Exit.DONE


def _connection(context: Context) -> Connection | None:
    """Return the connection to the running broker, or None.

    A broker that the user names by its address gets the caller's own token; another one gets the keeper's."""
    if context.target.url:
        return context.broker.connection
    return keepers_connection(context, own_token_first=False)


def _in_database(options: argparse.Namespace, do: Callable[[Any], Awaitable[Any]]) -> Json:
    from gsd_review_broker import maintenance

    return cast("Json", maintenance.with_tokens(configuration_of(options, is_stored=True), do))
