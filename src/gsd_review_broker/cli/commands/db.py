"""`tandem audit verify`, `tandem audit export`, `tandem db …`: the database as a whole."""

import argparse

from gsd_review_broker.cli.registering import Commands, add_place_options, broker_options


def register(commands: Commands) -> None:
    _register_audit(commands.group("audit", summary="the record of everything that happened"))
    database = commands.group("db", summary="maintain the database")
    prune = database.add(
        "prune",
        run_prune,
        summary="move reviews that were closed before a day into an archive",
        details="The archive is a file beside the database. `tandem audit verify --archive FILE` reads both together.\n"
        "The broker never prunes by itself.",
        parents=[broker_options()],
    )
    prune.add_argument(
        "--closed-before",
        required=True,
        metavar="DATE",
        help="a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z",
    )
    move = database.add(
        "migrate-to",
        run_migrate,
        summary="move to PostgreSQL, or back to a SQLite file: copy the database and compare both",
        details="Brokers go on while the database is verified, copied and compared. Then their writes are held for a "
        "moment: what has changed since is copied, and the old database is marked as moved. Its brokers refuse to "
        "write from then on and say where the reviews are; restart them with the new one as `db`. Archives stay "
        "where they are. If it is interrupted, run it again.",
    )
    add_place_options(move)
    move.add_argument(
        "target", metavar="TARGET", help="postgresql://… (an empty database), or sqlite:///PATH of a new file"
    )
    move.add_argument("--json", action="store_true", help="print exactly one JSON document")

    again = database.add(
        "reopen",
        run_reopen,
        summary="go on with a database that was moved, instead of the one that it was moved to",
        details="What was stored in the other one since the move is only there.",
    )
    add_place_options(again)
    again.add_argument("--json", action="store_true", help="print exactly one JSON document")


def _register_audit(group: Commands) -> None:
    verify = group.add(
        "verify",
        run_verify,
        summary="check that nothing was altered: the chain, every review, the statistics",
        details="Reads the database file; the broker may be running. If something was altered, exits with 1 and names "
        "the first bad event.",
    )
    add_place_options(verify)
    verify.add_argument("--archive", action="append", default=[], metavar="FILE", help="an archive of this database")
    verify.add_argument("--json", action="store_true", help="print exactly one JSON document")
    export = group.add("export", run_export, summary="print every event with its hashes as JSON, one on each line")
    add_place_options(export)
    export.add_argument("--output", metavar="FILE", help="write to this new file instead of standard output")


def run_verify(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.databases import verify

    return verify(options)


def run_export(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.databases import export

    return export(options)


def run_migrate(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.databases import migrate

    return migrate(options)


def run_reopen(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.databases import reopen

    return reopen(options)


def run_prune(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.databases import prune

    return prune(options)
