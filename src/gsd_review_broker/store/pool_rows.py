"""The pool's rows: reviewers, what they worked on, what failed. Mixed into the store's reader and transaction."""

from typing import Any

import sqlalchemy as sa

from gsd_review_broker.domain.model import Identity, Milliseconds, ReviewId
from gsd_review_broker.domain.rules.pool import FAILURES_THAT_NEED_A_PERSON, Failure, Reviewer, Work
from gsd_review_broker.domain.words import EndReason, ReviewerState, Status, WorkOutcome
from gsd_review_broker.store.rows import Rows, member_of
from gsd_review_broker.store.statements import Statements, Upsert, parameter
from gsd_review_broker.store.tables import brokers, pool_switches, review_failures, reviewer_work, reviewers, reviews

REVIEWERS = Rows(Reviewer, reviewers, state=member_of(ReviewerState), end_reason=member_of(EndReason))
WORK = Rows(Work, reviewer_work, outcome=member_of(WorkOutcome))
FAILURES = Rows(Failure, review_failures)

_REVIEWER = sa.select(*REVIEWERS.columns).where(reviewers.c.id == parameter("reviewer_id"))
_LOCKED_REVIEWER = _REVIEWER.with_for_update()
_REVIEWER_IDS = sa.select(reviewers.c.id)
_RUNNING = (
    sa.select(*REVIEWERS.columns).where(reviewers.c.ended_at.is_(None)).order_by(reviewers.c.started_at, reviewers.c.id)
)
_ENDED = (
    sa.select(*REVIEWERS.columns)
    .where(reviewers.c.ended_at.is_not(None))
    .order_by(reviewers.c.ended_at.desc(), reviewers.c.id)
    .limit(parameter("most"))
)
_UNDER_WAY = sa.select(*WORK.columns).where(reviewer_work.c.ended_at.is_(None)).order_by(reviewer_work.c.claimed_at)
_WORK_ON = (
    sa.select(*WORK.columns)
    .where(reviewer_work.c.review_id == parameter("review_id"))
    .order_by(reviewer_work.c.claim_generation)
)
_OPEN_WORK = _WORK_ON.where(reviewer_work.c.ended_at.is_(None))
_LOCKED_OPEN_WORK = _OPEN_WORK.with_for_update()
_WORK_OF = (
    sa.select(*WORK.columns)
    .where(reviewer_work.c.reviewer_id == parameter("reviewer_id"))
    .order_by(reviewer_work.c.claimed_at.desc(), reviewer_work.c.review_id)
    .limit(parameter("most"))
)
_LOCKED_WORK_OF = _WORK_OF.with_for_update()
_FAILURE = sa.select(*FAILURES.columns).where(review_failures.c.review_id == parameter("review_id"))
_TOKENS = sa.func.coalesce(sa.func.sum(reviewers.c.input_tokens), sa.literal_column("0")) + sa.func.coalesce(
    sa.func.sum(reviewers.c.output_tokens), sa.literal_column("0")
)
# A sum of integers is a decimal number on PostgreSQL.
_SPENT = sa.select(sa.func.count(), sa.cast(_TOKENS, sa.BigInteger)).where(reviewers.c.started_at > parameter("moment"))
# A broker that has its database for itself. On a shared one, its reviewers are left from before the move there.
SOLE_BROKER = "sqlite"
_DEAD = sa.select(reviewers.c.id).where(
    reviewers.c.ended_at.is_(None),
    sa.or_(
        reviewers.c.broker_id == parameter("sole_broker"),
        sa.exists().where(brokers.c.id == reviewers.c.broker_id, brokers.c.heartbeat_at < parameter("before")),
    ),
)
_SWITCH = sa.select(pool_switches.c.on).where(pool_switches.c.name == parameter("name"))
_MANY: sa.ColumnElement[int] = sa.literal_column(str(FAILURES_THAT_NEED_A_PERSON), sa.Integer)
_PAUSED = {"name": "paused"}


