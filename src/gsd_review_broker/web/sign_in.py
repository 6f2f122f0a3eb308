"""Signing in to the dashboard: a link that works once, and a cookie that carries the token.

The cookie is the holder's own token, so it is looked up like any other: a token that is revoked has signed out
everywhere. It counts for pages alone, not for tools and JSON routes.
"""

import json
import re
import secrets
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.ports import Clock
from gsd_review_broker.web.bearer import COOKIE, bearer_of

SIGN_IN, NEW_LINK = "/sign-in", "/api/sign-in"
_VALID_MILLISECONDS = 60_000
_MOST_LINKS = 1_000
# A page of ours, and nothing that a browser could take for another host.
_PAGE = re.compile(r"/(?:[A-Za-z0-9_-][A-Za-z0-9_/-]{0,200})?")
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
_OVER = "This link was used, or is older than a minute. Run `tandem open` again.\n"


@dataclass(frozen=True, slots=True)
class _Link:
    token: str
    page: str
    until: Milliseconds


class SignIns:
    """Links that were not used yet, in memory: the browser comes back to the same broker within a minute."""

    def __init__(self, clock: Clock, *, needs_token: bool) -> None:
        self._clock = clock
        self._needs_token = needs_token
        self._links: dict[str, _Link] = {}

    def routes(self) -> list[Route]:
        return [Route(NEW_LINK, self._new, methods=["POST"]), Route(SIGN_IN, self._use, methods=["GET"])]

    async def _new(self, request: Request) -> Response:
        """For whoever called with a token: the way to a page. Where tokens are not needed, it is the page itself."""
        page = _page_of(await request.body())
        token = bearer_of(request.scope)
        if not self._needs_token or token is None:
            return JSONResponse({"path": page})
        now = self._clock.steady()
        self._links = {code: link for code, link in self._links.items() if link.until > now}
        if len(self._links) >= _MOST_LINKS:
            self._links.pop(next(iter(self._links)))
        code = secrets.token_urlsafe(24)
        self._links[code] = _Link(token, page, Milliseconds(now + _VALID_MILLISECONDS))
        return JSONResponse({"path": f"{SIGN_IN}?code={code}"}, headers=_HEADERS)

    async def _use(self, request: Request) -> Response:
        link = self._links.pop(request.query_params.get("code", ""), None)
        if link is None or link.until <= self._clock.steady():
            return PlainTextResponse(_OVER, status_code=401, headers={**_HEADERS, "WWW-Authenticate": "Bearer"})
        answer = RedirectResponse(link.page, status_code=303, headers=_HEADERS)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, link.token, httponly=True, samesite="strict", path="/", secure=is_secure)
        return answer


def _page_of(body: bytes) -> str:
    """The page that a link leads to; the inbox if the request names none of ours."""
    try:
        fields: Any = json.loads(body or b"{}")
        page: Any = fields.get("page", "/")
    except (ValueError, RecursionError, AttributeError):
        return "/"
    return page if isinstance(page, str) and _PAGE.fullmatch(page) else "/"
