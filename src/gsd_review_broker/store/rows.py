"""Conversion between rows and the model's frozen objects. A row has its columns in the order of the object's fields."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast, get_args

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
from gsd_review_broker.domain.words import Operation
from gsd_review_broker.ports.store import RANKS
from gsd_review_broker.store import tables
from gsd_review_broker.store.statements import Parameters, Statement, Statements, Values

T = TypeVar("T")
_Convert = Callable[[Any], Any]


def _conversion_to(declared: Any) -> _Convert | None:
    """Return what makes a stored value a field of this type; None if it is stored as it is."""
    if declared is bool:
        return bool
    for kind in (declared, *get_args(declared)):
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            members: Mapping[str | None, StrEnum | None] = {None: None, **{member.value: member for member in kind}}
            return members.__getitem__
    return None


def _json_or_none(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _files_from(text: str) -> tuple[AffectedFile, ...]:
    files: list[dict[str, Any]] = [dict(zip(field_names(AffectedFile), row, strict=True)) for row in json.loads(text)]
    for file in files:
        file["operation"] = Operation(file["operation"])
    return tuple(AffectedFile(**file) for file in files)


class Rows(Generic[T]):
    """How one kind of object is read from its table. The stored values were valid objects before."""

    # `converted` are the fields that are stored as JSON.
    def __init__(self, kind: type[T], table: sa.Table, **converted: _Convert) -> None:
        self._kind = kind
        self._names = field_names(kind)
        declared = {one.name: _conversion_to(one.type) for one in fields(cast("Any", kind))}
        self._conversions = {name: convert for name, convert in declared.items() if convert is not None} | converted
        self.columns = [table.c[name] for name in self._names]
        self.select = sa.select(*self.columns)

    def find(self, statements: Statements, statement: Statement, parameters: Parameters) -> T | None:
        row = statements.row(statement, parameters)
        return self.read(row) if row else None

    def find_all(self, statements: Statements, statement: Statement, parameters: Parameters) -> list[T]:
        return [self.read(row) for row in statements.rows(statement, parameters)]

    def read(self, row: Values) -> T:
        # A row may end with columns that are not fields of the object.
        values = dict(zip(self._names, row, strict=False))
        for name, convert in self._conversions.items():
            values[name] = convert(values[name])
        return self._kind(**values)


REVIEWS = Rows(Review, tables.reviews)
REVISIONS = Rows(Revision, tables.revisions, affected_files=_files_from)
MESSAGES = Rows(Message, tables.messages, metadata=_json_or_none)
COUNTER_PATCHES = Rows(CounterPatch, tables.counter_patches, affected_files=_files_from)
FINDINGS = Rows(Finding, tables.findings)
EVENTS = Rows(Event, tables.events, metadata=json.loads)
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


def row_with_files(content: Revision | CounterPatch) -> dict[str, Any]:
    return values_of(content) | {"affected_files": files_text(content.affected_files)}


def message_row(message: Message) -> dict[str, Any]:
    return values_of(message) | {"metadata": None if message.metadata is None else canonical(message.metadata)}


def event_row(event: NewEvent, *, number: int, previous_hash: str) -> dict[str, Any]:
    """Return the row that continues the chain."""
    metadata = canonical(event.metadata)
    links = {"id": number, "previous_hash": previous_hash, "hash": chained(previous_hash, number, event, metadata)}
    return values_of(event) | links | {"metadata": metadata}
