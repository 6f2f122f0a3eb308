"""`/pool`: the reviewers that the broker starts, what each is doing, and the switches."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.web.addresses import with_query
from gsd_review_broker.web.forms import Form
from gsd_review_broker.web.site import Dashboard

_LOG_CHARACTERS = 20_000


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
