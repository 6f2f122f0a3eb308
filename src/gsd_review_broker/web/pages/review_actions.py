"""The actions of a person on a review: the same services and rules as the agents' tools."""

import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gsd_review_broker.domain.caller import Caller, person
from gsd_review_broker.domain.model import Review
from gsd_review_broker.domain.rules.verdicts import Seen
from gsd_review_broker.domain.text import Identity
from gsd_review_broker.domain.words import Disposition, Role, Severity, Side, Status, Verdict
from gsd_review_broker.errors import BrokerError, Code, changed_since
from gsd_review_broker.service.access import caller_in
from gsd_review_broker.service.commands.discussion import NewMessage
from gsd_review_broker.service.commands.verdicts import NewVerdict
from gsd_review_broker.service.validation import FindingArgument
from gsd_review_broker.web.addresses import FORMS, LineName, with_query
from gsd_review_broker.web.conversation import FINDING_KEY, role_of
from gsd_review_broker.web.pages.review import ReviewPages
from gsd_review_broker.web.site import Action, Dashboard, Form

_TITLE_CHARACTERS = 120


class ReviewActions:
    def __init__(self, site: Dashboard, pages: ReviewPages) -> None:
        self._site = site
        self._pages = pages
        self._broker = site.broker

    def routes(self) -> list[Route]:
        actions: dict[str, Action] = {
            "claim": self._claim,
            "release": self._release,
            "take-over": self._take_over,
            "verdict": self._verdict,
            "message": self._message,
            "remark": self._remark,
            "resolve": self._resolve,
            "accept": self._accept,
            "reject": self._reject,
            "close": self._close,
        }
        return [self._site.post(f"/r/{{review_id}}/{name}", action) for name, action in actions.items()]

    def _caller(self, request: Request) -> Caller:
        """Return the caller that a token identifies, else the person at this machine."""
        caller = caller_in(request.scope)
        return caller if caller.proven else person(self._site.person_of(request))

    # The claim.

    async def _claim(self, request: Request, _form: Form) -> str:
        _refuse_auto_rejected(
            await self._broker.claims.claim(self._caller(request), _id(request), self._site.person_of(request))
        )
        return _back(request, "claimed")

    async def _release(self, request: Request, form: Form) -> str:
        generation = form.number("claim_generation")
        await self._broker.claims.release(self._caller(request), _id(request), generation or 0, repeat=None)
        return _back(request, "released")

    async def _take_over(self, request: Request, form: Form) -> str:
        """Take over only the claim that the page showed: a newer claim belongs to another reviewer."""
        review = await self._found(request)
        seen = form.number("claim_generation")
        if seen != review.claim_generation:
            raise changed_since("the claim that you saw is over")
        await self._broker.claims.take_over(self._caller(request), review.id, self._site.person_of(request))
        return _back(request, "taken_over")

    # Verdicts.

    async def _verdict(self, request: Request, form: Form) -> str | Response:
        try:
            return await self._judged(request, form)
        except BrokerError as error:
            return await self._pages.refused(request, error, form)

    async def _judged(self, request: Request, form: Form) -> str:
        verdict = form.choice("verdict", Verdict)
        new_verdict = NewVerdict(
            verdict=verdict, reason=form.optional("reason"), counter_patch=form.optional("counter_patch")
        )
        await self._judge(request, form, new_verdict)
        return _back(request, verdict.value)

    async def _judge(self, request: Request, form: Form, new_verdict: NewVerdict) -> None:
        """Judge the content that the page showed. The review is claimed with it if it is unclaimed."""
        result = await self._broker.verdicts.give_with_claim(
            self._caller(request),
            _id(request),
            new_verdict,
            reviewer_id=self._site.person_of(request),
            seen=_seen(form),
            claim_generation=form.number("claim_generation"),
        )
        _refuse_auto_rejected(result)

    async def _remark(self, request: Request, form: Form) -> str:
        """Remark on a line: a message at once, or a finding, which is a comment by the claim's holder."""
        place = _place(form)
        if form.text("severity") in {"", "message"}:
            await self._say(request, form, place)
            return _back(request, "sent", form)
        _require_text(form, "body")
        finding = FindingArgument(
            title=_title(form.text("body")),
            body=form.text("body"),
            severity=form.choice("severity", Severity),
            path=place.get("path"),
            line_start=place.get("line"),
            line_end=place.get("line"),
            side=place.get("side", Side.NEW),
            suggestion=form.optional("suggestion"),
        )
        await self._judge(request, form, NewVerdict(verdict=Verdict.COMMENT, reason=finding.title, findings=[finding]))
        return _back(request, "sent", form)

    # Messages.

    async def _message(self, request: Request, form: Form) -> str:
        await self._say(request, form, _place(form))
        return _back(request, "sent", form)

    async def _say(self, request: Request, form: Form, place: dict[str, Any]) -> None:
        """Claim an unclaimed review with the message: a person speaks as its reviewer."""
        review = await self._found(request)
        message = self._new_message(self._site.person_of(request), review, form, place)
        if review.status is not Status.PENDING:
            await self._broker.discussions.send(self._caller(request), review.id, message, repeat=None)
            return
        _refuse_auto_rejected(
            await self._broker.discussions.send_with_claim(
                self._caller(request), review.id, message, reviewer_id=self._site.person_of(request), seen=_seen(form)
            )
        )

    def _new_message(self, sender: Identity, review: Review, form: Form, place: dict[str, Any]) -> NewMessage:
        metadata: dict[str, Any] = {}
        if form.optional(FINDING_KEY):
            metadata[FINDING_KEY] = form.text(FINDING_KEY)[:64]
        if place.get("side") is Side.OLD:
            metadata["side"] = Side.OLD.value
        return NewMessage(
            sender_role=role_of(review, sender),
            body=form.text("body"),
            sender_id=sender,
            path=place.get("path"),
            line=place.get("line"),
            in_reply_to=form.number("in_reply_to"),
            metadata=metadata or None,
        )

    async def _resolve(self, request: Request, form: Form) -> str:
        review = await self._found(request)
        await self._broker.discussions.resolve_finding(
            self._caller(request),
            review.id,
            form.text("finding_id"),
            form.choice("disposition", Disposition),
            note=form.optional("note"),
            as_reviewer=role_of(review, self._site.person_of(request)) is Role.REVIEWER,
            repeat=None,
            person=self._site.person_of(request),
        )
        return _back(request, "resolved", form)

    # The proposer's actions, which a person may take.

    async def _accept(self, request: Request, form: Form) -> str:
        review = await self._found(request)
        open_patch = (await self._broker.page_queries.review(review.id)).counter_patches[-1:]
        if not open_patch or open_patch[0].id != form.number("patch"):
            raise changed_since("another counter-patch was offered since")
        await self._broker.counter_patches.accept(
            self._caller(request), review.id, proposer_id=self._site.person_of(request), repeat=None
        )
        return _back(request, "accepted")

    async def _reject(self, request: Request, form: Form) -> str:
        await self._broker.counter_patches.reject(
            self._caller(request),
            _id(request),
            reason=form.optional("reason"),
            proposer_id=self._site.person_of(request),
            repeat=None,
        )
        return _back(request, "rejected")

    async def _close(self, request: Request, form: Form) -> str:
        await self._broker.proposals.close(
            self._caller(request),
            _id(request),
            closer_role=Role.PROPOSER,
            reason=form.optional("reason"),
            proposer_id=self._site.person_of(request),
            repeat=None,
        )
        return _back(request, "closed")

    async def _found(self, request: Request) -> Review:
        return await self._broker.page_queries.find(_id(request))


