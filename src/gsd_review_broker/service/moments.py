"""Times as callers see them."""

from datetime import UTC, datetime

from gsd_review_broker.model import Milliseconds


def iso(moment: Milliseconds) -> str:
    """ISO 8601 in UTC with milliseconds and Z."""
    text = datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"
