"""Tokens as JSON over HTTP, for `tandem token`, and signing in to the dashboard: a link that works once, and a cookie.

The cookie is the holder's own token, so it is looked up like any other: a token that is revoked has signed out
everywhere. It applies to pages alone, not to tools and JSON routes.
"""

import json
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.service.commands.tokens import SignInLinks
from gsd_review_broker.web.api.people import failed, get_by_caller, optional, post_by_caller, text
from gsd_review_broker.web.edge import COOKIE, NEW_LINK, SIGN_IN, bearer_of

# A page of the dashboard. A browser cannot take it for another host.
_PAGE = re.compile(r"/(?:[A-Za-z0-9_-][A-Za-z0-9_/-]{0,200})?")
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
_OVER = "This link was used, or is older than a minute. Run `tandem open` again.\n"


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
    """Refuse callers without proof, even where callers are trusted.

    A token outlives that trust, so another user of the machine must not make one.
    """
    if not caller.proven:
        raise BrokerError(
            Code.FORBIDDEN,
            "tokens are for people who can open the database, or hold the token of an administrator",
            "Run `tandem token` as the user who runs the broker.",
        )


class SignIns:
    def __init__(self, links: SignInLinks, *, needs_token: bool) -> None:
        self._links = links
        self._needs_token = needs_token

    def routes(self) -> list[Route]:
        return [Route(NEW_LINK, self._new, methods=["POST"]), Route(SIGN_IN, self._use, methods=["GET"])]

    async def _new(self, request: Request) -> Response:
        """Give the caller a link that signs in. Where tokens are not needed, the link is the page itself."""
        page = _page_of(await request.body())
        token = bearer_of(request.scope)
        if not self._needs_token or token is None:
            return JSONResponse({"path": page})
        try:
            code = await self._links.new(token, page)
        except BrokerError as error:
            return failed(error)
        return JSONResponse({"path": f"{SIGN_IN}?code={code}"}, headers=_HEADERS)

    async def _use(self, request: Request) -> Response:
        try:
            link = await self._links.use(request.query_params.get("code", ""))
        except BrokerError as error:
            return failed(error)
        if link is None:
            return PlainTextResponse(_OVER, status_code=401, headers={**_HEADERS, "WWW-Authenticate": "Bearer"})
        answer = RedirectResponse(link.page, status_code=303, headers=_HEADERS)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, link.token, httponly=True, samesite="strict", path="/", secure=is_secure)
        return answer


def _page_of(body: bytes) -> str:
    """Return the page that a link leads to; the inbox if the request does not name a page of the dashboard."""
    try:
        fields: Any = json.loads(body or b"{}")
        page: Any = fields.get("page", "/")
    except (ValueError, RecursionError, AttributeError):
        return "/"
    return page if isinstance(page, str) and _PAGE.fullmatch(page) else "/"
