"""`/gate`: what landed, with and without approval, what was approved and never landed, and overrides."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gsd_review_broker.web.site import Dashboard


def gate_page_routes(site: Dashboard) -> list[Route]:
    async def page(request: Request) -> Response:
        return await site.page(request, "gate.html", {"ledger": await site.broker.gate.ledger()})

    return [site.get("/gate", page)]
