"""Every query a tool makes, over one connection. Sync on purpose: it runs unchanged on each database."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.model import (
    CounterPatch,
    CounterPatchStatus,
    Event,
    Finding,
    Message,
    Milliseconds,
    Priority,
    Review,
    ReviewId,
    Revision,
    Status,
)
from gsd_review_broker.ports import IdempotencyKey, ListPosition, ReviewFilter
from gsd_review_broker.store.rows import (
    counter_patch_from,
    event_from,
    finding_from,
    message_from,
    review_from,
    revision_from,
)
from gsd_review_broker.store.tables import (
    counter_patches,
    events,
    findings,
    idempotency_keys,
    messages,
    reviews,
    revisions,
)

_REVIEW = sa.select(reviews).where(reviews.c.id == sa.bindparam("review_id"))
_THIS_REVISION = (
    revisions.c.review_id == sa.bindparam("review_id"),
    revisions.c.number == sa.bindparam("number"),
)
_REVISION = sa.select(revisions).where(*_THIS_REVISION)
_REVISION_WITHOUT_DIFF = sa.select(
    *(column for column in revisions.c if column.name != "diff"), sa.null().label("diff")
).where(*_THIS_REVISION)
_PREFIX = (
    sa.select(reviews.c.id)
    .where(reviews.c.id >= sa.bindparam("low"), reviews.c.id < sa.bindparam("high"))
    .order_by(reviews.c.id)
    .limit(sa.bindparam("limit"))
)
_EXPIRED = (
    sa.select(reviews)
    .where(reviews.c.claim_expires_at <= sa.bindparam("now"))
    .order_by(reviews.c.claim_expires_at)
    .limit(sa.bindparam("limit"))
)
_EVENTS = (
    sa.select(events).where(events.c.id > sa.bindparam("after")).order_by(events.c.id).limit(sa.bindparam("limit"))
)
_EVENTS_OF_REVIEW = _EVENTS.where(events.c.review_id == sa.bindparam("review_id"))
_PENDING = (
    sa.select(reviews.c.rank, sa.func.count().label("number"))
    .where(reviews.c.status == Status.PENDING.value)
    .group_by(reviews.c.rank)
)
_OLDEST_PENDING = (
    sa.select(reviews.c.created_at)
    .where(reviews.c.status == Status.PENDING.value)
    .order_by(reviews.c.created_at)
    .limit(1)
)
_LAST_EVENT = sa.select(events.c.timestamp).order_by(events.c.id.desc()).limit(1)
_MESSAGES = (
    sa.select(messages)
    .where(messages.c.review_id == sa.bindparam("review_id"), messages.c.id > sa.bindparam("after"))
    .order_by(messages.c.id)
    .limit(sa.bindparam("limit"))
)
_FINDINGS = (
    sa.select(findings)
    .where(findings.c.review_id == sa.bindparam("review_id"))
    .order_by(findings.c.created_at, findings.c.id)
)
_COUNTER_PATCHES = (
    sa.select(counter_patches)
    .where(counter_patches.c.review_id == sa.bindparam("review_id"))
    .order_by(counter_patches.c.id.desc())
    .limit(1)
)
_OPEN_COUNTER_PATCH = _COUNTER_PATCHES.where(counter_patches.c.status == CounterPatchStatus.PENDING.value)
_COUNTER_PATCH_OF = _COUNTER_PATCHES.where(counter_patches.c.revision == sa.bindparam("revision"))
_KEY = sa.select(idempotency_keys.c.arguments_hash, idempotency_keys.c.result).where(
    idempotency_keys.c.project == sa.bindparam("project"),
    idempotency_keys.c.tool == sa.bindparam("tool"),
    idempotency_keys.c.key == sa.bindparam("key"),
    idempotency_keys.c.created_at > sa.bindparam("since"),
)
KEY_LIFETIME_MILLISECONDS = 24 * 3600 * 1000
_RANKED = (Priority.CRITICAL, Priority.NORMAL, Priority.LOW)


class SqlReader:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def _all(self, statement: sa.Executable, **parameters: Any) -> Sequence[sa.RowMapping]:
        return self._connection.execute(statement, parameters).mappings().all()

    def _one(self, statement: sa.Executable, **parameters: Any) -> sa.RowMapping | None:
        return self._connection.execute(statement, parameters).mappings().first()

    def review(self, review_id: ReviewId) -> Review | None:
        row = self._one(_REVIEW, review_id=review_id)
        return review_from(row) if row else None

    def ids_with_prefix(self, prefix: str, limit: int) -> list[ReviewId]:
        # Ids are ASCII: everything with the prefix stands before the prefix followed by the last one.
        rows = self._all(_PREFIX, low=prefix, high=prefix + "\x7f", limit=limit)
        return [ReviewId(row["id"]) for row in rows]

    def revision(self, review_id: ReviewId, number: int, *, with_diff: bool) -> Revision | None:
        statement = _REVISION if with_diff else _REVISION_WITHOUT_DIFF
        row = self._one(statement, review_id=review_id, number=number)
        return revision_from(row) if row else None

    def reviews(
        self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int
    ) -> list[tuple[Review, ListPosition]]:
        order = (reviews.c.rank, reviews.c.created_at, reviews.c.id)
        statement = sa.select(reviews).where(*_conditions(wanted)).order_by(*order).limit(limit)
        if after is not None:
            statement = statement.where(sa.tuple_(*order) > sa.tuple_(*(sa.literal(part) for part in after)))
        return [(review_from(row), (row["rank"], row["created_at"], row["id"])) for row in self._all(statement)]

    def expired_claims(self, now: Milliseconds, limit: int) -> list[Review]:
        return [review_from(row) for row in self._all(_EXPIRED, now=now, limit=limit)]

    def events(self, *, review_id: ReviewId | None, after: int, limit: int) -> list[Event]:
        if review_id is None:
            rows = self._all(_EVENTS, after=after, limit=limit)
        else:
            rows = self._all(_EVENTS_OF_REVIEW, review_id=review_id, after=after, limit=limit)
        return [event_from(row) for row in rows]

    def pending_by_priority(self) -> dict[str, int]:
        counts = {row["rank"]: row["number"] for row in self._all(_PENDING)}
        return {priority.value: counts.get(rank, 0) for rank, priority in enumerate(_RANKED)}

    def oldest_pending_at(self) -> Milliseconds | None:
        row = self._one(_OLDEST_PENDING)
        return row["created_at"] if row else None

    def last_event_at(self) -> Milliseconds | None:
        row = self._one(_LAST_EVENT)
        return row["timestamp"] if row else None

    def messages(self, review_id: ReviewId, *, round_: int | None, after: int, limit: int) -> list[Message]:
        statement = _MESSAGES if round_ is None else _MESSAGES.where(messages.c.round == round_)
        rows = self._all(statement, review_id=review_id, after=after, limit=limit)
        return [message_from(row) for row in rows]

    def findings(self, review_id: ReviewId) -> list[Finding]:
        return [finding_from(row) for row in self._all(_FINDINGS, review_id=review_id)]

    def open_counter_patch(self, review_id: ReviewId) -> CounterPatch | None:
        row = self._one(_OPEN_COUNTER_PATCH, review_id=review_id)
        return counter_patch_from(row) if row else None

    def counter_patch_of(self, review_id: ReviewId, revision: int) -> CounterPatch | None:
        row = self._one(_COUNTER_PATCH_OF, review_id=review_id, revision=revision)
        return counter_patch_from(row) if row else None

    def recall(self, key: IdempotencyKey, now: Milliseconds) -> dict[str, Any] | None:
        since = now - KEY_LIFETIME_MILLISECONDS
        row = self._one(_KEY, project=key.project, tool=key.tool, key=key.key, since=since)
        if row is None:
            return None
        if row["arguments_hash"] != key.arguments_hash:
            raise BrokerError(
                Code.CONFLICT,
                f"idempotency_key {key.key!r} was used for another {key.tool} call within 24 h",
                "Repeat a call with exactly the same arguments, or take a new key.",
            )
        return json.loads(row["result"])


def _conditions(wanted: ReviewFilter) -> list[sa.ColumnElement[bool]]:
    equal = {
        "status": wanted.status,
        "category": wanted.category,
        "project": wanted.project,
        "phase": wanted.phase,
        "plan": wanted.plan,
        "proposer_id": wanted.proposer_id,
        "parent_id": wanted.parent_id,
    }
    conditions = [reviews.c[name] == value for name, value in equal.items() if value is not None]
    if wanted.needs_human is not None:
        is_null = reviews.c.needs_human.is_(None)
        conditions.append(sa.not_(is_null) if wanted.needs_human else is_null)
    if wanted.claimable_by is not None:
        conditions += _claimable(wanted.claimable_by, wanted.claimable_at or 0)
    return conditions


def _claimable(reviewer: str, now: int) -> list[sa.ColumnElement[bool]]:
    """A first sieve, so that a page holds what the rules will grant; the rules have the last word."""
    name = reviewer.lower()
    return [
        sa.func.lower(sa.func.coalesce(reviews.c.proposer_id, reviews.c.agent_type)) != name,
        sa.func.lower(reviews.c.author) != name,
        sa.or_(
            reviews.c.reserved_until.is_(None),
            reviews.c.reserved_until <= now,
            sa.func.lower(reviews.c.reserved_for) == name,
        ),
    ]
