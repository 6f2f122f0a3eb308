"""`/phases`: how far each plan of each phase has come, from the reviews that changed last."""

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gsd_review_broker.ports.store import ReviewFilter
from gsd_review_broker.service.wire.reviews import FeedRow
from gsd_review_broker.web.addresses import with_query
from gsd_review_broker.web.site import Dashboard

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
    """By project, phase and plan, in the order of their names."""
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
