"""`tandem db …` and `tandem audit …`: the database as a whole, and the record of every event."""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

from gsd_review_broker import client
from gsd_review_broker.cli.context import Context, configuration_of, root_of
from gsd_review_broker.cli.describe import EVENT_TITLES, event_row
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_place_options, broker_options
from gsd_review_broker.cli.screen import Screen, Span, Style
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.settings.locations import COMMAND_LINE, chosen_database, locate
from gsd_review_broker.settings.state_files import Database

_SHOWN_PROBLEMS = 20
_SQLITE = "sqlite:///"


def register(commands: Commands) -> None:
    _register_audit(commands.group("audit", summary="the record of everything that happened"))
    database = commands.group("db", summary="maintain the database")
    pruning = database.add(
        "prune",
        prune,
        summary="move reviews that were closed before a day into an archive",
        details="The archive is a file beside the database. `tandem audit verify --archive FILE` reads both together.\n"
        "The broker never prunes by itself.",
        parents=[broker_options()],
    )
    pruning.add_argument(
        "--closed-before",
        required=True,
        metavar="DATE",
        help="a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z",
    )
    move = database.add(
        "migrate-to",
        migrate,
        summary="move to PostgreSQL, or back to a SQLite file: copy the database, compare and verify the copy",
        details="Stop the broker first (`tandem down`). If the copy is the same and whole, the old database is marked "
        "as moved, and no broker starts on it any more. Then start the broker with the new one as `db`. Archives stay "
        "where they are. If the command is interrupted, run it again.",
    )
    add_place_options(move)
    move.add_argument(
        "target", metavar="TARGET", help="postgresql://… (an empty database), or sqlite:///PATH of a new file"
    )
    move.add_argument("--json", action="store_true", help="print exactly one JSON document")

    again = database.add(
        "reopen",
        reopen,
        summary="go on with a database that was moved, instead of the one that it was moved to",
        details="What was stored in the other one since the move is only there.",
    )
    add_place_options(again)
    again.add_argument("--json", action="store_true", help="print exactly one JSON document")


def _register_audit(group: Commands) -> None:
    log = group.add(
        "log", list_events, summary="list events in the order they were committed", parents=[broker_options()]
    )
    log.add_argument("review", nargs="?", metavar="ID", help="only this review's")
    log.add_argument("--after", type=int, metavar="EVENT", help="only later than this event's id")
    log.add_argument("--limit", type=int, help="how many at most (50)")
    verifying = group.add(
        "verify",
        verify,
        summary="check that nothing was altered: the chain, every review, the statistics",
        details="Reads the database file; the broker may be running. If something was altered, exits with 1 and names "
        "the first bad event.",
    )
    add_place_options(verifying)
    verifying.add_argument("--archive", action="append", default=[], metavar="FILE", help="an archive of this database")
    verifying.add_argument("--json", action="store_true", help="print exactly one JSON document")
    exporting = group.add("export", export, summary="print every event with its hashes as JSON, one on each line")
    add_place_options(exporting)
    exporting.add_argument("--output", metavar="FILE", help="write to this new file instead of standard output")


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
    """Open standard output, or a new file that is removed if writing fails."""
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
    """Let the broker prune if one is running, else prune here."""
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
    from gsd_review_broker import maintenance

    screen = Screen()
    source = _database(options)
    target = chosen_database(options.target.removeprefix(_SQLITE), COMMAND_LINE, root_of(options))
    with screen.progress("copying, comparing and verifying"):
        moved = maintenance.move(source, target)
    if options.json:
        screen.json({"from": str(source), "to": str(target), **moved._asdict()})
        return Exit.DONE
    screen.say(Span("moved", Style.GREEN), f"  {moved.events:,} events, {moved.reviews:,} reviews are in {target}")
    screen.say(
        f"No broker starts on {source} any more. Name the new database in `db` of your configuration, BROKER_DB or"
    )
    screen.say("--db, and start the broker with `tandem up`. To go on with the old one instead: `tandem db reopen`.")
    return Exit.DONE


def reopen(options: argparse.Namespace) -> int:
    from gsd_review_broker import maintenance

    screen = Screen()
    database = _database(options)
    to = maintenance.reopen(database)
    if options.json:
        screen.json({"database": str(database), "was_moved_to": to})
    elif to is None:
        screen.say(f"{database} is open; nothing was changed.")
    else:
        screen.say(f"{database} is open again. What was stored in {to} since the move is only there.")
    return Exit.DONE


def _archives(context: Context) -> str:
    if context.target.url is None and context.target.locations.database.url is not None:
        return "in the broker's data folder (archives)"
    return "beside the database"


def _prune_here(options: argparse.Namespace, report: Any) -> None:
    from gsd_review_broker import maintenance

    maintenance.prune(configuration_of(options, is_stored=True), options.closed_before, report)


def _database(options: argparse.Namespace) -> Database:
    from gsd_review_broker.settings.config import refuse_tracked

    root = root_of(options)
    database = locate(root, db=options.db, config=options.config).database
    refuse_tracked(database, root)
    return database


def list_events(options: argparse.Namespace) -> int:
    context = Context(options)
    page = context.call("get_audit_log", review_id=options.review, after=options.after, limit=options.limit)
    if context.wants_json:
        context.screen.json(page)
        return Exit.DONE
    rows = [event_row(event, short=context.screen.is_terminal) for event in page["events"]]
    context.screen.table(EVENT_TITLES, rows)
    if page["next_cursor"] is not None:
        context.screen.warn(f"There is more: --after {page['next_cursor']}")
    return Exit.DONE
