"""The reviewer's right to judge: claim, wait for a claim, release it, take it over, claim as part of another step."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.model import Change, Identity, Review
from gsd_review_broker.domain.rules import claims
from gsd_review_broker.domain.rules.verdicts import Seen, refuse_other_revision, refuse_useless_approver
from gsd_review_broker.domain.text import same_identity
from gsd_review_broker.domain.words import ReviewerState, Status
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import ListPosition, Reader, ReviewFilter, Transaction, list_position
from gsd_review_broker.ports.world import QUEUE, Applies, DoesNotApply, Offset
from gsd_review_broker.service import validation
from gsd_review_broker.service.access import ByClaim, draining
from gsd_review_broker.service.applies import Applicability
from gsd_review_broker.service.approvals import approvals_so_far, keep_reviewed_change
from gsd_review_broker.service.core import Core, Repeat, present, remembered, taken
from gsd_review_broker.service.waiting import ClaimTurns, LongPoll, Turn
from gsd_review_broker.service.wire.content import open_findings
from gsd_review_broker.service.wire.reviews import (
    AutoRejected,
    Claim,
    NotClaimed,
    Released,
    auto_rejected,
    claim_result,
    released,
)

log = structlog.get_logger()

_ATTEMPTS = 5
_CANDIDATES = 20
# More reviewers than that do not claim at the same time.
_LIVE_CLAIMS = 500
_ANY_PROJECT = "*"
_NOTHING_SEEN = Seen()
# Errors of one candidate that do not stop the search for another.
_PASSED_OVER = {Code.ALREADY_CLAIMED, Code.INVALID_TRANSITION, Code.SELF_REVIEW, Code.UNAVAILABLE, Code.BUSY}

R = TypeVar("R")
# What a reviewer does in the transaction that begins the claim. A refusal that was recorded is returned, not raised.
ClaimStep = Callable[[Transaction, Change], R | BrokerError]


@dataclass(frozen=True, slots=True)
class _NextCall:
    """One call of claim_next, and the reviews that it may claim."""

    caller: Caller
    reviewer: Identity
    wanted: ReviewFilter
    repeat: Repeat | None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What a claim was prepared for. Without `checked`, the reviewer already held the claim and git was not asked."""

    review: Review
    reviewer: Identity
    checked: Applies | DoesNotApply | None
    seen: Seen
    repeat: Repeat | None


