"""A page names the last event that it knows; its stream brings what comes later."""

import re
from typing import Any

import pytest

from gsd_review_broker.service.queries.review_page import ReviewPageQueries
from tests.support.local import LocalBroker

pytestmark = pytest.mark.usefixtures("database_kind")


async def test_what_happens_while_a_page_is_made_is_not_taken_as_shown(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the page would show the old state until something else happens."""
    review_id = (await broker.create())["review_id"]
    saw = ReviewPageQueries.saw

    async def claimed_meanwhile(queries: ReviewPageQueries, *arguments: Any) -> None:
        await saw(queries, *arguments)
        await broker("claim_review", review_id=review_id, reviewer_id="codex-1")

    # The page asks this when it has read the review.
    monkeypatch.setattr(ReviewPageQueries, "saw", claimed_meanwhile)
    page = await broker.page(f"/r/{review_id}")

    events = (await broker("get_audit_log"))["events"]
    assert [event["event_type"] for event in events] == ["review_created", "review_claimed"]
    [last] = re.findall(r'<body [^>]*data-last="(\d+)"', page)
    assert int(last) == events[0]["id"]
