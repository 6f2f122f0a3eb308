"""`/r/ID`: one review, from its intent down to the verdict."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from gsd_review_broker.domain.model import Review
from gsd_review_broker.domain.text import same_identity
from gsd_review_broker.domain.words import Category, Status
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.world import Applies, DoesNotApply
from gsd_review_broker.service.applies import Checked
from gsd_review_broker.service.queries.review_page import ReviewFacts
from gsd_review_broker.web.addresses import ReviewAddress, number, review_asked
from gsd_review_broker.web.api.people import HTTP_STATUS
from gsd_review_broker.web.diff.documents import PreparedDocument
from gsd_review_broker.web.forms import Form
from gsd_review_broker.web.review.diff_view import DiffViews, no_revision
from gsd_review_broker.web.review.requirements import requirements_of
from gsd_review_broker.web.review.threads import EarlierMessages, MessagePlaces, Thread, threads_of
from gsd_review_broker.web.review.timeline import rounds_of
from gsd_review_broker.web.site import HEADERS, Dashboard

# Lists too long to read are cut; the tools have the rest. Settled findings are left out first, then the last ones.
_MOST_THREADS = 200
_COOKIE_SECONDS = 365 * 86_400
_NO_DRAFT = {"reason": "", "counter_patch": ""}


class ReviewPages:
    def __init__(self, site: Dashboard) -> None:
        self._site = site
        self._views = DiffViews(site.broker.page_queries)
        self._earlier = EarlierMessages(site.broker.page_queries)

    def routes(self) -> list[Route]:
        return [
            self._site.get("/r/{review_id}", self.page),
            self._site.get("/r/{review_id}/file", self.file),
            self._site.get("/r/{review_id}/live", self.live),
        ]

    async def page(self, request: Request) -> Response:
        answer = await self._page(request, {})
        if request.query_params.get("view") in {"split", "unified"}:
            kept = request.query_params["view"]
            answer.set_cookie("view", kept, max_age=_COOKIE_SECONDS, httponly=True, samesite="strict")
        return answer

    async def refused(self, request: Request, error: BrokerError, form: Form) -> Response:
        """The page of the review as it is now, with the refusal and with what was typed."""
        draft = {name: form.text(name) for name in _NO_DRAFT}
        return await self._page(request, {"refused": error, "draft": draft}, status=HTTP_STATUS[error.code])

    async def _page(self, request: Request, more: dict[str, Any], *, status: int = 200) -> Response:
        address, facts = await self._asked(request)
        await self._site.broker.page_queries.saw(self._site.person_of(request), facts.review)
        shown = {**await self._shown(request, facts, address), **more}
        prepared = await self._views.prepared(facts, address)
        form = self._comment_form(shown, address, prepared) if address.at and shown["may_speak"] else Markup("")
        base = None if address.file is None else await self._views.base(prepared, facts, address, address.file)
        diff = await asyncio.to_thread(
            lambda: self._views.view(prepared, address, shown["threads"], partial(self._thread, shown), form, base)
        )
        return await self._site.page(request, "review.html", {**shown, "shown": shown, "diff": diff}, status=status)

    async def live(self, request: Request) -> Response:
        """Everything but the diff: an open page takes this over when something happens."""
        address, facts = await self._asked(request)
        shown = await self._shown(request, facts, address)
        return await self._site.page(request, "review_live.html", {**shown, "shown": shown})

    async def file(self, request: Request) -> Response:
        address, facts = await self._asked(request)
        index = number(request.query_params, "i") or 0
        shown = _conversation(facts, await self._earlier.places(facts))
        prepared = await self._views.prepared(facts, address)
        threads = shown["threads"]
        show = partial(self._thread, {**shown, **self._viewer(request, facts)})
        base = await self._views.base(prepared, facts, address, index)
        table = await asyncio.to_thread(
            lambda: self._views.table(prepared, index, address, threads, show, Markup(""), base)
        )
        return HTMLResponse(table, headers=HEADERS)

    async def _asked(self, request: Request) -> tuple[ReviewAddress, ReviewFacts]:
        address = review_asked(request.path_params["review_id"], request.query_params, request.cookies)
        try:
            facts = await self._site.broker.page_queries.review(address.review_id, address.revision)
        except BrokerError as error:
            if error.code is not Code.NOT_FOUND or address.revision is None:
                raise
            # Only an existing review has known revisions.
            raise no_revision(await self._site.broker.page_queries.find(address.review_id), address.revision) from error
        is_plan = facts.review.category is Category.PLAN_REVIEW
        return replace(address, review_id=facts.review.id, is_plan=is_plan), facts

    def _viewer(self, request: Request, facts: ReviewFacts) -> dict[str, Any]:
        return {**_roles(facts, self._site.person_of(request)), "token": self._site.token.of(request)}

    def _thread(self, shown: dict[str, Any], thread: Thread) -> Markup:
        return self._site.templates.macro("threads.html", "thread")(thread, shown)

    def _comment_form(self, shown: dict[str, Any], address: ReviewAddress, prepared: PreparedDocument) -> Markup:
        path = prepared.path_at(address.at)
        return (
            self._site.templates.macro("threads.html", "comment_form")(shown, address.at, path) if path else Markup("")
        )

    async def _shown(self, request: Request, facts: ReviewFacts, address: ReviewAddress) -> dict[str, Any]:
        review = facts.review
        checked = await self._site.broker.page_queries.applies(review)
        return {
            "review": review,
            "facts": facts,
            "content": facts.content,
            "asked": address,
            "requirements": requirements_of(facts, checked),
            "checked": checked,
            "digest": _digest(review, checked),
            "does_not_apply": checked.answer.git_says if isinstance(checked.answer, DoesNotApply) else None,
            "rounds": rounds_of(facts.events),
            "is_current": facts.content.number == review.revision and address.patch is None,
            "open_patch": next((one for one in facts.counter_patches if one.status == "pending"), None),
            "patch": next((one for one in facts.counter_patches if one.id == address.patch), None),
            **_conversation(facts, await self._earlier.places(facts)),
            **self._viewer(request, facts),
            "refused": None,
            "draft": _NO_DRAFT,
        }


def _digest(review: Review, checked: Checked) -> str | None:
    """The digest that an approval will name: the claim's, or the one that a claim would get now."""
    if review.claimed_by is not None:
        return review.digest
    return checked.answer.digest if isinstance(checked.answer, Applies) else None


def _conversation(facts: ReviewFacts, places: MessagePlaces) -> dict[str, Any]:
    threads = threads_of(facts.review, facts.findings, facts.messages, places)
    # Sorting is stable, so it is done twice.
    needed = sorted(enumerate(threads), key=lambda numbered: numbered[1].is_settled)[:_MOST_THREADS]
    shown = [thread for _, thread in sorted(needed, key=lambda numbered: numbered[0])]
    return {"threads": shown, "threads_left_out": len(threads) - len(shown)}


def _roles(facts: ReviewFacts, person: str) -> dict[str, Any]:
    """The person's roles in this review, and what they may do."""
    review = facts.review
    is_author = same_identity(person, review.proposer) or same_identity(person, review.author)
    mine = review.is_claim_live and same_identity(review.claimed_by, person)
    return {
        "review": review,
        "is_author": is_author,
        "is_mine": mine,
        "may_judge": not is_author and (mine or review.status is Status.PENDING),
        "may_take_over": not is_author and review.is_claim_live and not mine,
        "may_speak": review.status not in {Status.PENDING, Status.CLOSED}
        or (review.status is Status.PENDING and not is_author),
        "may_close": review.status is not Status.CLOSED,
    }