def _id(request: Request) -> str:
    return request.path_params["review_id"]


def _back(request: Request, done: str, form: Form | None = None) -> str:
    """Return the address of the page and the place of the form."""
    place = form.text("back") if form else ""
    anchor = f"#{place}" if re.fullmatch(r"[a-z0-9-]{1,40}", place) else ""
    values: dict[str, object] = {"done": done}
    if form and form.text("as") in FORMS:
        values["as"] = form.text("as")
    if form and form.number("rev"):
        values["rev"] = form.number("rev")
    return with_query(f"/r/{_id(request)}", values) + anchor


def _require_text(form: Form, name: str) -> None:
    if form.optional(name) is None:
        raise BrokerError(Code.INVALID_ARGUMENT, f"{name}: must not be empty or blank", "Write something.")


def _seen(form: Form) -> Seen:
    # A form without a revision showed none; no revision has the number 0.
    return Seen(revision=form.number("revision") or 0, digest=form.optional("digest"), is_complete=True)


def _refuse_auto_rejected(result: Mapping[str, Any]) -> None:
    if "auto_rejected" in result:
        raise BrokerError(
            Code.DIFF_INVALID,
            f"the diff does not apply, so it went back to its author: {result['validation_error']}",
            "There is nothing to do here until there is a new revision.",
        )


def _place(form: Form) -> dict[str, Any]:
    """Return the line of the form; its path is the file's own."""
    line = LineName.of(form.text("at"))
    if line is None:
        return {}
    return {"path": form.optional("path"), "line": line.number, "side": Side.OLD if line.side == "o" else Side.NEW}


def _title(body: str) -> str:
    first = body.strip().splitlines()[0].strip()
    return first if len(first) <= _TITLE_CHARACTERS else first[: _TITLE_CHARACTERS - 1] + "…"
