"""A commit with a review's content is on a guarded branch."""

from typing import Any

from gsd_review_broker.domain.identity import BROKER
from gsd_review_broker.domain.model import Change, Milliseconds, Review
from gsd_review_broker.domain.rules.transitions import record
from gsd_review_broker.domain.words import EventType


def record_landed(review: Review, *, metadata: dict[str, Any], now: Milliseconds) -> Change:
    """Changes no state, a closed review's neither: its timeline says where the content is."""
    return record(review, EventType.COMMIT_LANDED, actor=BROKER, now=now, metadata=metadata)
