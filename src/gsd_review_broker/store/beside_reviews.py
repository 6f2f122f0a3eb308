"""Rows beside the reviews: the pool's, the gate's, tokens. Mixed into the store's reader and transaction."""

import json
from typing import Any

import sqlalchemy as sa

from gsd_review_broker.domain.audit import canonical
from gsd_review_broker.domain.caller import SignInLink, Token
from gsd_review_broker.domain.gate.decision import Because, GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.gate.records import parse_records, path_key
from gsd_review_broker.domain.model import Identity, Milliseconds, ReviewId, values_of
from gsd_review_broker.domain.rules.pool import FAILURES_THAT_NEED_A_PERSON, Failure, Reviewer, Work
from gsd_review_broker.domain.text import identity_key
from gsd_review_broker.domain.words import Status
from gsd_review_broker.store.rows import Rows
from gsd_review_broker.store.statements import Statements, Upsert, parameter, parameters_but_id
from gsd_review_broker.store.tables import (
    approved_paths,
    brokers,
    gate_overrides,
    landed_commits,
    pool_switches,
    review_failures,
    reviewed_changes,
    reviewer_work,
    reviewers,
    reviews,
    sign_in_links,
    tokens,
)

REVIEWERS = Rows(Reviewer, reviewers)
WORK = Rows(Work, reviewer_work)
FAILURES = Rows(Failure, review_failures)

_REVIEWER = REVIEWERS.select.where(reviewers.c.id == parameter("reviewer_id"))
_LOCKED_REVIEWER = _REVIEWER.with_for_update()
_REVIEWER_IDS = sa.select(reviewers.c.id)
_RUNNING = REVIEWERS.select.where(reviewers.c.ended_at.is_(None)).order_by(reviewers.c.started_at, reviewers.c.id)
_ENDED = (
    REVIEWERS.select.where(reviewers.c.ended_at.is_not(None))
    .order_by(reviewers.c.ended_at.desc(), reviewers.c.id)
    .limit(parameter("most"))
)
_UNDER_WAY = WORK.select.where(reviewer_work.c.ended_at.is_(None)).order_by(reviewer_work.c.claimed_at)
_WORK_ON = WORK.select.where(reviewer_work.c.review_id == parameter("review_id")).order_by(
    reviewer_work.c.claim_generation
)
_OPEN_WORK = _WORK_ON.where(reviewer_work.c.ended_at.is_(None))
_LOCKED_OPEN_WORK = _OPEN_WORK.with_for_update()
_WORK_OF = (
    WORK.select.where(reviewer_work.c.reviewer_id == parameter("reviewer_id"))
    .order_by(reviewer_work.c.claimed_at.desc(), reviewer_work.c.review_id)
    .limit(parameter("most"))
)
_LOCKED_WORK_OF = _WORK_OF.with_for_update()
_FAILURE_OF_REVIEW = FAILURES.select.where(review_failures.c.review_id == parameter("review_id"))
_TOKENS_SPENT = sa.func.coalesce(sa.func.sum(reviewers.c.input_tokens), sa.literal_column("0")) + sa.func.coalesce(
    sa.func.sum(reviewers.c.output_tokens), sa.literal_column("0")
)
# A sum of integers is a decimal number on PostgreSQL.
_SPENT = sa.select(sa.func.count(), sa.cast(_TOKENS_SPENT, sa.BigInteger)).where(
    reviewers.c.started_at > parameter("moment")
)
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
    """Hold back a review that reviewers failed on: for a while; after too many failures, until a person answers."""
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
        return REVIEWERS.find(self._statements, _REVIEWER, {"reviewer_id": reviewer_id})

    def reviewer_ids(self) -> list[Identity]:
        return [Identity(row[0]) for row in self._statements.rows(_REVIEWER_IDS, {})]

    def running_reviewers(self) -> list[Reviewer]:
        return REVIEWERS.find_all(self._statements, _RUNNING, {})

    def ended_reviewers(self, limit: int) -> list[Reviewer]:
        return REVIEWERS.find_all(self._statements, _ENDED, {"most": limit})

    def work_under_way(self) -> list[Work]:
        return WORK.find_all(self._statements, _UNDER_WAY, {})

    def work_on(self, review_id: ReviewId) -> list[Work]:
        return WORK.find_all(self._statements, _WORK_ON, {"review_id": review_id})

    def work_of(self, reviewer_id: Identity, limit: int) -> list[Work]:
        wanted = {"reviewer_id": reviewer_id, "most": limit}
        return WORK.find_all(self._statements, _WORK_OF, wanted)

    def failure(self, review_id: ReviewId) -> Failure | None:
        return FAILURES.find(self._statements, _FAILURE_OF_REVIEW, {"review_id": review_id})

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
        return REVIEWERS.find(self._statements, _LOCKED_REVIEWER, {"reviewer_id": reviewer_id})

    def lock_open_work(self, review_id: ReviewId) -> Work | None:
        return WORK.find(self._statements, _LOCKED_OPEN_WORK, {"review_id": review_id})

    def lock_work_of(self, reviewer_id: Identity, limit: int) -> list[Work]:
        wanted = {"reviewer_id": reviewer_id, "most": limit}
        return WORK.find_all(self._statements, _LOCKED_WORK_OF, wanted)

    def save_reviewer(self, reviewer: Reviewer) -> None:
        self._statements.run(_PUT[reviewers], values_of(reviewer))

    def save_work(self, work: Work) -> None:
        self._statements.run(_PUT[reviewer_work], values_of(work))

    def save_failure(self, failure: Failure) -> None:
        """Store the failure. Only the holder of the review's lock changes its failures."""
        self._statements.run(_PUT[review_failures], values_of(failure))

    def save_heartbeat(self, broker_id: str, now: Milliseconds) -> None:
        self._statements.run(_BEAT, {"id": broker_id, "heartbeat_at": now})

    def pause_pool(self, paused: bool) -> None:
        self._statements.run(_SWITCH_POOL, _PAUSED | {"on": paused})


