"""The proposer's commands: create, revise, close."""

from dataclasses import dataclass

from gsd_review_broker.domain import rules
from gsd_review_broker.domain.model import (
    AffectedFile,
    Category,
    Identity,
    Review,
    ReviewId,
    Revision,
    Role,
    new_review_id,
)
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports import Transaction
from gsd_review_broker.service import validation
from gsd_review_broker.service.commands.findings import Moved, moved_to
from gsd_review_broker.service.core import Core, Repeat, once, recalled
from gsd_review_broker.service.diffs import read_diff
from gsd_review_broker.service.lookup import find_review
from gsd_review_broker.service.wire import views
from gsd_review_broker.service.wire.reviews import Closed, CreatedReview


@dataclass(frozen=True, kw_only=True, slots=True)
class NewProposal:
    """What create_review is given, as it came."""

    intent: str
    agent_type: str
    agent_role: Role
    phase: str
    plan: str | None = None
    task: str | None = None
    category: Category | None = None
    description: str | None = None
    diff: str | None = None
    project: str | None = None
    workspace: str | None = None
    proposer_id: str | None = None
    parent_id: str | None = None
    skip_diff_validation: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Content:
    """A proposal's content, checked."""

    intent: str
    description: str | None
    diff: bytes | None
    files: tuple[AffectedFile, ...]
    skip_diff_validation: bool
    author: Identity

    def revision(self, review_id: ReviewId, number: int, tx: Transaction) -> Revision:
        return Revision(
            review_id=review_id,
            number=number,
            intent=self.intent,
            description=self.description,
            diff=self.diff,
            skip_diff_validation=self.skip_diff_validation,
            affected_files=self.files,
            author=self.author,
            written_by=self.author,
            created_at=tx.now,
        )


class Proposals:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(self, proposal: NewProposal, *, repeat: Repeat | None) -> CreatedReview:
        kept = await self._core.store.glance(lambda reader: recalled(reader, self._core, repeat, proposal.project))
        if kept is not None:
            return kept
        content = await self._content(proposal)
        workspace = await self._workspace(proposal, content)
        return await self._core.store.write(
            lambda tx: once(
                tx,
                self._core,
                repeat,
                proposal.project,
                lambda: self._create(tx, proposal, content, workspace),
            )
        )

    def _create(
        self, tx: Transaction, proposal: NewProposal, content: _Content, workspace: str | None
    ) -> CreatedReview:
        limits = self._core.policy.limits
        change = rules.create(
            revision=content.revision(new_review_id(), 1, tx),
            agent_type=validation.identity("agent_type", proposal.agent_type, limits),
            agent_role=proposal.agent_role,
            phase=proposal.phase,
            plan=proposal.plan,
            task=proposal.task,
            category=proposal.category,
            project=proposal.project,
            workspace=workspace,
            proposer_id=validation.optional_identity("proposer_id", proposal.proposer_id, limits),
            parent_id=find_review(tx, proposal.parent_id).id if proposal.parent_id else None,
            now=tx.now,
        )
        tx.save(change)
        assert change.revision is not None  # noqa: S101 - a creation always has one
        return views.created(change.review, change.revision)

    async def revise(self, review_id: str, proposal: NewProposal, *, repeat: Repeat | None) -> CreatedReview:
        content = await self._content(proposal)
        review = await self._core.find(review_id)
        caller = validation.optional_identity("proposer_id", proposal.proposer_id, self._core.policy.limits)
        findings = await self._core.store.glance(lambda reader: reader.findings(review.id))
        moved = await moved_to(findings, content.diff)
        return await self._core.change(
            review_id, repeat, lambda tx, review: self._revise(tx, review, content, caller, moved)
        )

    def _revise(
        self, tx: Transaction, review: Review, content: _Content, caller: Identity | None, moved: Moved
    ) -> CreatedReview:
        change = rules.revise(
            review,
            revision=content.revision(review.id, review.revision + 1, tx),
            caller=caller,
            findings=moved.applied_to(tx.findings(review.id)),
            reviewer_alive=self._core.liveness.is_alive(review.claimed_by),
            max_rounds=self._core.policy.max_rounds,
            most_revisions=self._core.policy.limits.revisions,
            now=tx.now,
        )
        tx.save(change)
        assert change.revision is not None  # noqa: S101 - a revision always has one
        return views.created(change.review, change.revision)

    async def close(
        self,
        review_id: str,
        *,
        closer_role: Role,
        reason: str | None,
        proposer_id: str | None,
        repeat: Repeat | None,
    ) -> Closed:
        limits = self._core.policy.limits
        reason = validation.optional_text("reason", reason, limits.text)
        caller = validation.optional_identity("proposer_id", proposer_id, limits)

        def command(tx: Transaction, review: Review) -> Closed:
            change = rules.close(review, closer_role=closer_role, caller=caller, reason=reason, now=tx.now)
            tx.save(change)
            return views.closed(change.review)

        return await self._core.change(review_id, repeat, command)

    async def _content(self, proposal: NewProposal) -> _Content:
        limits = self._core.policy.limits
        for name in ("phase", "agent_type"):
            validation.text(name, getattr(proposal, name), limits.name)
        for name in ("plan", "task", "project"):
            validation.optional_text(name, getattr(proposal, name), limits.name)
        validation.optional_text("workspace", proposal.workspace, 4 * limits.name)
        author = proposal.proposer_id if proposal.proposer_id is not None else proposal.agent_type
        diff, files = await read_diff("diff", proposal.diff, limits)
        return _Content(
            intent=validation.text("intent", proposal.intent, limits.intent),
            description=validation.optional_text("description", proposal.description, limits.text),
            diff=diff,
            files=files,
            skip_diff_validation=proposal.skip_diff_validation,
            author=validation.identity("proposer_id", author, limits),
        )

    async def _workspace(self, proposal: NewProposal, content: _Content) -> str | None:
        workspace = await self._core.repository.resolve_workspace(proposal.workspace)
        if workspace is None and content.diff is not None and not content.skip_diff_validation:
            raise BrokerError(
                Code.UNAVAILABLE,
                "a diff needs a repository to be checked in, and this broker serves none",
                "Start the broker inside the repository, or give a workspace that its configuration allows.",
            )
        return workspace
