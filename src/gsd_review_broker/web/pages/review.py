"""`/r/ID`: one review, from its intent down to the verdict."""

import asyncio
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from gsd_review_broker.domain.model import Review
from gsd_review_broker.domain.text import same_identity
from gsd_review_broker.domain.words import GRAVE, Category, Disposition, EventType, Status, either
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.world import Applies, DoesNotApply, Offset
from gsd_review_broker.service.applies import Answer
from gsd_review_broker.service.queries.review_page import ReviewFacts
from gsd_review_broker.web.addresses import ReviewAddress, number, review_asked
from gsd_review_broker.web.api.people import HTTP_STATUS
from gsd_review_broker.web.conversation import EarlierMessages, MessagePlaces, Thread, rounds_of, threads_of
from gsd_review_broker.web.diff.documents import PreparedDocument
from gsd_review_broker.web.diff.view import DiffViews, no_revision
from gsd_review_broker.web.site import HEADERS, Dashboard, Form

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
        """Show the present page of the review, with the refusal and with what was typed."""
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
            "does_not_apply": checked.git_says if isinstance(checked, DoesNotApply) else None,
            "rounds": rounds_of(facts.events),
            "is_current": facts.content.number == review.revision and address.patch is None,
            "open_patch": next((one for one in facts.counter_patches if one.status == "pending"), None),
            "patch": next((one for one in facts.counter_patches if one.id == address.patch), None),
            **_conversation(facts, await self._earlier.places(facts)),
            **self._viewer(request, facts),
            "refused": None,
            "draft": _NO_DRAFT,
        }


def _digest(review: Review, checked: Answer | None) -> str | None:
    """Return the digest that an approval will name: the claim's, or the one that a claim would get now."""
    if review.claimed_by is not None:
        return review.digest
    return checked.digest if isinstance(checked, Applies) else None


def _conversation(facts: ReviewFacts, places: MessagePlaces) -> dict[str, Any]:
    threads = threads_of(facts.review, facts.findings, facts.messages, places)
    # Sorting is stable, so it is done twice.
    needed = sorted(enumerate(threads), key=lambda numbered: numbered[1].is_settled)[:_MOST_THREADS]
    shown = [thread for _, thread in sorted(needed, key=lambda numbered: numbered[0])]
    return {"threads": shown, "threads_left_out": len(threads) - len(shown)}


def _roles(facts: ReviewFacts, person: str) -> dict[str, Any]:
    """Return the person's roles in this review, and what they may do."""
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


_SHOWN = len("sha256:") + 16
_MOST_OFFSETS = 5


class RequirementState(StrEnum):
    MET = "met"
    UNMET = "unmet"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Requirement:
    state: RequirementState
    what: str
    why: str


def requirements_of(facts: ReviewFacts, checked: Answer | None) -> list[Requirement]:
    more = [one for one in (_policy(facts), _person(facts)) if one is not None]
    return [_applies(facts, checked), _no_grave_finding(facts), _judged(facts), *more]


def _policy(facts: ReviewFacts) -> Requirement | None:
    """Return the requirement if the policy asks for more than one reviewer."""
    if facts.missing is None:
        return None
    so_far = f"approved by {', '.join(facts.approved_by)}; " if facts.approved_by else ""
    what, lacking = "The approval policy is met", " and ".join(facts.missing)
    return Requirement(RequirementState.UNMET, what, f"{so_far}missing: {lacking}")


def _applies(facts: ReviewFacts, checked: Answer | None) -> Requirement:
    what = "The diff applies to HEAD now"
    if not facts.review.has_diff:
        return Requirement(RequirementState.MET, "There is no diff to apply", "a proposal without a diff has no digest")
    match checked:
        case None:
            return Requirement(RequirementState.WAITING, what, "git is being asked")
        case Applies(digest=None):
            return Requirement(
                RequirementState.MET, what, "but not to HEAD alone, so it has no digest, and a gate will not accept it"
            )
        case Applies(digest=digest, offsets=offsets):
            return Requirement(RequirementState.MET, what, f"as {_short(digest)}{_moved(offsets)}")
        case DoesNotApply(git_says=git_says):
            return Requirement(RequirementState.UNMET, what, f"git says: {git_says}")
        case BrokerError() as error:
            return Requirement(RequirementState.WAITING, what, error.message)


def _moved(offsets: tuple[Offset, ...]) -> str:
    """Say which hunks of an older diff apply at other lines than those shown."""
    if not offsets:
        return ""
    named = [f"hunk {offset.hunk} of {offset.path} by {offset.offset:+d} lines" for offset in offsets[:_MOST_OFFSETS]]
    more = f", and {len(offsets) - _MOST_OFFSETS} more" if len(offsets) > _MOST_OFFSETS else ""
    return f"; made from an older base, so hunks are moved: {', '.join(named)}{more}"


def _no_grave_finding(facts: ReviewFacts) -> Requirement:
    what = f"No open finding of severity {either(GRAVE)}"
    grave = [f for f in facts.findings if f.disposition is Disposition.OPEN and f.severity in GRAVE]
    if not grave:
        return Requirement(RequirementState.MET, what, f"{facts.review.open_finding_count} open in all")
    return Requirement(RequirementState.UNMET, what, "; ".join(f"{f.severity}: {f.title}" for f in grave[:3]))


def _judged(facts: ReviewFacts) -> Requirement:
    review = facts.review
    what = "Approved by a reviewer other than the author, for exactly this content"
    if review.status is Status.APPROVED or (review.status is Status.CLOSED and review.outcome == "approved"):
        return Requirement(RequirementState.MET, what, f"{review.claimed_by} approved {_short(review.digest)}")
    if review.claimed_by is None or not review.is_claim_live:
        return Requirement(RequirementState.UNMET, what, f"no verdict on revision {review.revision}")
    if same_identity(review.claimed_by, review.author):
        return Requirement(RequirementState.UNMET, what, f"{review.claimed_by} wrote it")
    return Requirement(RequirementState.WAITING, what, f"{review.claimed_by} is judging it")


def _person(facts: ReviewFacts) -> Requirement | None:
    what = "A person has looked at it"
    if facts.review.needs_human is not None:
        return Requirement(RequirementState.UNMET, what, f"asked for: {facts.review.needs_human}")
    cleared = [event for event in facts.events if event["event_type"] == EventType.HUMAN_CLEARED]
    return Requirement(RequirementState.MET, what, f"{cleared[-1]['actor']} did") if cleared else None


def _short(digest: str | None) -> str:
    return f"{digest[:_SHOWN]}…" if digest else "it, without a digest"
