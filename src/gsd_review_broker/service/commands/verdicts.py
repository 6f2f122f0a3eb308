"""Verdicts under a claim, a person's verdict together with its claim, and the ticket that follows an approval."""

import asyncio
from dataclasses import dataclass, field, replace

import structlog

from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.model import AffectedFile, Change, CounterPatch, Milliseconds, Review, ReviewId, Revision
from gsd_review_broker.domain.rules.transitions import followed_by
from gsd_review_broker.domain.rules.verdicts import (
    Judgement,
    Seen,
    give_verdict,
    refuse_incomplete,
    refuse_other_digest,
    refuse_verdict,
    refused_verdict,
)
from gsd_review_broker.domain.text import BROKER
from gsd_review_broker.domain.words import CounterPatchStatus, Status, Verdict
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.ports.store import Reader, Transaction
from gsd_review_broker.ports.world import TicketIssuer
from gsd_review_broker.service import validation
from gsd_review_broker.service.access import ByClaim
from gsd_review_broker.service.applies import Applicability
from gsd_review_broker.service.approvals import approvals_so_far
from gsd_review_broker.service.commands.claims import Claims, ClaimStep
from gsd_review_broker.service.commands.findings import PlacedFindings, placed, refuse_unreadable
from gsd_review_broker.service.commands.proposals import require_applicable
from gsd_review_broker.service.core import Core, Repeat, find_review, recalled
from gsd_review_broker.service.validation import FindingArgument, read_diff
from gsd_review_broker.service.wire.reviews import AutoRejected, VerdictResult, verdict_result

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewVerdict:
    """A verdict as the reviewer sends it."""

    verdict: Verdict
    reason: str | None = None
    counter_patch: str | None = None
    findings: list[FindingArgument] = field(default_factory=list[FindingArgument])

    @property
    def has_content(self) -> bool:
        """Does it contain anything that needs git or the diff?"""
        return self.counter_patch is not None or bool(self.findings)


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a verdict, checked before the transaction."""

    findings: PlacedFindings
    diff: bytes | None = None
    files: tuple[AffectedFile, ...] = ()

    def counter_patch(self, review: Review, now: Milliseconds) -> CounterPatch | None:
        if self.diff is None:
            return None
        return CounterPatch(
            review_id=review.id,
            revision=review.revision,
            round=review.round,
            diff=self.diff,
            affected_files=self.files,
            offered_by=review.claimed_by or BROKER,
            status=CounterPatchStatus.PENDING,
            reason=None,
            created_at=now,
        )


_NOTHING = _Content(PlacedFindings(()))


class Tickets:
    """Issues a ticket for the commit that is expected next, so that the gate's hook need not ask."""

    def __init__(self, core: Core, applies: Applicability, office: TicketIssuer) -> None:
        self._core = core
        self._applies = applies
        self._office = office

    async def after(self, result: VerdictResult | AutoRejected) -> None:
        # Without a ticket the hook asks, so no failure here is an error.
        review_id = ReviewId(result["review_id"])
        checked = self._applies.last(review_id) if result["status"] == Status.APPROVED else None
        if checked is None or checked.base is None:
            return
        base = checked.base
        change = await self._core.store.glance(lambda reader: reader.reviewed_change(review_id))
        if change is None or change.approved_at is None or change.digest != checked.digest:
            return
        try:
            await asyncio.to_thread(self._office.issue, change, base)
        except OSError as error:
            log.warning("ticket_failed", review_id=review_id, error=str(error))


