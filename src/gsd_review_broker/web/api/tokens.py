"""Tokens as JSON over HTTP, for `tandem token`; and who a token says that its holder is."""

from typing import Any

from starlette.routing import Route

from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.web.api.people import get_by_caller, optional, post_by_caller, text


def token_routes(broker: Broker) -> list[Route]:
    tokens = broker.tokens

    async def new(caller: Caller, fields: dict[str, Any]) -> Any:
        _require_proof(caller)
        given = {name: optional(fields, name) for name in ("name", "project", "expires")}
        return await tokens.new(caller.identity, text(fields, "role"), **given)

    async def listed(caller: Caller, _fields: dict[str, Any]) -> Any:
        _require_proof(caller)
        return await tokens.listed()

    async def revoke(caller: Caller, fields: dict[str, Any]) -> Any:
        _require_proof(caller)
        return await tokens.revoke(text(fields, "name"))

    async def whoami(caller: Caller, _fields: dict[str, Any]) -> Any:
        return {"identity": caller.proven_identity, "role": caller.kind.value, "project": caller.project}

    return [
        post_by_caller("/api/tokens", new),
        get_by_caller("/api/tokens", listed),
        post_by_caller("/api/tokens/revoke", revoke),
        get_by_caller("/api/whoami", whoami),
    ]


def _require_proof(caller: Caller) -> None:
    """Also where callers are trusted: a token outlives that, so another user of the machine must not make one."""
    if not caller.proven:
        raise BrokerError(
            Code.FORBIDDEN,
            "tokens are for whoever can open the database, or holds the token of an administrator",
            "Run `tandem token` as the user who runs the broker.",
        )
