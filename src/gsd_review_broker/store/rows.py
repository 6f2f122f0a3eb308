"""Between rows and the model's frozen objects."""

import json
from typing import Any

from sqlalchemy import Row

from gsd_review_broker.audit import canonical, chained
from gsd_review_broker.model import (
    AffectedFile,
    Category,
    CounterPatchStatus,
    Event,
    EventType,
    Identity,
    NewEvent,
    Operation,
    Outcome,
    Priority,
    Review,
    ReviewId,
    Revision,
    Role,
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


def review_from(row: Row[Any]) -> Review:
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
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
    return {
        name: value for name in Review.__slots__ if (value := getattr(after, name)) != getattr(before, name)
    }


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
        [
            (f.path, f.operation, f.added, f.removed, f.old_path, f.binary, f.old_mode, f.new_mode)
            for f in files
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    )


def revision_from(row: Row[Any]) -> Revision:
    values = dict(row._mapping)  # noqa: SLF001
    values["affected_files"] = files_from(values["affected_files"])
    return Revision(**values)


def revision_row(revision: Revision) -> dict[str, Any]:
    values = {name: getattr(revision, name) for name in Revision.__slots__}
    values["affected_files"] = files_text(revision.affected_files)
    return values


def event_from(row: Row[Any]) -> Event:
    return Event(
        id=row.id,
        review_id=ReviewId(row.review_id) if row.review_id else None,
        event_type=EventType(row.event_type),
        actor=Identity(row.actor),
        old_status=_STATUS.get(row.old_status),
        new_status=_STATUS.get(row.new_status),
        metadata=json.loads(row.metadata),
        timestamp=row.timestamp,
        previous_hash=row.previous_hash,
        hash=row.hash,
    )


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
