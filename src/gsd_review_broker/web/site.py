"""What every page shares: the person, the rendering, the headers, the forms."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import structlog
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from gsd_review_broker import __version__
from gsd_review_broker.domain.text import Identity
from gsd_review_broker.errors import BrokerError, Code, broker_failed
from gsd_review_broker.service.access import caller_in
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.service.queries.inbox import Inbox
from gsd_review_broker.settings.schema import Problems
from gsd_review_broker.web.addresses import choice, number
from gsd_review_broker.web.api.people import HTTP_STATUS
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
        """Return None for a blank field."""
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
    """Read the form without checking its token: even with a wrong token, the user gets back what they typed."""
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


if TYPE_CHECKING:
    from gsd_review_broker.web.templating import Templates

log = structlog.get_logger()

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # A stricter policy would make browsers send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_INBOX_MILLISECONDS = 10_000
Page = Callable[[Request], Awaitable[Response]]
# The address that shows the outcome; or a page, if the action was refused.
Action = Callable[[Request, Form], Awaitable[str | Response]]


class StaticFiles:
    """The style and the scripts, read once. An address contains a hash of the content, so it is cached forever."""

    def __init__(self) -> None:
        contents = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}
        # One hash for all files, because scripts import one another by name.
        total = hashlib.sha256(b"\0".join(name.encode() + b"\0" + content for name, content in contents.items()))
        self._sum = total.hexdigest()[:12]
        self._files = contents

    def address(self, name: str) -> str:
        if name not in self._files:
            raise KeyError(name)
        return f"/static/{self._sum}/{name}"

    def route(self) -> Route:
        async def answer(request: Request) -> Response:
            name = request.path_params["name"]
            if request.path_params["sum"] != self._sum or name not in self._files:
                return PlainTextResponse("not found\n", status_code=404)
            return Response(self._files[name], media_type=_TYPES[Path(name).suffix], headers=_FOR_EVER)

        return Route("/static/{sum}/{name}", answer, methods=["GET"])


class Dashboard:
    def __init__(
        self,
        broker: Broker,
        *,
        person: Identity,
        serves: str,
        url: str,
        form_limit: int,
        problems: Problems = list,
    ) -> None:
        self.broker = broker
        self._person = person
        self.token = FormToken()
        self.static = StaticFiles()
        self._serves = serves
        self._url = url
        self._form_limit = form_limit
        self._problems = problems
        self._inboxes: dict[Identity, tuple[tuple[int, int], Inbox]] = {}

    @cached_property
    def templates(self) -> "Templates":
        # Loaded with the first page, so that the broker starts without it.
        from gsd_review_broker.web.templating import Templates  # noqa: PLC0415 - the first page imports it

        return Templates(
            static=self.static.address,
            shared={
                "serves": self._serves,
                "url": self._url,
                "version": __version__,
            },
        )

    def person_of(self, request: Request) -> Identity:
        """Whose page it is: the holder of the token, else the person at this machine."""
        return caller_in(request.scope).proven_identity or self._person

    async def inbox(self, person: Identity) -> Inbox:
        """Looked up once for each event, and regularly for changes that only time brings."""
        key = await self.broker.page_queries.last_event_id(), self.broker.page_queries.now // _INBOX_MILLISECONDS
        kept = self._inboxes.get(person)
        if kept is None or kept[0] != key:
            # An inbox of an earlier event is out of date.
            self._inboxes = {one: inbox for one, inbox in self._inboxes.items() if inbox[0] == key}
            kept = self._inboxes[person] = key, await self.broker.inboxes.of(person)
        return kept[1]

    async def page(self, request: Request, template: str, facts: dict[str, Any], *, status: int = 200) -> Response:
        """Rendered in a thread, so that no tool call waits for it."""
        person = self.person_of(request)
        facts = {
            "me": person,
            "token": self.token.of(request),
            "path": request.url.path,
            "problems": self._problems(),
            "done": request.query_params.get("done", ""),
            "inbox_count": len((await self.inbox(person)).entries),
            "last_event_id": request.state.last_event_id,
            **facts,
        }
        text = await asyncio.to_thread(lambda: self.templates.render(template, facts))
        return HTMLResponse(text, status_code=status, headers=HEADERS)

    def get(self, path: str, page: Page) -> Route:
        async def answer(request: Request) -> Response:
            return await self._guarded(request, lambda: page(request), [])

        return Route(path, answer, methods=["GET"])

    def post(self, path: str, action: Action) -> Route:
        """Run the action, then redirect to its outcome: reloading that page repeats nothing."""

        async def answer(request: Request) -> Response:
            read: list[Form] = []

            async def act() -> Response:
                read.append(await read_form(request, limit=self._form_limit))
                self.token.require(request, read[0])
                done = await action(request, read[0])
                return RedirectResponse(done, status_code=303, headers=HEADERS) if isinstance(done, str) else done

            return await self._guarded(request, act, read)

        return Route(path, answer, methods=["POST"])

    async def _guarded(self, request: Request, do: Callable[[], Awaitable[Response]], read: list[Form]) -> Response:
        # The page listens for what comes after this event, so it is read before what the page shows.
        request.state.last_event_id = await self.broker.page_queries.last_event_id()
        try:
            return await do()
        except BrokerError as error:
            return await self.failed(request, error, read[0] if read else None)
        except Exception:
            log.exception("page_failed", path=request.url.path)
            return await self.failed(request, broker_failed(), None)

    async def failed(self, request: Request, error: BrokerError, form: Form | None) -> Response:
        """Show the error, and give back what was typed."""
        typed = [form.text(name) for name in ("reason", "body", "note", "counter_patch")] if form else []
        facts = {
            "error": error,
            "typed": [text for text in typed if text.strip()],
            "review_id": _other_page(request),
        }
        return await self.page(request, "error.html", facts, status=HTTP_STATUS[error.code])


def _other_page(request: Request) -> str | None:
    """Return the review that the request is about, unless its own page failed."""
    review_id: str | None = request.path_params.get("review_id")
    is_its_page = request.method == "GET" and request.url.path == f"/r/{review_id}" and not request.url.query
    return None if is_its_page else review_id
