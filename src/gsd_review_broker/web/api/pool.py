"""The pool's switches as JSON over HTTP, for the command line and the dashboard."""

from typing import Any

from starlette.routing import Route

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.web.addresses import digits
from gsd_review_broker.web.api.people import get, optional, post, text


def pool_routes(broker: Broker) -> list[Route]:
    reviewers = broker.pool

    async def state(_asked: dict[str, Any]) -> Any:
        return await reviewers.state()

    async def pause(_asked: dict[str, Any]) -> Any:
        return await reviewers.pause()

    async def resume(_asked: dict[str, Any]) -> Any:
        return await reviewers.resume()

    async def scale(fields: dict[str, Any]) -> Any:
        return await reviewers.scale(_number(fields, "max_pool_size"))

    async def spawn(fields: dict[str, Any]) -> Any:
        return await reviewers.spawn(optional(fields, "agent"), optional(fields, "project"))

    async def drain(fields: dict[str, Any]) -> Any:
        return await reviewers.kill(text(fields, "reviewer_id"))

    async def kill(fields: dict[str, Any]) -> Any:
        return await reviewers.kill(text(fields, "reviewer_id"), force=True)

    async def tail(fields: dict[str, Any]) -> Any:
        return await reviewers.log(text(fields, "reviewer_id"), _number(fields, "characters", 20_000))

    one = "/api/pool/reviewers/{reviewer_id}"
    return [
        get("/api/pool", state),
        post("/api/pool/pause", pause),
        post("/api/pool/resume", resume),
        post("/api/pool/scale", scale),
        post("/api/pool/spawn", spawn),
        post(f"{one}/drain", drain),
        post(f"{one}/kill", kill),
        get(f"{one}/log", tail),
    ]


def _number(fields: dict[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, str):
        value = digits(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise BrokerError(Code.INVALID_ARGUMENT, f"{name}: a whole number is needed", f"Pass {name} as a number.")
