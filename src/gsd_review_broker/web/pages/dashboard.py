"""The dashboard: every page, every action, the event stream; and the pages that need few lines: the inbox, the pool,
the gate."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gsd_review_broker.domain.text import Identity
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.world import Wakeups
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.service.queries.inbox import Need
from gsd_review_broker.settings.schema import Problems
from gsd_review_broker.web.addresses import with_query
from gsd_review_broker.web.events import EventStream
from gsd_review_broker.web.pages.audit import audit_routes
from gsd_review_broker.web.pages.insights import insights_routes
from gsd_review_broker.web.pages.review import ReviewPages
from gsd_review_broker.web.pages.review_actions import ReviewActions
from gsd_review_broker.web.pages.reviews import phases_routes, reviews_routes
from gsd_review_broker.web.site import Dashboard, Form

_WORDS = {
    Need.ASKED: "A person was asked for",
    Need.QUESTION: "Unanswered",
    Need.VERDICT: "Your verdict",
    Need.PROPOSAL: "Your proposal",
    Need.STUCK: "Stuck",
}
_MOST_UNDER_WAY = 50
_LOG_CHARACTERS = 20_000


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


class PoolPage:
    def __init__(self, site: Dashboard) -> None:
        self._site = site
        self._reviewers = site.broker.pool

    def routes(self) -> list[Route]:
        return [
            self._site.get("/pool", self._page),
            self._site.post("/pool/{what}", self._act),
        ]

    async def _page(self, request: Request) -> Response:
        state = await self._reviewers.state()
        wanted = request.query_params.get("log", "")
        log = await self._reviewers.log(wanted, characters=_LOG_CHARACTERS) if wanted else None
        running = [row for row in state["reviewers"] if row["state"] != "terminated"]
        ended = [row for row in state["reviewers"] if row["state"] == "terminated"]
        facts = {"pool": state, "running": running, "ended": ended, "log": log}
        return await self._site.page(request, "pool.html", facts)

    async def _act(self, request: Request, form: Form) -> str:
        match request.path_params["what"]:
            case "pause":
                await self._reviewers.pause()
            case "resume":
                await self._reviewers.resume()
            case "scale":
                await self._reviewers.scale(form.number("max_pool_size") or 0)
            case "spawn":
                await self._reviewers.spawn(agent=form.optional("agent"), project=form.optional("project"))
            case "drain":
                await self._reviewers.kill(form.text("reviewer_id"), force=False)
            case "kill":
                await self._reviewers.kill(form.text("reviewer_id"), force=True)
            case _:
                raise BrokerError(Code.NOT_FOUND, "the pool has no such action", "Use the page's buttons.")
        return with_query("/pool", {"done": "pool"})


def gate_page_routes(site: Dashboard) -> list[Route]:
    async def page(request: Request) -> Response:
        return await site.page(request, "gate.html", {"ledger": await site.broker.gate.ledger()})

    return [site.get("/gate", page)]
