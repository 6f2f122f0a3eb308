"""One command's transaction: what it reads for update, and what it leaves behind."""

from typing import Any

import sqlalchemy as sa

from gsd_review_broker.audit import canonical
from gsd_review_broker.model import (
    Change,
    CounterPatchStatus,
    Finding,
    Message,
    Milliseconds,
    NewEvent,
    Review,
    ReviewId,
    Status,
)
from gsd_review_broker.ports import QUEUE, IdempotencyKey, review_topic
from gsd_review_broker.store.reads import SqlReader
from gsd_review_broker.store.rows import (
    changed_columns,
    counter_patch_row,
    event_row,
    finding_row,
    message_row,
    review_from,
    review_row,
    revision_row,
)
from gsd_review_broker.store.tables import (
    audit_head,
    counter_patches,
    events,
    findings,
    idempotency_keys,
    messages,
    reviews,
    revisions,
)

# FOR UPDATE where the database has it; SQLite's one writer needs none and ignores it.
_LOCKED = sa.select(reviews).where(reviews.c.id == sa.bindparam("review_id")).with_for_update()
_HEAD = sa.select(audit_head.c.sequence, audit_head.c.hash).where(audit_head.c.id == 1).with_for_update()
_SETTLE_COUNTER_PATCH = (
    sa.update(counter_patches)
    .where(
        counter_patches.c.review_id == sa.bindparam("of_review"),
        counter_patches.c.status == CounterPatchStatus.PENDING.value,
    )
    .values(status=sa.bindparam("settled_as"), reason=sa.bindparam("settled_because"))
)
_MOVE_HEAD = sa.update(audit_head).where(audit_head.c.id == 1)


class SqlTransaction(SqlReader):
    def __init__(self, connection: sa.Connection, now: Milliseconds) -> None:
        super().__init__(connection)
        self._now = now
        self._loaded: dict[ReviewId, Review] = {}
        self.topics: list[str] = []

    @property
    def now(self) -> Milliseconds:
        return self._now

    def lock_review(self, review_id: ReviewId) -> Review | None:
        row = self._one(_LOCKED, review_id=review_id)
        if row is None:
            return None
        review = review_from(row)
        self._loaded[review_id] = review
        return review

    def save(self, change: Change) -> int | None:
        """Without an event there is nothing to save: nothing happened."""
        if not change.events:
            return None
        self._save_review(change.review)
        if change.revision is not None:
            self._connection.execute(sa.insert(revisions), revision_row(change.revision))
        if change.counter_patch_settled is not None:
            status, reason = change.counter_patch_settled
            self._connection.execute(
                _SETTLE_COUNTER_PATCH,
                {"of_review": change.review.id, "settled_as": status.value, "settled_because": reason},
            )
        if change.counter_patch is not None:
            self._connection.execute(sa.insert(counter_patches), counter_patch_row(change.counter_patch))
        self._save_findings(change.findings)
        self._append(change.events)
        return self._save_message(change.message)

    def _save_message(self, message: Message | None) -> int | None:
        if message is None:
            return None
        inserted = self._connection.execute(sa.insert(messages).returning(messages.c.id), message_row(message))
        return inserted.scalar_one()

    def _save_findings(self, changed: tuple[Finding, ...]) -> None:
        """A finding is never deleted; one that is there already takes its new place and disposition."""
        if not changed:
            return
        ids = [finding.id for finding in changed]
        known = set(self._connection.execute(sa.select(findings.c.id).where(findings.c.id.in_(ids))).scalars())
        new = [finding_row(finding) for finding in changed if finding.id not in known]
        if new:
            self._connection.execute(sa.insert(findings), new)
        for finding in changed:
            if finding.id in known:
                statement = sa.update(findings).where(findings.c.id == finding.id)
                self._connection.execute(statement.values(**finding_row(finding)))

    def _save_review(self, review: Review) -> None:
        before = self._loaded.get(review.id)
        if before is None:
            self._connection.execute(sa.insert(reviews), review_row(review))
        else:
            statement = sa.update(reviews).where(reviews.c.id == review.id)
            self._connection.execute(statement.values(**changed_columns(before, review)))
        self._loaded[review.id] = review
        self.topics.append(review_topic(review.id))
        if review.status is Status.PENDING:
            self.topics.append(QUEUE)

    def _append(self, new_events: tuple[NewEvent, ...]) -> None:
        head = self._connection.execute(_HEAD).mappings().one()
        number, previous = head["sequence"], head["hash"]
        rows: list[dict[str, Any]] = []
        for event in new_events:
            number += 1
            row = event_row(event, number=number, previous_hash=previous)
            rows.append(row)
            previous = row["hash"]
        self._connection.execute(sa.insert(events), rows)
        self._connection.execute(_MOVE_HEAD, {"sequence": number, "hash": previous})

    def put_off(self, review: Review) -> None:
        statement = sa.update(reviews).where(reviews.c.id == review.id)
        self._connection.execute(statement.values(claim_expires_at=review.claim_expires_at))

    def shift_deadlines(self, by: int) -> None:
        """The wall clock was moved: what ran against it runs on with what was left."""
        for column in (reviews.c.claim_expires_at, reviews.c.reserved_until):
            statement = sa.update(reviews).where(column.is_not(None))
            self._connection.execute(statement.values({column: column + by}))

    def remember(self, key: IdempotencyKey, result: dict[str, Any]) -> None:
        same = sa.and_(
            idempotency_keys.c.project == key.project,
            idempotency_keys.c.tool == key.tool,
            idempotency_keys.c.key == key.key,
        )
        self._connection.execute(sa.delete(idempotency_keys).where(same))
        self._connection.execute(
            sa.insert(idempotency_keys),
            {
                "project": key.project,
                "tool": key.tool,
                "key": key.key,
                "arguments_hash": key.arguments_hash,
                "result": canonical(result),
                "created_at": self._now,
            },
        )

    def forget_keys_before(self, moment: Milliseconds) -> None:
        self._connection.execute(sa.delete(idempotency_keys).where(idempotency_keys.c.created_at <= moment))
