"""`tandem token …`: who may call the broker, and as what."""

import argparse

from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.domain.words import TokenRole, values

_TITLES = ("NAME", "ROLE", "PROJECT", "STATE", "CREATED", "EXPIRES", "BY")


def register(commands: Commands) -> None:
    token = commands.group("token", summary="who may call the broker, and as what")
    shared = [broker_options()]
    new = token.add(
        "new",
        run_new,
        summary="make a token and print it once",
        details="The broker stores only a hash of it. It counts where the setting auth is token. Whoever can open the\n"
        "database may do this, whether the broker is running or not.",
        parents=shared,
    )
    new.add_argument("--role", required=True, choices=values(TokenRole), help="what it allows")
    new.add_argument("--name", help="whose it is; rules compare this name (a new one)")
    new.add_argument("--project", help="its holder sees only this project")
    new.add_argument("--expires", metavar="TIME", help="in minutes, hours or days: 90m, 12h, 30d (never)")
    token.add("list", run_list, summary="list tokens, the newest first", parents=shared)
    revoke = token.add("revoke", run_revoke, summary="make a token invalid at once", parents=shared)
    revoke.add_argument("name", metavar="NAME", help="its name, as `tandem token list` shows it")


def run_new(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.tokens import TokenDesk

    desk = TokenDesk(options)
    made = desk.new(role=options.role, name=options.name, project=options.project, expires=options.expires)
    if desk.context.wants_json:
        desk.context.screen.json(made)
        return Exit.DONE
    print(made["token"])
    until = f"until {made['expires_at']}" if made["expires_at"] else "until it is revoked"
    where = f" in project {made['project']}" if made["project"] else ""
    desk.context.screen.warn(
        f"This is the token of {made['identity']}, {made['role']}{where}, {until}. It is not shown again."
    )
    return Exit.DONE


def run_list(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.render.describe import moment
    from gsd_review_broker.cli.tokens import TokenDesk

    desk = TokenDesk(options)
    listed = desk.listed()
    screen = desk.context.screen
    if desk.context.wants_json:
        screen.json(listed)
    elif listed["tokens"]:
        screen.table(
            _TITLES,
            [
                [row["name"], row["role"], row["project"] or "", row["state"], moment(row["created_at"]),
                 moment(row["expires_at"] or ""), row["created_by"]]
                for row in listed["tokens"]
            ],
        )  # fmt: skip
    else:
        screen.say("no tokens")
    return Exit.DONE


def run_revoke(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.tokens import TokenDesk

    desk = TokenDesk(options)
    revoked = desk.revoke(options.name)
    desk.context.answer(revoked, revoked["name"], " is revoked")
    return Exit.DONE
