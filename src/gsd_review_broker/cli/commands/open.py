"""`tandem open`: the dashboard, or a review's page."""

import argparse

from gsd_review_broker.cli.broker.watching import open_page
from gsd_review_broker.cli.context import Context, keepers_connection
from gsd_review_broker.cli.registering import Commands, broker_options


def register(commands: Commands) -> None:
    page = commands.add(
        "open",
        run_open,
        summary="open the dashboard, or a review's page, in the browser",
        details="Where tokens are needed, the link signs you in with your token; it works once, within a minute.",
        parents=[broker_options()],
    )
    page.add_argument("review", nargs="?", metavar="ID", help="the review's id, or at least its first 6 characters")


def run_open(options: argparse.Namespace) -> int:
    context = Context(options)
    if options.review is None:
        return open_page(context, "/")
    connection = keepers_connection(context) or context.broker.connection
    review_id = connection.call("get_review_status", {"review_id": options.review})["review_id"]
    return open_page(context, f"/r/{review_id}")