class Claims:
    def __init__(self, core: Core, waiting: LongPoll, applies: Applicability) -> None:
        self._core = core
        self._waiting = waiting
        self._applies = applies
        self._turns = ClaimTurns()

    async def claim(
        self, caller: Caller, review_id: str, reviewer_id: str, *, repeat: Repeat | None = None
    ) -> Claim | AutoRejected:
        reviewer_id = caller.proven_identity or reviewer_id
        reviewer = validation.identity("reviewer_id", reviewer_id, self._core.policy.limits)
        await self._core.saw(reviewer)

        async def prepare(review: Review) -> ClaimStep[Claim]:
            offsets = await self._applies.offsets(review)
            return lambda tx, begun: self._claimed(tx, begun, reviewer, offsets)

        return await self.claimed_with(review_id, reviewer, prepare, repeat=repeat)

    def _claimed(self, tx: Transaction, begun: Change, reviewer: Identity, offsets: tuple[Offset, ...]) -> Claim:
        """Save a new claim. A claimant that claims again gets the same answer, while the claim is live."""
        if begun.events:
            tx.save(begun)
        else:
            claims.may_claim(begun.review, reviewer=reviewer, now=tx.now)
        return self._view(tx, begun.review, offsets)

    async def claimed_with(
        self,
        review_id: str,
        reviewer: Identity,
        prepare: Callable[[Review], Awaitable[ClaimStep[R]]],
        *,
        seen: Seen = _NOTHING_SEEN,
        repeat: Repeat | None = None,
    ) -> R | AutoRejected:
        """Take one step of a reviewer together with the claim that it needs, in one transaction.

        git and `prepare`, which makes the step, come before the transaction. The step saves the change that begins the
        claim (it has no events if the reviewer holds the claim already), followed by its own. If the step raises,
        nothing was claimed.
        """
        for _ in range(_ATTEMPTS):
            review = await self._core.find(review_id)
            kept = await self._core.recalled(repeat, review.project)
            if kept is not None:
                return kept
            refuse_other_revision(review, seen)
            holds = same_identity(review.claimed_by, reviewer)
            if not holds:
                claims.may_claim(review, reviewer=reviewer, now=self._core.clock.now())
                self._refuse_draining(reviewer)
            # The claimant gets its answer without git, which was asked when the claim began.
            checked = None if holds else await self._applies.demand(review)
            step = await prepare(review)
            attempt = _Attempt(review, reviewer, checked, seen, repeat)
            result = await self._core.store.write(
                lambda tx, attempt=attempt, step=step: self._attempted(tx, attempt, step)
            )
            if isinstance(result, BrokerError):
                raise result
            if result is not None:
                return result
        raise _keeps_changing(review_id)

    def _attempted(
        self, tx: Transaction, attempt: _Attempt, step: ClaimStep[R]
    ) -> R | AutoRejected | BrokerError | None:
        """Return None if the review is not what git was asked about, so that the caller looks again."""
        review = present(tx.lock_review(attempt.review.id), attempt.review.id)
        kept = taken(tx, self._core, attempt.repeat, review.project)
        if kept is not None:
            return kept
        refuse_other_revision(review, attempt.seen)
        if same_identity(review.claimed_by, attempt.reviewer):
            begun = Change(review=review, events=())
        else:
            claims.may_claim(review, reviewer=attempt.reviewer, now=tx.now)
            self._refuse_draining(attempt.reviewer)
            if attempt.checked is None or review.revision != attempt.review.revision:
                return None
            if isinstance(attempt.checked, DoesNotApply):
                return self._auto_rejected(tx, review, attempt.checked, attempt.repeat)
            begun = self._begun(tx, review, attempt.reviewer, attempt.checked)
        return remembered(tx, self._core, attempt.repeat, review.project, step(tx, begun))

    def _auto_rejected(
        self, tx: Transaction, review: Review, checked: DoesNotApply, repeat: Repeat | None
    ) -> AutoRejected:
        change = claims.auto_reject(review, git_says=checked.git_says, now=tx.now)
        tx.save(change)
        # claim_next does not stop here; it goes on to the next review.
        keep = repeat if repeat is not None and repeat.project is None else None
        return remembered(tx, self._core, keep, review.project, auto_rejected(change.review))

    def _begun(self, tx: Transaction, review: Review, reviewer: Identity, checked: Applies) -> Change:
        self._refuse_useless(tx, review, reviewer, checked.digest)
        keep_reviewed_change(tx, review, checked)
        return claims.claim(review, reviewer=reviewer, digest=checked.digest, policy=self._core.policy, now=tx.now)

    def _refuse_useless(self, tx: Transaction, review: Review, reviewer: Identity, digest: str | None) -> None:
        policy = self._core.policy.approvals
        so_far = approvals_so_far(tx, review, policy, digest=digest)
        refuse_useless_approver(review, reviewer, policy, so_far)

    def _refuse_draining(self, reviewer: Identity) -> bool:
        """Returns whether the reviewer is one of the pool's."""
        state = self._core.access.pool_state(reviewer)
        if state not in {None, ReviewerState.ACTIVE}:
            raise draining(reviewer)
        return state is not None

    def _view(self, reader: Reader, review: Review, offsets: tuple[Offset, ...] = ()) -> Claim:
        revision = reader.revision(review.id, review.revision, with_diff=False)
        assert revision is not None  # noqa: S101 - a review has the revision that it names
        findings = reader.findings(review.id) if review.open_finding_count else []
        return claim_result(review, revision, open_findings(findings), offsets)

    async def claim_next(
        self,
        caller: Caller,
        reviewer_id: str,
        *,
        category: str | None,
        project: str | None,
        wait: bool,
        wait_seconds: float | None,
        repeat: Repeat | None,
    ) -> Claim | NotClaimed:
        reviewer_id = caller.proven_identity or reviewer_id
        reviewer = validation.identity("reviewer_id", reviewer_id, self._core.policy.limits)
        project = validation.project(project, self._core.policy.limits)
        await self._core.saw(reviewer)
        repeat = replace(repeat, project=project or _ANY_PROJECT) if repeat else None

        async with self._turns.turn_of(reviewer) as turn:
            claim: Claim | None = await self._core.recalled(repeat, project)
            if claim is None:
                wanted = ReviewFilter(category=category, project=project)
                call = _NextCall(caller, reviewer, wanted, repeat)
                claim = await self._wait_for_claim(call, turn, wait=wait, wait_seconds=wait_seconds)
        if claim is None:
            return {"claimed": False}
        claim["claimed"] = True
        return claim

    async def _wait_for_claim(
        self, call: _NextCall, turn: Turn, *, wait: bool, wait_seconds: float | None
    ) -> Claim | None:
        is_first_look = True

        async def look() -> Claim | None:
            nonlocal is_first_look
            if wait:
                turn.refuse_if_stopped()
            claim = await self._first_claimable(call)
            if claim is None and is_first_look:
                claim = await self._own_unused(call)
            is_first_look = False
            return claim

        return await self._waiting.until(QUEUE, look, wait=wait, wait_seconds=wait_seconds, turn=turn)

    async def _own_unused(self, call: _NextCall) -> Claim | None:
        """Find a claim of the same reviewer with which nothing was done: its answer was lost."""
        wanted = replace(call.wanted, status=Status.CLAIMED)
        claimed = await self._core.store.read(lambda reader: reader.reviews(wanted, after=None, limit=_LIVE_CLAIMS))
        for review in claimed:
            if same_identity(review.claimed_by, call.reviewer) and claims.is_unused(review, self._core.policy):
                return await self._try(call, review)
        return None

    async def _first_claimable(self, call: _NextCall) -> Claim | None:
        of_pool = self._refuse_draining(call.reviewer)
        # All waiting reviewers ask this at each new review, so the cheap query comes first.
        if await self._core.store.glance(lambda reader: reader.oldest_pending_at()) is None:
            return None
        position: ListPosition | None = None
        while True:
            candidates = await self._core.store.read(
                lambda reader, after=position: reader.reviews(
                    replace(
                        call.wanted,
                        status=Status.PENDING,
                        claimable_by=call.reviewer,
                        claimable_at=self._core.clock.now(),
                        for_pool=of_pool,
                    ),
                    after=after,
                    limit=_CANDIDATES,
                )
            )
            for candidate in candidates:
                claimed = await self._try(call, candidate)
                if claimed is not None:
                    return claimed
            if len(candidates) < _CANDIDATES:
                return None
            position = list_position(candidates[-1])

    async def _try(self, call: _NextCall, candidate: Review) -> Claim | None:
        try:
            result = await self.claim(call.caller, candidate.id, call.reviewer, repeat=call.repeat)
        except BrokerError as error:
            if error.code not in _PASSED_OVER:
                raise
            if error.code is Code.UNAVAILABLE:
                log.warning("claim_passed_over", review_id=candidate.id, reason=error.message)
            return None
        return None if "auto_rejected" in result else result

    async def release(
        self, caller: Caller, review_id: str, claim_generation: int, *, repeat: Repeat | None
    ) -> Released:
        by_claim = ByClaim(action="release_claim", caller=caller, claim_generation=claim_generation)

        def command(tx: Transaction, review: Review) -> Released:
            change = claims.release(review, claim_generation=claim_generation, now=tx.now)
            tx.save(change)
            return released(change.review)

        return await self._core.change(review_id, repeat, command, by_claim=by_claim)

    async def take_over(self, caller: Caller, review_id: str, person: str) -> Claim:
        """Give the claim to a person, who takes precedence over agents."""
        identity = validation.identity("person", caller.proven_identity or person, self._core.policy.limits)

        def command(tx: Transaction, review: Review) -> Claim:
            change = claims.take_over(review, person=identity, policy=self._core.policy, now=tx.now)
            tx.save(change)
            return self._view(tx, change.review)

        return await self._core.change(review_id, None, command)


def _keeps_changing(review_id: str) -> BrokerError:
    return BrokerError(Code.BUSY, f"review {review_id} changed each time while git checked it", "Call again.")
