"""`tandem diff`."""

import argparse
import sys

from gsd_review_broker.cli import patches
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options
from gsd_review_broker.errors import BrokerError, Code

_DETAILS = """\
Control characters and invisible characters are shown as escapes. --raw prints the diff byte for byte, for another
program: tandem diff ID --raw | git apply --check."""


def register(commands: Commands) -> None:
    diff = commands.add(
        "diff", show_diff, summary="show a proposal's diff", details=_DETAILS, parents=[broker_options()]
    )
    add_review(diff)
    diff.add_argument("--revision", type=int, metavar="N", help="which revision (the newest)")
    diff.add_argument("--since", type=int, metavar="N", help="what the author changed since revision N")
    diff.add_argument("--path", metavar="FILE", help="only this file")
    diff.add_argument("--counter", action="store_true", help="the reviewer's counter-patch")
    diff.add_argument("--raw", action="store_true", help="byte for byte, without colour, escapes or pager")
    diff.add_argument("--no-pager", action="store_true", help="never page")


def show_diff(options: argparse.Namespace) -> int:
    context = Context(options)
    fetched = patches.fetch(
        context,
        options.review,
        revision=options.revision,
        since=options.since,
        path=options.path,
        counter=options.counter,
    )
    proposal = fetched.proposal
    if context.wants_json:
        facts = ("review_id", "status", "version", "revision", "digest", "affected_files")
        files = "counter_patch_affected_files" if options.counter else "affected_files"
        context.screen.json(
            {**{name: proposal[name] for name in facts}, "affected_files": proposal[files], "diff": fetched.text}
        )
        return Exit.DONE
    if fetched.text is None:
        what = "counter-patch" if options.counter else "diff"
        raise BrokerError(
            Code.NOT_FOUND, f"review {proposal['review_id']} has no {what}", "`tandem show` lists what it has."
        )
    if options.raw:
        sys.stdout.buffer.write(fetched.text.encode("utf-8"))
    elif fetched.text:
        patches.show(context.screen, fetched.text, pager=not options.no_pager)
    return Exit.DONE
