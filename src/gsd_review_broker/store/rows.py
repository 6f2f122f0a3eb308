"""Conversion between rows and the model's frozen objects. A row has its columns in the order of the object's fields."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from gsd_review_broker.domain.audit import canonical, chained
from gsd_review_broker.domain.model import (
    AffectedFile,
    CounterPatch,
    Event,
    Finding,
    Message,
    NewEvent,
    Review,
    Revision,
    field_names,
    values_of,
)
from gsd_review_broker.domain.rules.transitions import files_text
from gsd_review_broker.domain.text import identity_key
from gsd_review_broker.domain.words import (
    Anchor,
    Category,
    CounterPatchStatus,
    Disposition,
    EventType,
    Operation,
    Outcome,
    Priority,
    Role,
    Severity,
    Side,
    Status,
    Verdict,
)
from gsd_review_broker.ports.store import RANKS
from gsd_review_broker.store import tables
from gsd_review_broker.store.statements import Parameters, Statement, Statements, Values

T = TypeVar("T")
_Convert = Callable[[Any], Any]


def member_of(kind: type[StrEnum]) -> _Convert:
    members: Mapping[str | None, StrEnum | None] = {None: None, **{member.value: member for member in kind}}
    return members.__getitem__


def _json_or_none(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _files_from(text: str) -> tuple[AffectedFile, ...]:
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


class Rows(Generic[T]):
    """How one kind of object is read from its table. The stored values were valid objects before."""

    def __init__(self, kind: type[T], table: sa.Table, **converted: _Convert) -> None:
        self._kind = kind
        self._names = field_names(kind)
        self._converted = converted
        self.columns = [table.c[name] for name in self._names]

    def find(self, statements: Statements, statement: Statement, parameters: Parameters) -> T | None:
        row = statements.row(statement, parameters)
        return self.read(row) if row else None

    def find_all(self, statements: Statements, statement: Statement, parameters: Parameters) -> list[T]:
        return [self.read(row) for row in statements.rows(statement, parameters)]

    def read(self, row: Values) -> T:
        # A row may end with columns that are not fields of the object.
        values = dict(zip(self._names, row, strict=False))
        for name, convert in self._converted.items():
            values[name] = convert(values[name])
        return self._kind(**values)


REVIEWS = Rows(
    Review,
    tables.reviews,
    status=member_of(Status),
    agent_role=member_of(Role),
    category=member_of(Category),
    priority=member_of(Priority),
    has_diff=bool,
    verdict=member_of(Verdict),
    outcome=member_of(Outcome),
    counter_patch_status=member_of(CounterPatchStatus),
    last_verdict=member_of(Verdict),
)
REVISIONS = Rows(Revision, tables.revisions, skip_diff_validation=bool, affected_files=_files_from)
MESSAGES = Rows(Message, tables.messages, sender_role=member_of(Role), metadata=_json_or_none)
COUNTER_PATCHES = Rows(
    CounterPatch,
    tables.counter_patches,
    affected_files=_files_from,
    status=member_of(CounterPatchStatus),
)
FINDINGS = Rows(
    Finding,
    tables.findings,
    side=member_of(Side),
    severity=member_of(Severity),
    anchor=member_of(Anchor),
    disposition=member_of(Disposition),
)
EVENTS = Rows(
    Event,
    tables.events,
    event_type=member_of(EventType),
    old_status=member_of(Status),
    new_status=member_of(Status),
    metadata=json.loads,
)
REVIEW_FIELDS = field_names(Review)
# The fields that may change, and the column that each is compared with.
_KEYS = {"author": "author_key", "reserved_for": "reserved_key"}


def changed_columns(before: Review, after: Review) -> dict[str, Any]:
    """Return only the columns that differ, so that no index is updated without need."""
    changed = {name: value for name in REVIEW_FIELDS if (value := getattr(after, name)) != getattr(before, name)}
    return changed | {key: identity_key(changed[name] or "") for name, key in _KEYS.items() if name in changed}


def review_row(review: Review) -> dict[str, Any]:
    return values_of(review) | {
        "rank": RANKS[review.priority],
        "proposer_key": identity_key(review.proposer),
        "author_key": identity_key(review.author),
        "reserved_key": identity_key(review.reserved_for or ""),
    }


def revision_row(revision: Revision) -> dict[str, Any]:
    return values_of(revision) | {"affected_files": files_text(revision.affected_files)}


def message_row(message: Message) -> dict[str, Any]:
    return values_of(message) | {"metadata": None if message.metadata is None else canonical(message.metadata)}


def counter_patch_row(patch: CounterPatch) -> dict[str, Any]:
    return values_of(patch) | {"affected_files": files_text(patch.affected_files)}


def event_row(event: NewEvent, *, number: int, previous_hash: str) -> dict[str, Any]:
    """Return the row that continues the chain."""
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
