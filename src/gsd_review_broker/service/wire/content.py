"""The content of a review: its proposal, and the discussion of it."""

from typing import Any, NotRequired, TypedDict

from gsd_review_broker.domain.model import AffectedFile, Change, CounterPatch, Finding, Message, Review, Revision
from gsd_review_broker.domain.patch.places import Page
from gsd_review_broker.domain.words import Disposition, Severity
from gsd_review_broker.ports.world import Offset
from gsd_review_broker.service.wire.encoding import iso

_UNREMARKABLE = {None, "100644"}


class OfReview(TypedDict):
    """What every answer about one review begins with."""

    review_id: str
    status: str
    version: int


def of_review(review: Review) -> OfReview:
    return {"review_id": review.id, "status": review.status.value, "version": review.version}


class OfRevision(OfReview):
    revision: int
    round: int


def of_revision(review: Review) -> OfRevision:
    return {**of_review(review), "revision": review.revision, "round": review.round}


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


class CreatedReview(OfRevision):
    priority: str
    affected_files: list[AffectedFileResult]


class Proposal(OfRevision):
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


class ProposalPage(OfReview):
    """What follows the first page of a large diff."""

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
        **of_revision(review),
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
    """Return the first page of the revision, and of the counter-patch that is shown with it."""
    return {
        **of_review(review),
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
    text = page.text if page else ""
    return {**of_review(review), "revision": revision, "diff": text, "next_cursor": next_cursor}


# At most this much text of findings is in an answer; the rest is counted.
_FINDINGS_CHARACTERS = 128 * 1024
_PATCHES_CHARACTERS = 30_000
_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


class FindingResult(TypedDict):
    finding_id: str
    path: str | None
    line_start: int | None
    line_end: int | None
    side: str
    severity: str
    title: str
    body: str
    suggestion: str | None
    confidence: float | None
    anchor: str
    disposition: str
    note: str | None
    raised_by: str
    round: int
    times_raised: int


class ResolvedFinding(FindingResult, OfReview):
    pass


class MessageResult(TypedDict):
    message_id: int
    round: int
    sender_role: str
    sender_id: str
    body: str
    path: str | None
    line: int | None
    in_reply_to: int | None
    metadata: dict[str, Any] | None
    created_at: str


class SentMessage(OfReview):
    message_id: int
    round: int


class CounterPatchResult(TypedDict):
    counter_patch_id: int
    revision: int
    round: int
    offered_by: str
    status: str
    reason: str | None
    paths: list[str]
    # Null where it did not fit into the answer.
    diff: str | None
    created_at: str


class Discussion(OfReview):
    round: int
    messages: list[MessageResult]
    findings: list[FindingResult]
    findings_left_out: int
    counter_patches: list[CounterPatchResult]
    next_cursor: str | None
    changed: bool


def message_result(message: Message) -> MessageResult:
    assert message.id is not None  # noqa: S101 - it was read from the store
    return {
        "message_id": message.id,
        "round": message.round,
        "sender_role": message.sender_role.value,
        "sender_id": message.sender,
        "body": message.body,
        "path": message.path,
        "line": message.line,
        "in_reply_to": message.in_reply_to,
        "metadata": message.metadata,
        "created_at": iso(message.created_at),
    }


def sent_message(change: Change, number: int) -> SentMessage:
    return {**of_review(change.review), "message_id": number, "round": change.review.round}


def finding_result(finding: Finding) -> FindingResult:
    return {
        "finding_id": finding.id,
        "path": finding.path,
        "line_start": finding.line_start,
        "line_end": finding.line_end,
        "side": finding.side.value,
        "severity": finding.severity.value,
        "title": finding.title,
        "body": finding.body,
        "suggestion": finding.suggestion,
        "confidence": finding.confidence,
        "anchor": finding.anchor.value,
        "disposition": finding.disposition.value,
        "note": finding.note,
        "raised_by": finding.raised_by,
        "round": finding.raised_in_round,
        "times_raised": finding.times_raised,
    }


def resolved_finding(review: Review, finding: Finding) -> ResolvedFinding:
    return {**finding_result(finding), **of_review(review)}


def open_findings(findings: list[Finding]) -> list[FindingResult]:
    return fitting_findings([finding for finding in findings if finding.disposition is Disposition.OPEN])[0]


def fitting_findings(findings: list[Finding]) -> tuple[list[FindingResult], int]:
    """Return findings as reviewers ordered them, and how many did not fit into the answer.

    Open findings come first if there is not enough room, the most severe before the others.
    """
    fitting: list[Finding] = []
    room = _FINDINGS_CHARACTERS
    for finding in sorted(findings, key=_importance):
        room -= len(finding.body) + len(finding.suggestion or "") + len(finding.title)
        if fitting and room < 0:
            break
        fitting.append(finding)
    return [finding_result(finding) for finding in sorted(fitting, key=_position)], len(findings) - len(fitting)


def _importance(finding: Finding) -> tuple[bool, int, int]:
    return finding.disposition is not Disposition.OPEN, _ORDER[finding.severity], finding.position


def _position(finding: Finding) -> int:
    return finding.position


def counter_patch_results(patches: list[CounterPatch]) -> list[CounterPatchResult]:
    """Return all counter-patches. The newest is complete; older ones are, as far as there is room."""
    results: list[CounterPatchResult] = []
    room = _PATCHES_CHARACTERS
    for patch in reversed(patches):
        room -= len(patch.diff)
        results.append(
            {
                "counter_patch_id": patch.id or 0,
                "revision": patch.revision,
                "round": patch.round,
                "offered_by": patch.offered_by,
                "status": patch.status.value,
                "reason": patch.reason,
                "paths": [file.path for file in patch.affected_files[:20]],
                "diff": patch.diff.decode("utf-8") if room >= 0 else None,
                "created_at": iso(patch.created_at),
            }
        )
    return results[::-1]
