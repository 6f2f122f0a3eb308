"""Forms of the pages.

A form of another site is refused: it lacks the token, and the browser names its origin, which the guard has checked
before.
"""

import hashlib
import hmac
import secrets
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.access import caller_in
from gsd_review_broker.web.addresses import choice, number
from gsd_review_broker.web.edge import bearer_of, cookie_of

_Word = TypeVar("_Word", bound=StrEnum)
_FIELD = "token"
_FORMS = b"tandem forms"
_OWN_SITE = {"same-origin", "none"}
_MOST_FIELDS = 50


class FormToken:
    """Other sites cannot read our pages, so they cannot know it.

    A person who signed in gets one that every broker derives from that person's own token: behind a load balancer a
    page and its form may reach two brokers. Where no token is needed, it is valid for this process only.
    """

    def __init__(self) -> None:
        self._of_this_process = secrets.token_urlsafe(24)

    def of(self, request: Request) -> str:
        bearer = bearer_of(request.scope) or cookie_of(request.scope)
        key = bearer if bearer and caller_in(request.scope).proven else self._of_this_process
        return hmac.new(key.encode("utf-8", "surrogateescape"), _FORMS, hashlib.sha256).hexdigest()

    def require(self, request: Request, form: "Form") -> None:
        if not hmac.compare_digest(form.text(_FIELD).encode("utf-8", "replace"), self.of(request).encode()):
            raise BrokerError(
                Code.FORBIDDEN,
                "this form is not from a page of the running broker",
                "The broker was probably restarted since the page was loaded, or you signed in again: go back, reload "
                "the page, try again.",
            )


class Form:
    """Fields by name. Browsers end lines with CR LF; here they are converted to line feeds."""

    def __init__(self, fields: dict[str, str]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        return self._fields.get(name, "")

    def optional(self, name: str) -> str | None:
        """None for a blank field."""
        value = self.text(name)
        return value if value.strip() else None

    def number(self, name: str) -> int | None:
        return number({name: self.text(name)}, name, hint="Reload the page.")

    def choice(self, name: str, kind: type[_Word]) -> _Word:
        chosen = choice(self._fields, name, kind)
        if chosen is None:
            raise BrokerError(Code.INVALID_ARGUMENT, f"{name}: choose one", "Use the page's lists and buttons.")
        return chosen


async def read_form(request: Request, *, limit: int) -> Form:
    """The token is not checked yet: even with a wrong token, the user gets back what they typed."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in _OWN_SITE:
        raise BrokerError(Code.FORBIDDEN, "this form is from another site", "Open the dashboard itself.")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise BrokerError(Code.INVALID_ARGUMENT, "the body is not a form", "Send the page's own form.")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise BrokerError(Code.TOO_LARGE, f"the form is over {limit} bytes", "Send less.")
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, strict_parsing=bool(body), errors="strict",
            max_num_fields=_MOST_FIELDS,
        )  # fmt: skip
    except ValueError as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"the body is not a form: {error}", "Send the page's own form."
        ) from error
    return Form({name: value.replace("\r\n", "\n") for name, value in pairs})
