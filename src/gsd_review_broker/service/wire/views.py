"""From the model to what a caller sees."""

import json
from typing import Any, cast

from gsd_review_broker.domain.model import AffectedFile, Change, Event, Milliseconds, Review, Revision
from gsd_review_broker.domain.rules.claims import AUTO_REJECTED
from gsd_review_broker.ports.store import EVENT_SUMMARY, SUMMARY
from gsd_review_broker.ports.world import Offset
from gsd_review_broker.service.wire.reviews import (
    AffectedFileResult,
    AutoRejected,
    Claim,
    Closed,
    CreatedReview,
    EventResult,
    FeedRow,
    FindingResult,
    NothingNew,
    OffsetResult,
    Released,
    ReviewRow,
    ReviewStatus,
    VerdictResult,
)
from gsd_review_broker.service.wire.timestamps import iso

LIST_INTENT_CHARACTERS = 500
_UNREMARKABLE = {None, "100644"}


def moment(value: Milliseconds | None) -> str | None:
    return iso(value) if value is not None else None


def files(affected: tuple[AffectedFile, ...]) -> list[AffectedFileResult]:
    return [_file(file) for file in affected]


def _file(file: AffectedFile) -> AffectedFileResult:
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


def created(review: Review, revision: Revision) -> CreatedReview:
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "revision": review.revision,
        "round": review.round,
        "priority": review.priority.value,
        "affected_files": files(revision.affected_files),
    }


def status(review: Review, *, changed: bool) -> ReviewStatus:
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "revision": review.revision,
        "round": review.round,
        "claimed_by": review.claimed_by,
        "verdict": review.verdict.value if review.verdict else None,
        "verdict_reason": review.verdict_reason,
        "open_finding_count": review.open_finding_count,
        "counter_patch_status": review.counter_patch_status.value if review.counter_patch_status else None,
        "needs_human": review.needs_human,
        "updated_at": iso(review.updated_at),
        "changed": changed,
    }


def nothing_new(review: Review) -> NothingNew:
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "changed": False,
    }


def offsets(known: tuple[Offset, ...]) -> list[OffsetResult]:
    return [{"path": offset.path, "hunk": offset.hunk, "offset": offset.offset} for offset in known]


def claim(
    review: Review, revision: Revision, open_findings: list[FindingResult], known: tuple[Offset, ...] = ()
) -> Claim:
    result: Claim = {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "revision": review.revision,
        "round": review.round,
        "claimed_by": review.claimed_by,
        "claimed_at": moment(review.claimed_at),
        "claim_generation": review.claim_generation,
        "claim_expires_at": moment(review.claim_expires_at),
        "intent": review.intent,
        "description": revision.description,
        "category": review.category.value if review.category else None,
        "priority": review.priority.value,
        "project": review.project,
        "affected_files": files(revision.affected_files),
        "has_diff": review.has_diff,
        "digest": review.digest,
        "open_findings": open_findings,
    }
    if known:
        result["offsets"] = offsets(known)
    return result


def auto_rejected(review: Review) -> AutoRejected:
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "auto_rejected": True,
        "validation_error": (review.verdict_reason or "").removeprefix(AUTO_REJECTED),
    }


def verdict(change: Change, given: str) -> VerdictResult:
    review = change.review
    result: VerdictResult = {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "verdict": given,
        "verdict_reason": review.verdict_reason,
        "revision": review.revision,
        "round": review.round,
        "claim_generation": review.claim_generation,
        "digest": review.digest,
    }
    lacking = [event.metadata["missing"] for event in change.events if "missing" in event.metadata]
    if lacking:
        result["missing"] = lacking[0]
    return result


def released(review: Review) -> Released:
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "claim_generation": review.claim_generation,
    }


def closed(review: Review) -> Closed:
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "outcome": review.outcome.value if review.outcome else "",
    }


def shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


_INTENT, _HAS_DIFF = SUMMARY.index("intent"), SUMMARY.index("has_diff")
_CREATED_AT, _UPDATED_AT = SUMMARY.index("created_at"), SUMMARY.index("updated_at")
_ID, _RANK = SUMMARY.index("id"), len(SUMMARY)


def row(values: tuple[Any, ...]) -> ReviewRow:
    """From a row of SUMMARY columns: a page has many, so nothing is built in between."""
    result: dict[str, Any] = dict(zip(SUMMARY, values, strict=False))
    if len(values[_INTENT]) > LIST_INTENT_CHARACTERS:
        result["intent"] = shortened(values[_INTENT], LIST_INTENT_CHARACTERS)
    result["has_diff"] = bool(values[_HAS_DIFF])
    result["created_at"] = iso(values[_CREATED_AT])
    result["updated_at"] = iso(values[_UPDATED_AT])
    return cast("ReviewRow", result)


def position(values: tuple[Any, ...]) -> list[Any]:
    return [values[_RANK], values[_CREATED_AT], values[_ID]]


def feed_row(values: tuple[Any, ...]) -> FeedRow:
    """From a row of FEED columns, which begin with those of SUMMARY."""
    count, at, preview = values[len(SUMMARY) :]
    result: dict[str, Any] = {
        **row(values),
        "message_count": count,
        "last_message_at": moment(at),
        "last_message_preview": preview,
    }
    return cast("FeedRow", result)


def feed_position(values: tuple[Any, ...]) -> list[Any]:
    return [values[_UPDATED_AT], values[_ID]]


def event_row(values: tuple[Any, ...]) -> EventResult:
    """From a row of EVENT_SUMMARY columns."""
    result: dict[str, Any] = dict(zip(EVENT_SUMMARY, values, strict=True))
    result["metadata"] = json.loads(result["metadata"])
    result["timestamp"] = iso(result["timestamp"])
    return cast("EventResult", result)


def event(event: Event) -> EventResult:
    return {
        "id": event.id,
        "review_id": event.review_id,
        "event_type": event.event_type.value,
        "actor": event.actor,
        "old_status": event.old_status.value if event.old_status else None,
        "new_status": event.new_status.value if event.new_status else None,
        "metadata": event.metadata,
        "timestamp": iso(event.timestamp),
    }
