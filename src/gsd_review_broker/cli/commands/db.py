"""`tandem audit verify`, `tandem audit export`, `tandem db prune`: the database as a whole."""

import argparse

from gsd_review_broker.cli.registering import Commands, add_place_options, broker_options


def register(commands: Commands) -> None:
    _register_audit(commands.group("audit", summary="the record of everything that happened"))
    database = commands.group("db", summary="look after the database")
    prune = database.add(
        "prune",
        run_prune,
        summary="move reviews that were closed before a day into an archive",
        details="The archive is a file beside the database, which `tandem audit verify --archive FILE` reads with it.\n"
        "Nothing is ever pruned by itself.",
        parents=[broker_options()],
    )
    prune.add_argument(
        "--closed-before", required=True, metavar="DATE", help="2026-01-31, or a moment such as 2026-01-31T12:00:00Z"
    )


def _register_audit(group: Commands) -> None:
    verify = group.add(
        "verify",
        run_verify,
        summary="prove that nothing was altered: the chain, every review, the statistics",
        details="Reads the database file itself, beside a running broker too. Exits 1 and names the first bad event "
        "if something is not what it was.",
    )
    add_place_options(verify)
    verify.add_argument("--archive", action="append", default=[], metavar="FILE", help="an archive that belongs to it")
    verify.add_argument("--json", action="store_true", help="exactly one JSON document on standard output")
    export = group.add("export", run_export, summary="every event as JSON, one a line, with its hashes")
    add_place_options(export)
    export.add_argument(
        "--output", metavar="FILE", help="into a file that is not there yet, instead of standard output"
    )


def run_verify(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.databases import verify  # noqa: PLC0415

    return verify(options)


def run_export(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.databases import export  # noqa: PLC0415

    return export(options)


def run_prune(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.databases import prune  # noqa: PLC0415

    return prune(options)
