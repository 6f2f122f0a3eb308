"""The proposer's commands: create, revise, close, decide about a counter-patch."""

from dataclasses import dataclass, replace

from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.model import (
    AffectedFile,
    Draft,
    Identity,
    Limits,
    Origin,
    Review,
    ReviewId,
    Revision,
    new_review_id,
    values_of,
)
from gsd_review_broker.domain.patch.places import LinePlace
from gsd_review_broker.domain.rules import discussion, proposals
from gsd_review_broker.domain.words import Role
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.ports.store import Transaction
from gsd_review_broker.ports.world import DoesNotApply
from gsd_review_broker.service import validation
from gsd_review_broker.service.commands.findings import moved, places_in
from gsd_review_broker.service.core import Core, Repeat, once
from gsd_review_broker.service.validation import read_diff
from gsd_review_broker.service.wire.content import CreatedReview, created_review
from gsd_review_broker.service.wire.reviews import Closed, ReviewStatus, closed, review_status


@dataclass(frozen=True, kw_only=True, slots=True)
class NewProposal:
    """The arguments of create_review, not checked yet."""

    origin: Origin
    intent: str
    description: str | None = None
    diff: str | None = None
    skip_diff_validation: bool = False


class Proposals:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(self, caller: Caller, proposal: NewProposal, *, repeat: Repeat | None) -> CreatedReview:
        checked, draft = await self._checked(caller, proposal)
        workspace = await self._workspace(checked, draft)
        project = await self._project(checked, workspace)
        kept = await self._core.recalled(repeat, project)
        if kept is not None:
            return kept
        parent = await self._core.find(checked.parent_id) if checked.parent_id else None
        origin = replace(checked, project=project, workspace=workspace, parent_id=parent.id if parent else None)
        return await self._core.store.write(
            lambda tx: once(tx, self._core, repeat, project, lambda: self._create(tx, origin, draft))
        )

    def _create(self, tx: Transaction, origin: Origin, draft: Draft) -> CreatedReview:
        change = proposals.create(origin=origin, revision=_revision(draft, new_review_id(), 1, tx), now=tx.now)
        tx.save(change)
        assert change.revision is not None  # noqa: S101 - a creation always has one
        return created_review(change.review, change.revision)

    async def revise(
        self, caller: Caller, review_id: str, proposal: NewProposal, *, repeat: Repeat | None
    ) -> CreatedReview:
        origin, draft = await self._checked(caller, proposal)
        review = await self._core.find(review_id)
        findings = await self._core.store.glance(lambda reader: reader.findings(review.id))
        places = await places_in(findings, draft.diff)
        return await self._core.change(
            review_id,
            repeat,
            lambda tx, review: self._revise(
                tx, review, origin, draft, places, is_administrator=caller.is_administrator
            ),
        )

    def _revise(
        self,
        tx: Transaction,
        review: Review,
        origin: Origin,
        draft: Draft,
        places: dict[str, LinePlace],
        *,
        is_administrator: bool,
    ) -> CreatedReview:
        change = proposals.revise(
            review,
            revision=_revision(draft, review.id, review.revision + 1, tx),
            caller=origin.proposer_id,
            is_administrator=is_administrator,
            findings=moved(tx.findings(review.id), places),
            reviewer_alive=self._core.liveness.is_alive(review.claimed_by),
            policy=self._core.policy,
            now=tx.now,
        )
        tx.save(change)
        assert change.revision is not None  # noqa: S101 - a revision always has one
        return created_review(change.review, change.revision)

    async def close(
        self,
        caller: Caller,
        review_id: str,
        *,
        closer_role: Role,
        reason: str | None,
        proposer_id: str | None,
        repeat: Repeat | None,
    ) -> Closed:
        limits = self._core.policy.limits
        reason = validation.optional_text("reason", reason, limits.text)
        actor = caller.acting(validation.optional_identity("proposer_id", proposer_id, limits))

        def command(tx: Transaction, review: Review) -> Closed:
            change = proposals.close(
                review,
                closer_role=closer_role,
                caller=actor,
                is_administrator=caller.is_administrator,
                reason=reason,
                now=tx.now,
            )
            tx.save(change)
            return closed(change.review)

        return await self._core.change(review_id, repeat, command)

    async def _checked(self, caller: Caller, proposal: NewProposal) -> tuple[Origin, Draft]:
        """Check each argument, once."""
        limits = self._core.policy.limits
        origin = _checked_origin(caller, proposal.origin, limits)
        author = origin.proposer_id if origin.proposer_id is not None else Identity(origin.agent_type)
        diff, files = await read_diff("diff", proposal.diff, limits)
        draft = Draft(
            intent=validation.text("intent", proposal.intent, limits.intent),
            description=validation.optional_text("description", proposal.description, limits.text),
            diff=diff,
            affected_files=files,
            skip_diff_validation=proposal.skip_diff_validation,
            author=author,
            written_by=author,
        )
        return origin, draft

    async def _workspace(self, origin: Origin, draft: Draft) -> str | None:
        workspace = await self._core.repository.resolve_workspace(origin.workspace)
        if workspace is None and draft.diff is not None and not draft.skip_diff_validation:
            raise BrokerError(
                Code.UNAVAILABLE,
                "a diff needs a repository to be checked in, and this broker serves none",
                "Start the broker inside the repository, or give a workspace that its configuration allows.",
            )
        return workspace

    async def _project(self, origin: Origin, workspace: str | None) -> str | None:
        """Return the call's project, else the token's, else the repository's, if the broker serves several."""
        project = self._core.project_of(origin.project)
        if project is None and origin.workspace is not None:
            return await self._core.repository.project_of(workspace)
        return project


def _checked_origin(caller: Caller, origin: Origin, limits: Limits) -> Origin:
    """Check each name. A proven caller is the proposer, whatever the call says."""
    validation.text("phase", origin.phase, limits.name)
    validation.optional_text("plan", origin.plan, limits.name)
    validation.optional_text("task", origin.task, limits.name)
    validation.project(origin.project, limits)
    validation.optional_text("workspace", origin.workspace, 4 * limits.name)
    return replace(
        origin,
        agent_type=validation.identity("agent_type", origin.agent_type, limits),
        proposer_id=validation.optional_identity("proposer_id", caller.acting(origin.proposer_id), limits),
    )


def _revision(draft: Draft, review_id: ReviewId, number: int, tx: Transaction) -> Revision:
    return Revision(**values_of(draft), review_id=review_id, number=number, created_at=tx.now)


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
        places = await places_in(findings, patch.diff if patch else None)

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
                findings=moved(tx.findings(review.id), places),
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