REVIEWED_CHANGES = Rows(ReviewedChange, reviewed_changes)
OVERRIDES = Rows(GateOverride, gate_overrides)
LANDED = Rows(LandedCommit, landed_commits, reviews=lambda text: tuple(json.loads(text)))

_CHANGE = REVIEWED_CHANGES.select.where(reviewed_changes.c.review_id == parameter("review_id"))
_ON_PATH = (
    REVIEWED_CHANGES.select.join(approved_paths, approved_paths.c.review_id == reviewed_changes.c.review_id)
    .where(approved_paths.c.path_key == parameter("path_key"))
    .order_by(reviewed_changes.c.approved_at.desc(), reviewed_changes.c.review_id)
    .limit(parameter("most"))
)
_BEGINNING_AT = _ON_PATH.where(approved_paths.c.old_id == parameter("old_id"))
_NEVER_LANDED = (
    REVIEWED_CHANGES.select.where(reviewed_changes.c.approved_at.is_not(None), reviewed_changes.c.landed_at.is_(None))
    .order_by(reviewed_changes.c.approved_at.desc())
    .limit(parameter("most"))
)
_OVERRIDE = OVERRIDES.select.where(gate_overrides.c.id == parameter("override_id"))
_VALID_OVERRIDES = (
    OVERRIDES.select.where(
        gate_overrides.c.until > parameter("moment"), gate_overrides.c.created_at <= parameter("moment")
    )
    .order_by(gate_overrides.c.until.desc())
    .limit(parameter("most"))
)
_LATEST_OVERRIDES = OVERRIDES.select.order_by(gate_overrides.c.id.desc()).limit(parameter("most"))
_LANDED_COMMIT = LANDED.select.where(
    landed_commits.c.folder == parameter("folder"), landed_commits.c.commit_id == parameter("commit_id")
)
_LATEST_LANDED = LANDED.select.order_by(landed_commits.c.landed_at.desc()).limit(parameter("most"))
_WITHOUT_APPROVAL = _LATEST_LANDED.where(
    landed_commits.c.reviews == sa.literal_column("'[]'"),
    sa.or_(
        landed_commits.c.because.is_(None), landed_commits.c.because == sa.literal_column(f"'{Because.OVERRIDE.value}'")
    ),
)
_FORGET_CHANGE = sa.delete(reviewed_changes).where(reviewed_changes.c.review_id == parameter("review_id"))
_INSERT_CHANGE = sa.insert(reviewed_changes)
_INSERT_PATH = sa.insert(approved_paths)
_MARK_LANDED = (
    sa.update(reviewed_changes)
    .where(reviewed_changes.c.review_id == parameter("of_review"))
    .values(landed_at=parameter("at"))
)
_INSERT_OVERRIDE = sa.insert(gate_overrides).values(parameters_but_id(gate_overrides)).returning(gate_overrides.c.id)
_INSERT_LANDED = sa.insert(landed_commits)


