"""`tandem list` and `tandem show`."""

import argparse

from gsd_review_broker.cli.registering import Commands, broker_options

STATUSES = ["pending", "claimed", "in_review", "approved", "changes_requested", "closed"]
CATEGORIES = ["plan_review", "code_change", "verification", "handoff"]


def register(commands: Commands) -> None:
    listing = commands.add(
        "list",
        list_reviews,
        summary="list reviews: critical first, then oldest",
        details="Without --status, what is not closed.",
        parents=[broker_options()],
    )
    listing.add_argument("--status", choices=STATUSES, help="only those in this state")
    listing.add_argument("--all", action="store_true", help="closed ones too")
    listing.add_argument("--category", choices=CATEGORIES)
    listing.add_argument("--project")
    listing.add_argument("--phase")
    listing.add_argument("--plan")
    listing.add_argument("--proposer", metavar="WHO")
    listing.add_argument("--parent", metavar="ID", help="follow-ups of this review")
    listing.add_argument("--needs-human", action="store_true", help="only what waits for a person")
    listing.add_argument("--limit", type=int, help="at most so many (50)")
    listing.add_argument("--cursor", help="go on where the last page ended")
    show = commands.add(
        "show",
        show_review,
        summary="show a review: what, who, where it stands, what was said",
        parents=[broker_options()],
    )
    show.add_argument("review", metavar="ID", help="a review's id, or its first 6 characters or more")
    show.add_argument("--web", action="store_true", help="open its page in the browser instead")


def list_reviews(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.looking import list_reviews  # noqa: PLC0415

    return list_reviews(options)


def show_review(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.looking import show_review  # noqa: PLC0415

    return show_review(options)
