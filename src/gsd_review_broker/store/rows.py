"""Between rows and the model's frozen objects."""

import json
from typing import Any

from sqlalchemy import RowMapping

from gsd_review_broker.audit import canonical, chained
from gsd_review_broker.model import (
    AffectedFile,
    Anchor,
    Category,
    CounterPatch,
    CounterPatchStatus,
    Disposition,
    Event,
    EventType,
    Finding,
    Message,
    NewEvent,
    Operation,
    Outcome,
    Priority,
    Review,
    Revision,
    Role,
    Severity,
    Side,
    Status,
    Verdict,
)

_STATUS = {member.value: member for member in Status}
_RANKS = {Priority.CRITICAL: 0, Priority.NORMAL: 1, Priority.LOW: 2}
_ENUMS: dict[str, type] = {
    "category": Category,
    "verdict": Verdict,
    "outcome": Outcome,
    "counter_patch_status": CounterPatchStatus,
}

_FINDING_ENUMS: dict[str, type] = {
    "side": Side,
    "severity": Severity,
    "anchor": Anchor,
    "disposition": Disposition,
}


def review_from(row: RowMapping) -> Review:
    values: dict[str, Any] = {**row}
    del values["rank"]
    values["status"] = _STATUS[values["status"]]
    values["agent_role"] = Role(values["agent_role"])
    values["priority"] = Priority(values["priority"])
    for name, kind in _ENUMS.items():
        if values[name] is not None:
            values[name] = kind(values[name])
    return Review(**values)


def review_row(review: Review) -> dict[str, Any]:
    values = {name: getattr(review, name) for name in Review.__slots__}
    values["rank"] = _RANKS[review.priority]
    return values


def changed_columns(before: Review, after: Review) -> dict[str, Any]:
    """Only what differs, so that no index is touched without need."""
    return {name: value for name in Review.__slots__ if (value := getattr(after, name)) != getattr(before, name)}


def files_from(text: str) -> tuple[AffectedFile, ...]:
    return tuple(
        AffectedFile(
            path=path,
            operation=Operation(operation),
            added=added,
            removed=removed,
            old_path=old_path,
            binary=binary,
            old_mode=old_mode,
            new_mode=new_mode,
        )
        for path, operation, added, removed, old_path, binary, old_mode, new_mode in json.loads(text)
    )


def files_text(files: tuple[AffectedFile, ...]) -> str:
    return json.dumps(
        [(f.path, f.operation, f.added, f.removed, f.old_path, f.binary, f.old_mode, f.new_mode) for f in files],
        ensure_ascii=False,
        separators=(",", ":"),
    )


def revision_from(row: RowMapping) -> Revision:
    values: dict[str, Any] = {**row}
    values["affected_files"] = files_from(values["affected_files"])
    return Revision(**values)


def revision_row(revision: Revision) -> dict[str, Any]:
    values = {name: getattr(revision, name) for name in Revision.__slots__}
    values["affected_files"] = files_text(revision.affected_files)
    return values


def event_from(row: RowMapping) -> Event:
    values: dict[str, Any] = {**row}
    values["event_type"] = EventType(values["event_type"])
    for name in ("old_status", "new_status"):
        values[name] = _STATUS.get(values[name])
    values["metadata"] = json.loads(values["metadata"])
    return Event(**values)


def message_from(row: RowMapping) -> Message:
    values: dict[str, Any] = {**row}
    values["sender_role"] = Role(values["sender_role"])
    values["metadata"] = json.loads(values["metadata"]) if values["metadata"] is not None else None
    return Message(**values)


def message_row(message: Message) -> dict[str, Any]:
    values = {name: getattr(message, name) for name in Message.__slots__ if name != "id"}
    values["metadata"] = canonical(message.metadata) if message.metadata is not None else None
    return values


def counter_patch_from(row: RowMapping) -> CounterPatch:
    values: dict[str, Any] = {**row}
    values["status"] = CounterPatchStatus(values["status"])
    values["affected_files"] = files_from(values["affected_files"])
    return CounterPatch(**values)


def counter_patch_row(patch: CounterPatch) -> dict[str, Any]:
    values = {name: getattr(patch, name) for name in CounterPatch.__slots__ if name != "id"}
    values["affected_files"] = files_text(patch.affected_files)
    return values


def finding_from(row: RowMapping) -> Finding:
    values: dict[str, Any] = {**row}
    for name, kind in _FINDING_ENUMS.items():
        values[name] = kind(values[name])
    return Finding(**values)


def finding_row(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in Finding.__slots__}


def event_row(event: NewEvent, *, number: int, previous_hash: str) -> dict[str, Any]:
    """The row that continues the chain."""
    metadata = canonical(event.metadata)
    return {
        "id": number,
        "review_id": event.review_id,
        "event_type": event.event_type,
        "actor": event.actor,
        "old_status": event.old_status,
        "new_status": event.new_status,
        "metadata": metadata,
        "timestamp": event.timestamp,
        "previous_hash": previous_hash,
        "hash": chained(previous_hash, number, event, metadata),
    }
