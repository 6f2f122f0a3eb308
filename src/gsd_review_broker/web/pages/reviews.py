"""`/reviews`: all reviews, last changed first. `/phases`: how far each plan of each phase has come."""

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gsd_review_broker.domain.words import Category, Status
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.ports.store import ReviewFilter
from gsd_review_broker.service.wire.reviews import FeedRow
from gsd_review_broker.web.addresses import choice, with_query
from gsd_review_broker.web.site import Dashboard

_A_PAGE = 50
# A search goes back this far at a time, and then returns where to go on.
_LOOKED_AT = 5_000
_AT_ONCE = 500
_LONGEST_SEARCH = 200
_SEARCHED = ("intent", "agent_type", "proposer_id", "claimed_by", "project", "phase", "plan", "task")


@dataclass(frozen=True, kw_only=True, slots=True)
class _ListAddress:
    status: Status | None
    category: Category | None
    project: str
    words: str
    cursor: str | None

    def continued_at(self, cursor: str) -> str:
        values = {"status": self.status, "category": self.category, "project": self.project, "q": self.words}
        return with_query("/reviews", {**values, "cursor": cursor})

    @property
    def wanted(self) -> ReviewFilter:
        return ReviewFilter(status=self.status, category=self.category, project=self.project or None)


def reviews_routes(site: Dashboard) -> list[Route]:
    async def page(request: Request) -> Response:
        address = _asked(request)
        review_id = await _by_id(site, address.words)
        if review_id is not None:
            return RedirectResponse(f"/r/{review_id}", status_code=303)
        rows, cursor = await _listed(site, address)
        facts = {
            "asked": address,
            "rows": rows,
            "more": address.continued_at(cursor) if cursor else None,
            "statuses": list(Status),
            "categories": list(Category),
        }
        return await site.page(request, "reviews.html", facts)

    return [site.get("/reviews", page)]


def _asked(request: Request) -> _ListAddress:
    query = request.query_params
    return _ListAddress(
        status=choice(query, "status", Status),
        category=choice(query, "category", Category),
        project=query.get("project", "").strip()[:_LONGEST_SEARCH],
        words=query.get("q", "").strip()[:_LONGEST_SEARCH],
        cursor=query.get("cursor") or None,
    )


async def _by_id(site: Dashboard, words: str) -> str | None:
    """Find the review whose id was typed into the search."""
    if len(words) < 6 or not all(letter in "0123456789abcdef" for letter in words.lower()):  # noqa: PLR2004 - a prefix
        return None
    try:
        return (await site.broker.page_queries.find(words)).id
    except BrokerError:
        return None


async def _listed(site: Dashboard, address: _ListAddress) -> tuple[list[FeedRow], str | None]:
    if not address.words:
        feed = await site.broker.review_queries.feed(address.wanted, limit=_A_PAGE, cursor=address.cursor)
        return feed["reviews"], feed["next_cursor"]
    words = address.words.casefold().split()
    rows: list[FeedRow] = []
    cursor, looked_at = address.cursor, 0
    while True:
        feed = await site.broker.review_queries.feed(address.wanted, limit=_AT_ONCE, cursor=cursor)
        rows += [row for row in feed["reviews"] if _matches(row, words)]
        looked_at += _AT_ONCE
        cursor = feed["next_cursor"]
        if cursor is None or looked_at >= _LOOKED_AT or len(rows) >= _A_PAGE:
            return rows, cursor


def _matches(row: FeedRow, words: list[str]) -> bool:
    text = " ".join(str(row.get(name) or "") for name in _SEARCHED).casefold()
    return all(word in text for word in words)


MOST_REVIEWS = 500


@dataclass(slots=True)
class PlanProgress:
    """The reviews of one plan. Those that were withdrawn are not counted."""

    project: str | None
    phase: str
    plan: str | None
    approved: int = 0
    to_fix: int = 0
    open: int = 0

    @property
    def total(self) -> int:
        return self.approved + self.to_fix + self.open

    @property
    def link(self) -> str:
        words = " ".join(filter(None, (self.phase, self.plan)))
        return with_query("/reviews", {"q": words, "project": self.project or ""})

    def count(self, row: FeedRow) -> None:
        if row["verdict"] == "approved":
            self.approved += 1
        elif row["verdict"] == "changes_requested":
            self.to_fix += 1
        elif row["status"] != "closed":
            self.open += 1


def progress_of(rows: Iterable[FeedRow]) -> list[PlanProgress]:
    """Group the reviews by project, phase and plan, in the order of their names."""
    plans: dict[tuple[str, str, str], PlanProgress] = {}
    for row in rows:
        key = row["project"] or "", row["phase"], row["plan"] or ""
        new = PlanProgress(project=row["project"], phase=row["phase"], plan=row["plan"])
        plans.setdefault(key, new).count(row)
    return [plans[key] for key in sorted(plans) if plans[key].total]


def phases_routes(site: Dashboard) -> list[Route]:
    async def page(request: Request) -> Response:
        feed = await site.broker.review_queries.feed(ReviewFilter(), limit=MOST_REVIEWS, cursor=None)
        facts = {"plans": progress_of(feed["reviews"]), "is_whole": feed["next_cursor"] is None, "most": MOST_REVIEWS}
        return await site.page(request, "phases.html", facts)

    return [site.get("/phases", page)]
