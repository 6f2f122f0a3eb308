"""The dashboard: every page, every action, the event stream."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gsd_review_broker.domain.text import Identity
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.world import Wakeups
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.settings.problems import Problems
from gsd_review_broker.web.events import EventStream
from gsd_review_broker.web.pages.audit import audit_routes
from gsd_review_broker.web.pages.gate import gate_page_routes
from gsd_review_broker.web.pages.inbox import inbox_routes
from gsd_review_broker.web.pages.insights import insights_routes
from gsd_review_broker.web.pages.phases import phases_routes
from gsd_review_broker.web.pages.pool import PoolPage
from gsd_review_broker.web.pages.review import ReviewPages
from gsd_review_broker.web.pages.review_actions import ReviewActions
from gsd_review_broker.web.pages.reviews import reviews_routes
from gsd_review_broker.web.site import Dashboard


def dashboard_routes(
    broker: Broker,
    wakeups: Wakeups,
    *,
    person: Identity,
    serves: str,
    url: str,
    form_limit: int,
    problems: Problems = list,
) -> list[Route]:
    site = Dashboard(broker, person=person, serves=serves, url=url, form_limit=form_limit, problems=problems)
    reviews = ReviewPages(site)
    return [
        *inbox_routes(site),
        *reviews_routes(site),
        *phases_routes(site),
        *reviews.routes(),
        *ReviewActions(site, reviews).routes(),
        *PoolPage(site).routes(),
        *gate_page_routes(site),
        *insights_routes(site),
        *audit_routes(site),
        Route("/events", EventStream(broker, wakeups), methods=["GET"]),
        site.static.route(),
        # The last route: the answer for unknown addresses.
        site.get("/{nowhere:path}", _nowhere),
    ]


async def _nowhere(request: Request) -> Response:
    raise BrokerError(Code.NOT_FOUND, f"there is no page {request.url.path[:200]}", "Begin at the inbox.")
