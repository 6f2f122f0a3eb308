"""`/`: the reviews that need a person, and below them those that go on without one."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gsd_review_broker.service.queries.inbox import Need
from gsd_review_broker.web.site import Dashboard

_WORDS = {
    Need.ASKED: "A person was asked for",
    Need.QUESTION: "Unanswered",
    Need.VERDICT: "Your verdict",
    Need.PROPOSAL: "Your proposal",
    Need.STUCK: "Stuck",
}
_MOST_UNDER_WAY = 50


def inbox_routes(site: Dashboard) -> list[Route]:
    async def page(request: Request) -> Response:
        inbox = await site.inbox(site.person_of(request))
        status = await site.broker.review_queries.broker_status()
        facts = {
            "inbox": inbox,
            "under_way": inbox.under_way[:_MOST_UNDER_WAY],
            "more_under_way": max(0, len(inbox.under_way) - _MOST_UNDER_WAY),
            "words": {need.value: words for need, words in _WORDS.items()},
            "status": status,
            "now": site.broker.page_queries.now,
        }
        return await site.page(request, "inbox.html", facts)

    return [site.get("/", page)]
