"""`tandem list`, `tandem show` and `tandem open`: the reviews, one review, and their pages in the browser."""

import argparse

from gsd_review_broker.cli import describe
from gsd_review_broker.cli.broker.watching import open_page
from gsd_review_broker.cli.context import Context, keepers_connection
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options
from gsd_review_broker.domain.words import Category, Status, values


def register(commands: Commands) -> None:
    listing = commands.add(
        "list",
        list_reviews,
        summary="list reviews: critical first, then oldest",
        parents=[broker_options()],
    )
    listing.add_argument("--status", choices=values(Status), help="only reviews in this state")
    listing.add_argument("--category", choices=values(Category))
    listing.add_argument("--project")
    listing.add_argument("--phase")
    listing.add_argument("--plan")
    listing.add_argument("--proposer-id", metavar="WHO")
    listing.add_argument("--parent-id", metavar="ID", help="follow-ups of this review")
    listing.add_argument("--needs-human", action="store_true", help="only reviews that need a person")
    listing.add_argument("--limit", type=int, help="how many at most (50)")
    listing.add_argument("--cursor", help="continue after the last page")
    listing.add_argument("--web", action="store_true", help="open the dashboard instead")
    show = commands.add(
        "show",
        show_review,
        summary="show a review: its content, people, state and discussion",
        parents=[broker_options()],
    )
    add_review(show)
    show.add_argument("--web", action="store_true", help="open its page in the browser instead")
    page = commands.add(
        "open",
        run_open,
        summary="open the dashboard, or a review's page, in the browser",
        details="Where tokens are needed, the link signs you in with your token; it works once, within a minute.",
        parents=[broker_options()],
    )
    page.add_argument("review", nargs="?", metavar="ID", help="the review's id, or at least its first 6 characters")


def list_reviews(options: argparse.Namespace) -> int:
    context = Context(options)
    if options.web:
        return open_page(context, "/")
    page = context.call(
        "list_reviews",
        status=options.status,
        category=options.category,
        project=options.project,
        phase=options.phase,
        plan=options.plan,
        proposer_id=options.proposer_id,
        parent_id=options.parent_id,
        needs_human=True if options.needs_human else None,
        limit=options.limit,
        cursor=options.cursor,
    )
    if context.wants_json:
        context.screen.json(page)
        return Exit.DONE
    if page["reviews"]:
        rows = [describe.row(review, short=context.screen.is_terminal) for review in page["reviews"]]
        context.screen.table(describe.ROW_TITLES, rows, least=describe.LEAST_INTENT)
    else:
        context.screen.warn("No reviews match.")
    if page["next_cursor"]:
        context.screen.warn(f"There are more: --cursor {page['next_cursor']}")
    return Exit.DONE


def show_review(options: argparse.Namespace) -> int:
    context = Context(options)
    status = context.call("get_review_status", review_id=options.review)
    review_id = status["review_id"]
    if options.web:
        return open_page(context, f"/r/{review_id}")
    proposal = context.call("get_proposal", review_id=review_id)
    discussion = context.call("get_discussion", review_id=review_id, limit=500)
    if context.wants_json:
        context.screen.json({"status": status, "proposal": proposal, "discussion": discussion})
    else:
        describe.page(context.screen, status, proposal, discussion)
    return Exit.DONE


def run_open(options: argparse.Namespace) -> int:
    context = Context(options)
    if options.review is None:
        return open_page(context, "/")
    connection = keepers_connection(context) or context.broker.connection
    review_id = connection.call("get_review_status", {"review_id": options.review})["review_id"]
    return open_page(context, f"/r/{review_id}")
