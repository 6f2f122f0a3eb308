"""A proposal, and what a call that made one gets."""

from typing import NotRequired, TypedDict

from gsd_review_broker.domain.model import AffectedFile, CounterPatch, Review, Revision
from gsd_review_broker.domain.patch.places import Page
from gsd_review_broker.ports.world import Offset

_UNREMARKABLE = {None, "100644"}


class AffectedFileResult(TypedDict):
    path: str
    operation: str
    added: int
    removed: int
    old_path: str | None
    binary: bool
    mode_change: bool
    new_mode: NotRequired[str]


class OffsetResult(TypedDict):
    """A hunk (counted from 1) of an older diff that applies so many lines below its own line; above, if negative."""

    path: str
    hunk: int
    offset: int


class CreatedReview(TypedDict):
    review_id: str
    status: str
    version: int
    revision: int
    round: int
    priority: str
    affected_files: list[AffectedFileResult]


class Proposal(TypedDict):
    review_id: str
    status: str
    version: int
    revision: int
    round: int
    intent: str
    description: str | None
    agent_type: str
    agent_role: str
    phase: str
    plan: str | None
    task: str | None
    category: str | None
    priority: str
    project: str | None
    workspace: str | None
    proposer_id: str | None
    parent_id: str | None
    affected_files: list[AffectedFileResult]
    has_diff: bool
    skip_diff_validation: bool
    digest: str | None
    # Only where there are some.
    offsets: NotRequired[list[OffsetResult]]
    since_revision: NotRequired[int]
    diff: str | None
    next_cursor: str | None
    counter_patch: str | None
    counter_patch_next_cursor: str | None
    counter_patch_affected_files: list[AffectedFileResult] | None
    counter_patch_status: str | None


class ProposalPage(TypedDict):
    """What follows the first page of a large diff."""

    review_id: str
    status: str
    version: int
    revision: int
    since_revision: NotRequired[int]
    diff: str
    next_cursor: str | None


def affected_files(affected: tuple[AffectedFile, ...]) -> list[AffectedFileResult]:
    return [_affected_file(file) for file in affected]


def _affected_file(file: AffectedFile) -> AffectedFileResult:
    result: AffectedFileResult = {
        "path": file.path,
        "operation": file.operation.value,
        "added": file.added,
        "removed": file.removed,
        "old_path": file.old_path,
        "binary": file.binary,
        "mode_change": file.mode_change,
    }
    # A symbolic link, a submodule, a program: what a reviewer should not have to look for.
    if file.new_mode is not None and file.new_mode not in _UNREMARKABLE:
        result["new_mode"] = file.new_mode
    return result


def offset_results(known: tuple[Offset, ...]) -> list[OffsetResult]:
    return [{"path": offset.path, "hunk": offset.hunk, "offset": offset.offset} for offset in known]


def created_review(review: Review, revision: Revision) -> CreatedReview:
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "revision": review.revision,
        "round": review.round,
        "priority": review.priority.value,
        "affected_files": affected_files(revision.affected_files),
    }


def proposal(
    review: Review,
    revision: Revision,
    page: Page | None,
    next_cursor: str | None,
    patch: CounterPatch | None,
    patch_page: Page | None,
    patch_cursor: str | None,
) -> Proposal:
    """The first page of the revision, and of the counter-patch that is shown with it."""
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "revision": revision.number,
        "round": review.round,
        "intent": revision.intent,
        "description": revision.description,
        "agent_type": review.agent_type,
        "agent_role": review.agent_role.value,
        "phase": review.phase,
        "plan": review.plan,
        "task": review.task,
        "category": review.category.value if review.category else None,
        "priority": review.priority.value,
        "project": review.project,
        "workspace": review.workspace,
        "proposer_id": review.proposer_id,
        "parent_id": review.parent_id,
        "affected_files": affected_files(revision.affected_files),
        "has_diff": revision.diff is not None,
        "skip_diff_validation": revision.skip_diff_validation,
        "digest": review.digest if revision.number == review.revision else None,
        "diff": page.text if page else None,
        "next_cursor": next_cursor,
        "counter_patch": patch_page.text if patch_page else None,
        "counter_patch_next_cursor": patch_cursor,
        "counter_patch_affected_files": affected_files(patch.affected_files) if patch else None,
        # The files of the patch that is shown, if one is.
        "counter_patch_status": (patch.status if patch else review.counter_patch_status),
    }


def proposal_page(review: Review, revision: int, page: Page | None, next_cursor: str | None) -> ProposalPage:
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "revision": revision,
        "diff": page.text if page else "",
        "next_cursor": next_cursor,
    }
