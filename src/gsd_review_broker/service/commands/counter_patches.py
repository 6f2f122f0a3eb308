"""Counter-patches: the diff that a reviewer offers instead, checked like a proposal."""

from dataclasses import dataclass

from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.model import AffectedFile, CounterPatch, Milliseconds, Review
from gsd_review_broker.domain.rules import discussion
from gsd_review_broker.domain.text import BROKER
from gsd_review_broker.domain.words import CounterPatchStatus
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.ports.store import Transaction
from gsd_review_broker.ports.world import DoesNotApply
from gsd_review_broker.service import validation
from gsd_review_broker.service.commands.findings import moved_to
from gsd_review_broker.service.core import Core, Repeat
from gsd_review_broker.service.wire.reviews import ReviewStatus, review_status


@dataclass(frozen=True, slots=True)
class OfferedPatch:
    diff: bytes
    files: tuple[AffectedFile, ...]

    def on(self, review: Review, now: Milliseconds) -> CounterPatch:
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


async def require_applicable(core: Core, review: Review, diff: bytes, files: tuple[AffectedFile, ...]) -> None:
    if not files:
        raise BrokerError(
            Code.DIFF_INVALID,
            "counter_patch: it is not a unified diff that git can read",
            "Make it with git diff; nothing of this call was recorded.",
        )
    checked = await core.repository.check(review.workspace, diff, already_applied=False)
    if isinstance(checked, DoesNotApply):
        raise BrokerError(
            Code.DIFF_INVALID,
            f"counter_patch: it does not apply: {checked.git_says}",
            "A counter-patch replaces the proposal, so it must apply to the same tree; nothing was recorded.",
        )


class CounterPatches:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def accept(
        self, caller: Caller, review_id: str, *, proposer_id: str | None, repeat: Repeat | None
    ) -> ReviewStatus:
        actor = caller.acting(validation.optional_identity("proposer_id", proposer_id, self._core.policy.limits))
        review = await self._core.find(review_id)
        patch, findings = await self._core.store.read(
            lambda reader: (reader.open_counter_patch(review.id), reader.findings(review.id))
        )
        if patch is not None:
            await require_applicable(self._core, review, patch.diff, patch.affected_files)
        moved = await moved_to(findings, patch.diff if patch else None)

        def command(tx: Transaction, current: Review) -> ReviewStatus:
            open_patch = tx.open_counter_patch(review.id)
            if open_patch is not None and (patch is None or open_patch.id != patch.id):
                raise BrokerError(
                    Code.CONFLICT,
                    "another counter-patch was offered in the meantime",
                    NextStep(Next.READ_COUNTER_PATCH),
                )
            revision = tx.revision(review.id, current.revision, with_diff=False)
            assert revision is not None  # noqa: S101 - a review that is held has the revision that it names
            change = discussion.accept_counter_patch(
                current,
                patch=open_patch,
                revision=revision,
                caller=actor,
                is_administrator=caller.is_administrator,
                findings=moved.applied_to(tx.findings(review.id)),
                reviewer_alive=self._core.liveness.is_alive(current.claimed_by),
                policy=self._core.policy,
                now=tx.now,
            )
            tx.save(change)
            return review_status(change.review, changed=True)

        return await self._core.change(review_id, repeat, command)

    async def reject(
        self, caller: Caller, review_id: str, *, reason: str | None, proposer_id: str | None, repeat: Repeat | None
    ) -> ReviewStatus:
        limits = self._core.policy.limits
        reason = validation.optional_text("reason", reason, limits.text)
        actor = caller.acting(validation.optional_identity("proposer_id", proposer_id, limits))

        def command(tx: Transaction, review: Review) -> ReviewStatus:
            change = discussion.reject_counter_patch(
                review, caller=actor, is_administrator=caller.is_administrator, reason=reason, now=tx.now
            )
            tx.save(change)
            return review_status(change.review, changed=True)

        return await self._core.change(review_id, repeat, command)