class GateReads:
    _statements: Statements

    def reviewed_change(self, review_id: ReviewId) -> ReviewedChange | None:
        return REVIEWED_CHANGES.find(self._statements, _CHANGE, {"review_id": review_id})

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]:
        wanted = {"path_key": path_key(path), "old_id": old_id.decode("ascii", "replace"), "most": limit}
        return REVIEWED_CHANGES.find_all(self._statements, _BEGINNING_AT, wanted)

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]:
        wanted = {"path_key": path_key(path), "most": limit}
        return REVIEWED_CHANGES.find_all(self._statements, _ON_PATH, wanted)

    def approved_and_never_landed(self, limit: int) -> list[ReviewedChange]:
        return REVIEWED_CHANGES.find_all(self._statements, _NEVER_LANDED, {"most": limit})

    def gate_override(self, override_id: int) -> GateOverride | None:
        return OVERRIDES.find(self._statements, _OVERRIDE, {"override_id": override_id})

    def overrides_valid_at(self, moment: Milliseconds, limit: int) -> list[GateOverride]:
        return OVERRIDES.find_all(self._statements, _VALID_OVERRIDES, {"moment": moment, "most": limit})

    def latest_overrides(self, limit: int) -> list[GateOverride]:
        return OVERRIDES.find_all(self._statements, _LATEST_OVERRIDES, {"most": limit})

    def landed_commit(self, folder: str, commit_id: str) -> LandedCommit | None:
        return LANDED.find(self._statements, _LANDED_COMMIT, {"folder": folder, "commit_id": commit_id})

    def landed_commits(self, limit: int) -> list[LandedCommit]:
        return LANDED.find_all(self._statements, _LATEST_LANDED, {"most": limit})

    def landed_without_approval(self, limit: int) -> list[LandedCommit]:
        return LANDED.find_all(self._statements, _WITHOUT_APPROVAL, {"most": limit})


class GateWrites(GateReads):
    def save_reviewed_change(self, change: ReviewedChange) -> None:
        """Store what the newest claim is about; an approved change can be found by its paths."""
        self._statements.run(_FORGET_CHANGE, {"review_id": change.review_id})
        self._statements.run(_INSERT_CHANGE, values_of(change))
        if change.approved_at is not None:
            steps = parse_records(change.records).items()
            paths = [
                {"path_key": path_key(path), "old_id": step.old.object_id.decode(), "review_id": change.review_id}
                for path, step in steps
            ]
            self._statements.run_all(_INSERT_PATH, paths)

    def save_override(self, override: GateOverride) -> int:
        row = self._statements.row(_INSERT_OVERRIDE, values_of(override))
        assert row is not None  # noqa: S101 - RETURNING gives the row that was inserted
        return row[0]

    def save_landed(self, commit: LandedCommit) -> None:
        """Store the commit, and mark its reviews as landed."""
        values = values_of(commit) | {"reviews": canonical(list(commit.reviews))}
        self._statements.run(_INSERT_LANDED, values)
        for review_id in commit.reviews:
            self._statements.run(_MARK_LANDED, {"of_review": review_id, "at": commit.landed_at})


TOKENS = Rows(Token, tokens)

_TOKEN = TOKENS.select.where(tokens.c.hash == parameter("hash"))
_ALL_TOKENS = TOKENS.select.order_by(tokens.c.created_at.desc(), tokens.c.hash).limit(parameter("most"))
_TOKEN_OF_NAME = TOKENS.select.where(
    tokens.c.name_key == parameter("name_key"), tokens.c.revoked_at.is_(None)
).with_for_update()
_INSERT_TOKEN = sa.insert(tokens)
_REVOKE_TOKEN = sa.update(tokens).where(tokens.c.hash == parameter("of_hash")).values(revoked_at=parameter("at"))

SIGN_IN_LINKS = Rows(SignInLink, sign_in_links)
_INSERT_LINK = sa.insert(sign_in_links)
_REMOVE_OLD_LINKS = sa.delete(sign_in_links).where(sign_in_links.c.expires_at <= parameter("moment"))
_TAKE_LINK = (
    sa.delete(sign_in_links).where(sign_in_links.c.hash == parameter("of_hash")).returning(*SIGN_IN_LINKS.columns)
)


class TokenReads:
    _statements: Statements

    def token(self, token_hash: str) -> Token | None:
        return TOKENS.find(self._statements, _TOKEN, {"hash": token_hash})

    def tokens(self, limit: int) -> list[Token]:
        return TOKENS.find_all(self._statements, _ALL_TOKENS, {"most": limit})


class TokenWrites(TokenReads):
    def lock_token(self, name: str) -> Token | None:
        """Return the token of this name that was not revoked; it may have expired."""
        return TOKENS.find(self._statements, _TOKEN_OF_NAME, {"name_key": identity_key(name)})

    def save_token(self, token: Token) -> None:
        self._statements.run(_INSERT_TOKEN, values_of(token) | {"name_key": identity_key(token.name)})

    def revoke_token(self, token: Token, now: Milliseconds) -> None:
        self._statements.run(_REVOKE_TOKEN, {"of_hash": token.hash, "at": now})

    def save_sign_in_link(self, link: SignInLink, now: Milliseconds) -> None:
        self._statements.run(_REMOVE_OLD_LINKS, {"moment": now})
        self._statements.run(_INSERT_LINK, values_of(link))

    def take_sign_in_link(self, code_hash: str) -> SignInLink | None:
        return SIGN_IN_LINKS.find(self._statements, _TAKE_LINK, {"of_hash": code_hash})
