"""The database as a whole, for people: verifying, exporting, pruning."""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

from gsd_review_broker import client
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.render.screen import Screen, Span, Style
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.checkout import find_root
from gsd_review_broker.settings.locations import COMMAND_LINE, chosen_database, locate
from gsd_review_broker.settings.state_files import Database

_SHOWN_PROBLEMS = 20
_SQLITE = "sqlite:///"


def verify(options: argparse.Namespace) -> int:
    # Imported here: other commands do not pay for the store.
    from gsd_review_broker import maintenance

    screen = Screen()
    with screen.progress("reading every event"):
        report = maintenance.verify(_database(options), [Path(name) for name in options.archive])
    if options.json:
        screen.json({"whole": not report.problems, **dataclasses.asdict(report)})
        return Exit.FAILED if report.problems else Exit.DONE
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        screen.say(Span("not whole  ", Style.RED), problem)
    if len(report.problems) > _SHOWN_PROBLEMS:
        screen.say(f"and {len(report.problems) - _SHOWN_PROBLEMS} more (--json lists all)")
    if report.problems:
        return Exit.FAILED
    screen.say(Span("whole", Style.GREEN), f"  {report.events:,} events, {report.reviews:,} reviews")
    if not report.statistics_checked and report.archived_events:
        screen.say(
            f"{report.archived_events:,} events are in archives; the statistics count them too and were not compared "
            "(--archive FILE for each of them)."
        )
    return Exit.DONE


def export(options: argparse.Namespace) -> int:
    from gsd_review_broker import maintenance

    with _target(options.output) as target:
        for event in maintenance.export(_database(options)):
            target.write(json.dumps(event) + "\n")
    return Exit.DONE


@contextlib.contextmanager
def _target(name: str | None) -> Generator[TextIO]:
    """Standard output, or a new file that appears only when it is complete."""
    if name is None:
        yield sys.stdout
        return
    try:
        file = Path(name).open("x", encoding="utf-8")  # noqa: SIM115 - it is removed if something fails
    except FileExistsError as error:
        raise BrokerError(Code.CONFLICT, f"{name} is there already", "Give another name.") from error
    except OSError as error:
        raise BrokerError(Code.UNAVAILABLE, f"{name} cannot be written: {error}", "Give another name.") from error
    try:
        with file:
            yield file
    except OSError as error:
        Path(name).unlink()
        raise BrokerError(Code.UNAVAILABLE, f"{name} cannot be written: {error}", "Give another name.") from error
    except BaseException:
        Path(name).unlink()
        raise


def prune(options: argparse.Namespace) -> int:
    """By the broker if one is running, else here."""
    context = Context(options)
    moved = 0
    last: dict[str, Any] = {}

    def said(turn: Any) -> None:
        nonlocal moved, last
        moved, last = moved + turn["reviews"], turn

    # A broker that was named by its address is asked, and nothing else.
    if context.target.url or client.find(context.target) is not None:
        more = True
        while more:
            said(context.post("/api/db/prune", closed_before=options.closed_before))
            more = last["more"]
    else:
        _prune_here(options, said)
    result = {**last, "reviews": moved}
    result.pop("more", None)
    if context.wants_json:
        context.screen.json(result)
    elif moved:
        context.screen.say(f"{moved:,} reviews moved into {result['archive']}, {_archives(context)}.")
    else:
        context.screen.say("nothing was closed before then; nothing was moved.")
    return Exit.DONE


def migrate(options: argparse.Namespace) -> int:
    from gsd_review_broker import moving

    screen = Screen()
    root = None if options.user else find_root(Path.cwd())
    source = _database(options)
    target = chosen_database(options.target.removeprefix(_SQLITE), COMMAND_LINE, root)

    def told() -> None:
        if not options.json:
            screen.say(f"moved  {target} can be used now; it is verified once more.")

    with screen.progress("copying and comparing"):
        moved = moving.move(source, target, when_moved=told)
    if options.json:
        screen.json({"from": str(source), "to": str(target), **dataclasses.asdict(moved)})
        return Exit.DONE
    screen.say(Span("same", Style.GREEN), f"  {moved.events:,} events, {moved.reviews:,} reviews in {target}")
    screen.say(f"Writes were held for {moved.cut_over_seconds:.1f} s. From now on {source} refuses them.")
    screen.say("Restart the broker with the new database (--db, BROKER_DB or `db` in your configuration).")
    screen.say("To go on with the old one instead: `tandem db reopen`.")
    return Exit.DONE


def reopen(options: argparse.Namespace) -> int:
    from gsd_review_broker import moving

    screen = Screen()
    database = _database(options)
    to = moving.reopen(database)
    if options.json:
        screen.json({"database": str(database), "was_moved_to": to})
    elif to is None:
        screen.say(f"{database} is open; nothing was changed.")
    else:
        screen.say(f"{database} is open again. What was stored in {to} since the move is only there.")
    return Exit.DONE


def _archives(context: Context) -> str:
    """Where they are."""
    if context.target.url is None and context.target.locations.database.url is not None:
        return "in the broker's data folder (archives)"
    return "beside the database"


def _prune_here(options: argparse.Namespace, report: Any) -> None:
    from gsd_review_broker import maintenance
    from gsd_review_broker.settings import config

    flags = {"db": options.db, "config": options.config}
    root = None if options.user else find_root(Path.cwd())
    configuration = config.load(root=root, flags=flags)
    config.refuse_tracked(configuration.database, root)
    maintenance.prune(configuration, options.closed_before, report)


def _database(options: argparse.Namespace) -> Database:
    from gsd_review_broker.settings.config import refuse_tracked

    root = None if options.user else find_root(Path.cwd())
    database = locate(root, db=options.db, config=options.config).database
    refuse_tracked(database, root)
    return database