class Verdicts:
    def __init__(self, core: Core, claims: Claims, tickets: Tickets) -> None:
        self._core = core
        self._claims = claims
        self._tickets = tickets

    async def give(
        self,
        caller: Caller,
        review_id: str,
        given: NewVerdict,
        *,
        reviewer_id: str | None,
        claim_generation: int | None,
        repeat: Repeat | None,
    ) -> VerdictResult:
        """Judge under a claim that is held. A proven caller needs a claim of its own."""
        judgement = self._judgement(given, reviewer_id, claim_generation)
        await self._core.saw(judgement.reviewer_id)
        content, refusal = _NOTHING, None
        if given.has_content:
            known, revision, answered = await self._review_to_judge(review_id, repeat)
            if answered is not None:
                return answered
            # A caller that may not judge is refused, and recorded, before git or the diff is read.
            refusal = self._refusal(known, judgement)
            content = _NOTHING if refusal else await self._content(known, revision, given)

        def command(tx: Transaction, review: Review) -> VerdictResult | BrokerError:
            if refusal is not None:
                tx.save(refused_verdict(review, judgement, refusal, tx.now))
                return refusal
            change = self._change(tx, review, judgement, content)
            tx.save(change)
            return change.refusal or verdict_result(change, judgement.verdict.value)

        by_claim = ByClaim(
            action="submit_verdict",
            caller=caller,
            named=judgement.reviewer_id,
            claim_generation=claim_generation,
            is_verdict=True,
        )
        names_claim = judgement.reviewer_id is not None or claim_generation is not None or caller.proven
        result = await self._core.change(review_id, repeat, command, by_claim=by_claim if names_claim else None)
        await self._tickets.after(result)
        return result

    async def give_with_claim(
        self,
        caller: Caller,
        review_id: str,
        given: NewVerdict,
        *,
        reviewer_id: str,
        seen: Seen,
        claim_generation: int | None = None,
    ) -> VerdictResult | AutoRejected:
        """Claim and judge in one transaction.

        It applies only to what the person has seen. `claim_generation` is compared if the reviewer already holds the
        claim.
        """
        reviewer_id = caller.proven_identity or reviewer_id
        judgement = self._judgement(given, reviewer_id, claim_generation)
        reviewer = validation.identity("reviewer_id", reviewer_id, self._core.policy.limits)
        await self._core.saw(reviewer)

        async def prepare(review: Review) -> ClaimStep[VerdictResult]:
            revision = await self._revision(review) if given.has_content else None
            content = await self._content(review, revision, given)
            return lambda tx, begun: self._given(tx, begun, judgement, content, seen)

        result = await self._claims.claimed_with(review_id, reviewer, prepare, seen=seen)
        await self._tickets.after(result)
        return result

    def _given(
        self, tx: Transaction, begun: Change, judgement: Judgement, content: _Content, seen: Seen
    ) -> VerdictResult | BrokerError:
        refuse_other_digest(begun.review, seen, approves=judgement.verdict is Verdict.APPROVED)
        by = replace(judgement, claim_generation=begun.review.claim_generation) if begun.events else judgement
        change = self._change(tx, begun.review, by, content)
        tx.save(followed_by(begun, change))
        return change.refusal or verdict_result(change, judgement.verdict.value)

    def _judgement(self, sent: NewVerdict, reviewer_id: str | None, claim_generation: int | None) -> Judgement:
        limits = self._core.policy.limits
        refuse_unreadable(limits, sent.findings)
        judgement = Judgement(
            verdict=sent.verdict,
            reason=validation.optional_text("reason", sent.reason, limits.text),
            reviewer_id=validation.optional_identity("reviewer_id", reviewer_id, limits),
            claim_generation=claim_generation,
        )
        refuse_incomplete(judgement, has_counter_patch=sent.counter_patch is not None)
        return judgement

    def _change(self, tx: Transaction, review: Review, judgement: Judgement, content: _Content) -> Change:
        findings, open_count = content.findings.raised(review, tx, now=tx.now)
        return give_verdict(
            review,
            judgement,
            counter_patch=content.counter_patch(review, tx.now),
            findings=findings,
            open_finding_count=open_count,
            pool_managed=self._is_of_pool(review),
            policy=self._core.policy,
            now=tx.now,
            so_far=approvals_so_far(tx, review, self._core.policy.approvals, digest=review.digest),
        )

    def _refusal(self, review: Review, judgement: Judgement) -> BrokerError | None:
        try:
            refuse_verdict(review, judgement, pool_managed=self._is_of_pool(review), policy=self._core.policy)
        except BrokerError as error:
            return error
        return None

    def _is_of_pool(self, review: Review) -> bool:
        return self._core.access.pool_state(review.claimed_by) is not None

    async def _review_to_judge(
        self, review_id: str, repeat: Repeat | None
    ) -> tuple[Review, Revision | None, VerdictResult | None]:
        """Read the review, its newest revision, and the answer to an earlier identical call, in one snapshot."""

        def read(reader: Reader) -> tuple[Review, Revision | None, VerdictResult | None]:
            review = find_review(reader, review_id)
            revision = reader.revision(review.id, review.revision, with_diff=True)
            return review, revision, recalled(reader, self._core, repeat, review.project)

        return await self._core.store.read(read)

    async def _revision(self, review: Review) -> Revision | None:
        return await self._core.store.read(lambda reader: reader.revision(review.id, review.revision, with_diff=True))

    async def _content(self, review: Review, revision: Revision | None, sent: NewVerdict) -> _Content:
        """Place the findings, and refuse a counter-patch that does not apply."""
        limits = self._core.policy.limits
        diff, files = await read_diff("counter_patch", sent.counter_patch, limits)
        if diff is not None:
            await require_applicable(self._core, review, diff, files)
        findings = await placed(sent.findings, revision.diff if revision else None)
        return _Content(findings, diff, files)
