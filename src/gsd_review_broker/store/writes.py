"""One command's transaction: what it reads for update, and what it writes."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from gsd_review_broker.domain.audit import canonical
from gsd_review_broker.domain.model import Change, Finding, Message, Milliseconds, NewEvent, Review, ReviewId, values_of
from gsd_review_broker.domain.tally import Tally, progress_of, tally_of
from gsd_review_broker.domain.words import CounterPatchStatus, Status
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import KEY_LIFETIME_MILLISECONDS, IdempotencyKey, Watcher
from gsd_review_broker.ports.world import EVENTS, QUEUE, review_topic
from gsd_review_broker.store import statistics
from gsd_review_broker.store.beside_reviews import GateWrites, PoolWrites, TokenWrites
from gsd_review_broker.store.reads import UNANSWERED, SqlReader
from gsd_review_broker.store.rows import (
    REVIEWS,
    changed_columns,
    event_row,
    message_row,
    review_row,
    row_with_files,
)
from gsd_review_broker.store.statements import Statements, Upsert, parameter, parameters_but_id
from gsd_review_broker.store.tables import (
    audit_head,
    counter_patches,
    events,
    findings,
    idempotency_keys,
    messages,
    review_failures,
    reviews,
    revisions,
)

# FOR UPDATE where the database has it. SQLite has one writer, does not need it and ignores it.
_LOCKED = REVIEWS.select.where(reviews.c.id == parameter("review_id")).with_for_update()
_HEAD = (
    sa.select(audit_head.c.sequence, audit_head.c.hash).where(audit_head.c.id == parameter("head")).with_for_update()
)
_MOVE_HEAD = (
    sa.update(audit_head)
    .where(audit_head.c.id == parameter("head"))
    .values(sequence=parameter("to_sequence"), hash=parameter("to_hash"))
)
_THE_HEAD = {"head": 1}
# A database that was moved away gives its head this number instead, so that no writer finds it.
MOVED_HEAD = 2
_SETTLE_COUNTER_PATCH = (
    sa.update(counter_patches)
    .where(
        counter_patches.c.review_id == parameter("of_review"),
        counter_patches.c.status == parameter("open"),
    )
    .values(status=parameter("settled_as"), reason=parameter("settled_because"))
)
_INSERT_REVIEW = sa.insert(reviews)
_INSERT_REVISION = sa.insert(revisions)
_INSERT_COUNTER_PATCH = sa.insert(counter_patches).values(parameters_but_id(counter_patches))
_INSERT_MESSAGE = sa.insert(messages).values(parameters_but_id(messages)).returning(messages.c.id)
_INSERT_FINDING = sa.insert(findings)
_UPDATE_FINDING = sa.update(findings).where(findings.c.id == parameter("id")).values(parameters_but_id(findings))
_FINDING_IDS = sa.select(findings.c.id).where(findings.c.review_id == parameter("review_id"))
_INSERT_EVENT = sa.insert(events)
# A key has an empty answer until its call is answered. A key that is a day old is taken again.
_TAKE_KEY = Upsert(
    idempotency_keys,
    lambda new: {name: new[name] for name in ("arguments_hash", "result", "created_at")},
    where=sa.or_(
        idempotency_keys.c.created_at <= parameter("expired"), idempotency_keys.c.result == parameter("unanswered")
    ),
)
_ANSWER_KEY = (
    sa.update(idempotency_keys)
    .where(
        idempotency_keys.c.project == parameter("of_project"),
        idempotency_keys.c.tool == parameter("of_tool"),
        idempotency_keys.c.key == parameter("of_key"),
    )
    .values(result=parameter("answer"))
)
_FORGET_OLD_KEYS = sa.delete(idempotency_keys).where(idempotency_keys.c.created_at <= parameter("moment"))
# Everything that is compared with the clock. A deadline that does not move would come early or late by the whole step.
_SHIFTS = [
    sa.update(column.table).where(column.is_not(None)).values({column: column + parameter("by")})
    for column in (reviews.c.claim_expires_at, reviews.c.reserved_until, review_failures.c.retry_at)
]


class LastEvent(NamedTuple):
    """The chain's head after a commit; no other commit has the same."""

    number: int
    hash: str


@cache
def _update_review(columns: tuple[str, ...]) -> sa.Update:
    """Make one statement for each set of columns that a rule changes together."""
    values = {reviews.c[name]: parameter(f"new_{name}") for name in columns}
    return sa.update(reviews).where(reviews.c.id == parameter("review_id")).values(values)