def not_held_back(now: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """A review that reviewers failed on is held back for a while; after too many failures, until a person answers."""
    failed = review_failures.c
    waits_for_person = sa.and_(failed.failures >= _MANY, reviews.c.needs_human.is_not(None))
    held = sa.select(failed.review_id).where(
        failed.review_id == reviews.c.id, sa.or_(failed.retry_at > now, waits_for_person)
    )
    return sa.not_(sa.exists(held.correlate(reviews)))


_PENDING_FOR_POOL = sa.select(sa.func.count()).select_from(
    sa.select(reviews.c.id)
    .where(
        reviews.c.status == parameter("status"),
        sa.or_(reviews.c.reserved_until.is_(None), reviews.c.reserved_until <= parameter("now")),
        not_held_back(parameter("now")),
    )
    .limit(parameter("most"))
    .subquery()
)

_HELD_BACK = (
    sa.select(*FAILURES.columns, reviews.c.needs_human)
    .select_from(reviews.join(review_failures, review_failures.c.review_id == reviews.c.id))
    .where(reviews.c.status == parameter("status"), sa.not_(not_held_back(parameter("now"))))
    .order_by(reviews.c.rank, reviews.c.created_at, reviews.c.id)
    .limit(parameter("most"))
)


def _put(table: sa.Table) -> Upsert:
    """Write the row whether it exists or not. Nothing is read before, so nothing can change in between."""
    keys = {column.name for column in table.primary_key.columns}
    return Upsert(table, lambda new: {column.name: new[column.name] for column in table.c if column.name not in keys})


_PUT = {table: _put(table) for table in (reviewers, reviewer_work, review_failures)}
_SWITCH_POOL = _put(pool_switches)
_BEAT = _put(brokers)


class PoolReads:
    _statements: Statements

    def reviewer(self, reviewer_id: Identity) -> Reviewer | None:
        row = self._statements.row(_REVIEWER, {"reviewer_id": reviewer_id})
        return REVIEWERS.read(row) if row else None

    def reviewer_ids(self) -> list[Identity]:
        return [Identity(row[0]) for row in self._statements.rows(_REVIEWER_IDS, {})]

    def running_reviewers(self) -> list[Reviewer]:
        return [REVIEWERS.read(row) for row in self._statements.rows(_RUNNING, {})]

    def ended_reviewers(self, limit: int) -> list[Reviewer]:
        return [REVIEWERS.read(row) for row in self._statements.rows(_ENDED, {"most": limit})]

    def work_under_way(self) -> list[Work]:
        return [WORK.read(row) for row in self._statements.rows(_UNDER_WAY, {})]

    def work_on(self, review_id: ReviewId) -> list[Work]:
        return [WORK.read(row) for row in self._statements.rows(_WORK_ON, {"review_id": review_id})]

    def work_of(self, reviewer_id: Identity, limit: int) -> list[Work]:
        wanted = {"reviewer_id": reviewer_id, "most": limit}
        return [WORK.read(row) for row in self._statements.rows(_WORK_OF, wanted)]

    def failure(self, review_id: ReviewId) -> Failure | None:
        row = self._statements.row(_FAILURE, {"review_id": review_id})
        return FAILURES.read(row) if row else None

    def pending_for_pool(self, now: Milliseconds, *, at_most: int) -> int:
        wanted = {"status": Status.PENDING, "now": now, "most": at_most}
        row = self._statements.row(_PENDING_FOR_POOL, wanted)
        return row[0] if row else 0

    def held_back(self, now: Milliseconds, limit: int) -> list[tuple[Failure, str | None]]:
        wanted = {"status": Status.PENDING, "now": now, "most": limit}
        return [(FAILURES.read(row), row[-1]) for row in self._statements.rows(_HELD_BACK, wanted)]

    def spent_since(self, moment: Milliseconds) -> tuple[int, int]:
        row = self._statements.row(_SPENT, {"moment": moment})
        assert row is not None  # noqa: S101 - a count is always one row
        return row[0], row[1]

    def reviewers_of_silent_brokers(self, before: Milliseconds) -> list[Identity]:
        wanted = {"before": before, "sole_broker": SOLE_BROKER}
        return [Identity(row[0]) for row in self._statements.rows(_DEAD, wanted)]

    def is_pool_paused(self) -> bool:
        row = self._statements.row(_SWITCH, _PAUSED)
        return bool(row and row[0])


class PoolWrites(PoolReads):
    """Rows that are read to be changed are read under a lock."""

    def lock_reviewer(self, reviewer_id: Identity) -> Reviewer | None:
        row = self._statements.row(_LOCKED_REVIEWER, {"reviewer_id": reviewer_id})
        return REVIEWERS.read(row) if row else None

    def lock_open_work(self, review_id: ReviewId) -> Work | None:
        row = self._statements.row(_LOCKED_OPEN_WORK, {"review_id": review_id})
        return WORK.read(row) if row else None

    def lock_work_of(self, reviewer_id: Identity, limit: int) -> list[Work]:
        wanted = {"reviewer_id": reviewer_id, "most": limit}
        return [WORK.read(row) for row in self._statements.rows(_LOCKED_WORK_OF, wanted)]

    def save_reviewer(self, reviewer: Reviewer) -> None:
        self._put(reviewers, reviewer)

    def save_work(self, work: Work) -> None:
        self._put(reviewer_work, work)

    def save_failure(self, failure: Failure) -> None:
        """Only the holder of the review's lock changes its failures."""
        self._put(review_failures, failure)

    def _put(self, table: sa.Table, row: object) -> None:
        self._statements.run(_PUT[table], {column.name: getattr(row, column.name) for column in table.c})

    def save_heartbeat(self, broker_id: str, now: Milliseconds) -> None:
        self._statements.run(_BEAT, {"id": broker_id, "heartbeat_at": now})

    def pause_pool(self, paused: bool) -> None:
        self._statements.run(_SWITCH_POOL, _PAUSED | {"on": paused})
