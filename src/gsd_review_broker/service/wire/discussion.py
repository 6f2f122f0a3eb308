"""The discussion of a review: messages, findings, counter-patches."""

from typing import Any, TypedDict

from gsd_review_broker.domain.model import Change, CounterPatch, Finding, Message, Review
from gsd_review_broker.domain.words import Disposition, Severity
from gsd_review_broker.service.wire.encoding import iso

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


class ResolvedFinding(FindingResult):
    review_id: str
    status: str
    version: int


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


class SentMessage(TypedDict):
    review_id: str
    status: str
    version: int
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


class Discussion(TypedDict):
    review_id: str
    status: str
    version: int
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
    review = change.review
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "message_id": number,
        "round": review.round,
    }


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
    return {**finding_result(finding), "review_id": review.id, "status": review.status.value, "version": review.version}


def open_findings(findings: list[Finding]) -> list[FindingResult]:
    return fitting_findings([finding for finding in findings if finding.disposition is Disposition.OPEN])[0]


def fitting_findings(findings: list[Finding]) -> tuple[list[FindingResult], int]:
    """In the order in which reviewers gave them, and how many did not fit into the answer.

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
    """All counter-patches, whatever became of them. The newest is complete; older ones are, as far as there is room."""
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