class SqlTransaction(SqlReader, PoolWrites, GateWrites, TokenWrites):
    def __init__(self, statements: Statements, now: Milliseconds, watchers: Sequence[Watcher] = ()) -> None:
        super().__init__(statements)
        self._now = now
        self._watchers = watchers
        self._loaded: dict[ReviewId, Review] = {}
        self.topics: list[str] = []
        # Events and counts; written once for all commands that share the commit (see finish).
        self.new_events: list[NewEvent] = []
        self.tallies: list[tuple[str | None, Tally]] = []
        # How much content was written, besides the rows themselves.
        self.stored_bytes = 0

    @property
    def now(self) -> Milliseconds:
        return self._now

    def lock_review(self, review_id: ReviewId) -> Review | None:
        review = REVIEWS.find(self._statements, _LOCKED, {"review_id": review_id})
        if review is not None:
            self._loaded[review_id] = review
        return review

    def save(self, change: Change) -> int | None:
        """Store a change. One without an event is not stored, because nothing happened."""
        if not change.events:
            return None
        before = self._loaded.get(change.review.id)
        self._save_review(change.review)
        self.tallies.append((change.review.project, tally_of(before and progress_of(before), change.events)))
        if change.revision is not None:
            self._statements.run(_INSERT_REVISION, row_with_files(change.revision))
            self.stored_bytes += len(change.revision.diff or b"")
        self._save_counter_patch(change)
        self._save_findings(change.review.id, change.findings)
        self.append(*change.events)
        for watch in self._watchers:
            watch(self, change)
        return self._save_message(change.message)

    def _save_review(self, review: Review) -> None:
        before = self._loaded.get(review.id)
        if before is None:
            self._statements.run(_INSERT_REVIEW, review_row(review))
        else:
            self._update(review.id, changed_columns(before, review))
        self._loaded[review.id] = review
        self.topics.append(review_topic(review.id))
        if review.status is Status.PENDING:
            self.topics.append(QUEUE)

    def _update(self, review_id: ReviewId, changed: dict[str, Any]) -> None:
        parameters = {f"new_{name}": value for name, value in changed.items()}
        self._statements.run(_update_review(tuple(changed)), {**parameters, "review_id": review_id})

    def _save_counter_patch(self, change: Change) -> None:
        if change.counter_patch_settled is not None:
            status, reason = change.counter_patch_settled
            self._statements.run(
                _SETTLE_COUNTER_PATCH,
                {
                    "of_review": change.review.id,
                    "open": CounterPatchStatus.PENDING,
                    "settled_as": status,
                    "settled_because": reason,
                },
            )
        if change.counter_patch is not None:
            self._statements.run(_INSERT_COUNTER_PATCH, row_with_files(change.counter_patch))
            self.stored_bytes += len(change.counter_patch.diff)

    def _save_message(self, message: Message | None) -> int | None:
        if message is None:
            return None
        row = self._statements.row(_INSERT_MESSAGE, message_row(message))
        assert row is not None  # noqa: S101 - RETURNING gives the row that was inserted
        return row[0]

    def _save_findings(self, review_id: ReviewId, changed: tuple[Finding, ...]) -> None:
        """Store new findings; an existing one gets its new place and disposition, and is never deleted."""
        if not changed:
            return
        known = {row[0] for row in self._statements.rows(_FINDING_IDS, {"review_id": review_id})}
        for finding in changed:
            self._statements.run(_UPDATE_FINDING if finding.id in known else _INSERT_FINDING, values_of(finding))

    def append(self, *new_events: NewEvent) -> None:
        """Append events that belong to no review. A review's events come with its change (see save)."""
        self.new_events.extend(new_events)
        self.topics.append(EVENTS)

    def announce(self, topic: str) -> None:
        self.topics.append(topic)

    def extend_claim(self, review: Review) -> None:
        self._update(review.id, {"claim_expires_at": review.claim_expires_at})

    def shift_deadlines(self, by: int) -> None:
        """Move every deadline by as much as the wall clock was moved, so that it keeps the time that was left."""
        for statement in _SHIFTS:
            self._statements.run(statement, {"by": by})

    def take(self, key: IdempotencyKey) -> dict[str, Any] | None:
        """Take the key. If two calls take one at once, the second waits until the first has committed."""
        values = values_of(key) | {"result": UNANSWERED, "created_at": self.now}
        expired = {"expired": self.now - KEY_LIFETIME_MILLISECONDS, "unanswered": UNANSWERED}
        is_ours = self._statements.row(_TAKE_KEY, values | expired) is not None
        return None if is_ours else self.recall(key, self.now)

    def remember(self, key: IdempotencyKey, result: dict[str, Any]) -> None:
        same = {"of_project": key.project, "of_tool": key.tool, "of_key": key.key}
        self._statements.run(_ANSWER_KEY, same | {"answer": canonical(result)})

    def forget_keys_before(self, moment: Milliseconds) -> None:
        self._statements.run(_FORGET_OLD_KEYS, {"moment": moment})


def finish(statements: Statements, done: Sequence[SqlTransaction]) -> LastEvent | None:
    """Write a commit's events and what they add to the statistics, as its last step. Returns the last event.

    The chain's head is one row for all writers. It is taken last, so that it is held for the shortest time and all
    writers take their locks in one order (tables.LOCK_ORDER).
    """
    new_events = [event for transaction in done for event in transaction.new_events]
    if not new_events:
        return None
    last = _append(statements, new_events)
    changed = statistics.add(statements, [tally for transaction in done for tally in transaction.tallies])
    if last.number % statistics.SUM_UP_EVERY < len(new_events):
        statistics.sum_up(statements, changed)
    return last


def lock_head(statements: Statements) -> LastEvent:
    head = statements.row(_HEAD, _THE_HEAD)
    if head is None:
        raise BrokerError(
            Code.UNAVAILABLE,
            "the reviews of this database were moved to another one",
            "Nothing was stored. Restart the broker; it says where they are.",
        )
    return LastEvent(*head)


def _append(statements: Statements, new_events: Sequence[NewEvent]) -> LastEvent:
    number, previous = lock_head(statements)
    rows: list[dict[str, Any]] = []
    for event in new_events:
        number += 1
        rows.append(event_row(event, number=number, previous_hash=previous))
        previous = rows[-1]["hash"]
    statements.run_all(_INSERT_EVENT, rows)
    statements.run(_MOVE_HEAD, {**_THE_HEAD, "to_sequence": number, "to_hash": previous})
    return LastEvent(number, previous)
