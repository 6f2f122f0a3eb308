"""Retention: closed reviews and their events move into an archive file. The chain continues over the gap they leave.

A batch is first copied to the archive and synced to disk. Then it is deleted here in one transaction with its gaps and
a checkpoint event. A crash in between leaves copies; the next run finds them and does not copy them twice. A review is
always in at least one of the two files.
"""

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

import sqlalchemy as sa

from gsd_review_broker.domain.audit import Gap, seal
from gsd_review_broker.domain.model import Milliseconds, NewEvent, ReviewId
from gsd_review_broker.domain.text import BROKER
from gsd_review_broker.domain.words import EventType
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.files import make_private_folder
from gsd_review_broker.ports.store import Archived, Store
from gsd_review_broker.store import migrations, schema
from gsd_review_broker.store.statements import SqliteStatements, Statements, Values, insert_sql, parameter
from gsd_review_broker.store.tables import (
    audit_gaps,
    counter_patches,
    events,
    findings,
    messages,
    review_failures,
    reviewer_work,
    reviews,
    revisions,
)
from gsd_review_broker.store.writes import SqlTransaction

# A review, and its rows in each table.
Copy = tuple[ReviewId, dict[sa.Table, Sequence[Values]]]

# Few enough that deleting them does not delay other commands.
BATCH = 25
# This header marks a file as an archive.
_ARCHIVE_MARK = 0x7A6E
# Parents before children; rows are deleted in the reverse order.
_TABLES = (reviews, revisions, messages, counter_patches, findings, events, reviewer_work, review_failures)
_CLOSED = (
    sa.select(reviews.c.id, reviews.c.version)
    .where(reviews.c.closed_at < parameter("before"))
    .order_by(reviews.c.closed_at)
    .limit(parameter("most"))
)
_OF_REVIEW = {
    table: (table.c.id if table is reviews else table.c.review_id) == parameter("review_id") for table in _TABLES
}
_ROWS = {table: sa.select(*table.c).where(is_of_review) for table, is_of_review in _OF_REVIEW.items()}
_EVENTS = sa.select(events.c.id, events.c.previous_hash, events.c.hash).where(
    events.c.review_id == parameter("review_id")
)
_DELETIONS = [sa.delete(table).where(_OF_REVIEW[table]) for table in reversed(_TABLES)]
_GAP = (audit_gaps.c.first, audit_gaps.c.last, audit_gaps.c.previous_hash, audit_gaps.c.hash)
GAPS = sa.select(*_GAP).order_by(audit_gaps.c.first)
_GAP_ENDING = sa.select(*_GAP).where(audit_gaps.c.last == parameter("last"))
_GAP_BEGINNING = sa.select(*_GAP).where(audit_gaps.c.first == parameter("first"))
_DROP_GAP = sa.delete(audit_gaps).where(audit_gaps.c.first == parameter("first"))
_INSERT_GAP = sa.insert(audit_gaps)


def is_archive(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA user_version").fetchone()[0] == _ARCHIVE_MARK


@contextlib.contextmanager
def opened_archive(path: Path) -> Generator[sqlite3.Connection]:
    """Created with the present schema if it does not exist; only its owner can read it."""
    if not path.exists() or path.stat().st_size == 0:
        _make_archive(path)
    if path.is_symlink():
        raise StartError(f"{path} is a link, and an archive is a file beside its database; move it away.")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema.harden(connection)
        connection.execute("PRAGMA synchronous=FULL")
        version = schema.stored_version(connection)
        schema.refuse_foreign(connection, version, path)
        if not is_archive(connection) or (version != schema.HEAD and not schema.is_older(version)):
            raise StartError(f"{path} exists and is not an archive of this version; move it away.")
        if version != schema.HEAD:
            migrations.upgrade(connection)
        yield connection


def _make_archive(path: Path) -> None:
    """Make an empty archive. It gets its name when it is complete; an interrupted one is made again."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        migrations.upgrade(connection)
        connection.execute(f"PRAGMA user_version={_ARCHIVE_MARK}")
        # In WAL mode a reader without write permission can open the archive, and ignores what a killed copy left
        # behind.
        connection.execute("PRAGMA journal_mode=WAL")
    draft.replace(path)


def closed_reviews(source: Statements, before: Milliseconds) -> dict[ReviewId, int]:
    """Return the next batch, oldest first: each review with the version it is in."""
    return {row[0]: row[1] for row in source.rows(_CLOSED, {"before": before, "most": BATCH})}


def rows_of(source: Statements, review_id: ReviewId) -> dict[sa.Table, Sequence[Values]]:
    """Return everything about a review; nothing, if another run archived it meanwhile."""
    return {table: source.rows(_ROWS[table], {"review_id": review_id}) for table in _TABLES}


def write(target: Path, copies: Iterable[Copy]) -> None:
    """Copy reviews into the archive, which is made if there is none. Raises BrokerError."""
    try:
        make_private_folder(target.parent)
        with opened_archive(target) as archive:
            copy(copies, archive)
    except (OSError, sqlite3.Error, StartError) as error:
        raise BrokerError(Code.UNAVAILABLE, str(error), "Nothing was moved.") from error


def copy(copies: Iterable[Copy], archive: sqlite3.Connection) -> None:
    """Copy all rows of these reviews once. Rows that an earlier run copied are replaced with their present values.

    A review that is no longer in the source was archived by another run, and is not touched.
    """
    archive.execute("BEGIN IMMEDIATE")
    try:
        for review_id, rows in copies:
            if rows[reviews]:
                _replace(archive, review_id, rows)
    except BaseException:
        archive.execute("ROLLBACK")
        raise
    archive.execute("COMMIT")


def _replace(archive: sqlite3.Connection, review_id: ReviewId, rows: dict[sa.Table, Sequence[Values]]) -> None:
    target = SqliteStatements(archive)
    for statement in _DELETIONS:
        target.run(statement, {"review_id": review_id})
    for table in _TABLES:
        archive.executemany(insert_sql(table), rows[table])


async def remove_copied(store: Store, batch: dict[ReviewId, int], *, archive: str, closed_before: str) -> Archived:
    """Delete a batch that was copied, in one command."""
    if not batch:
        return Archived(found=0, moved=0)
    gone = await store.write(
        lambda tx: remove(cast("SqlTransaction", tx), batch, archive=archive, closed_before=closed_before)
    )
    return Archived(found=len(batch), moved=len(gone))


def remove(tx: SqlTransaction, batch: dict[ReviewId, int], *, archive: str, closed_before: str) -> list[ReviewId]:
    """Delete the reviews that were copied and have not changed since. Returns what was deleted."""
    present = {review_id: tx.lock_review(review_id) for review_id in sorted(batch)}
    gone = [id_ for id_, version in batch.items() if (review := present[id_]) and review.version == version]
    if not gone:
        return []
    removed = [event for review_id in gone for event in _delete_review(tx.statements, review_id)]
    _leave_gaps(tx.statements, sorted(removed))
    tx.append(
        NewEvent(
            event_type=EventType.AUDIT_CHECKPOINT,
            actor=BROKER,
            review_id=None,
            old_status=None,
            new_status=None,
            timestamp=tx.now,
            metadata={
                "archive": archive,
                "closed_before": closed_before,
                "reviews": len(gone),
                "events": len(removed),
                "gaps_hash": seal(Gap(*row) for row in tx.statements.rows(GAPS, {})),
            },
        )
    )
    return gone


def _delete_review(statements: Statements, review_id: ReviewId) -> list[Gap]:
    """Delete everything about a review. Returns each of its events as a gap."""
    wanted = {"review_id": review_id}
    gaps = [Gap(number, number, before, after) for number, before, after in statements.rows(_EVENTS, wanted)]
    for statement in _DELETIONS:
        statements.run(statement, wanted)
    return gaps


def _leave_gaps(statements: Statements, removed: list[Gap]) -> None:
    """Merge neighbouring gaps with each other and with the earlier ones."""
    runs: list[Gap] = []
    for gap in removed:
        if runs and runs[-1].last + 1 == gap.first:
            runs[-1] = _joined(runs[-1], gap)
        else:
            runs.append(gap)
    for run in runs:
        before = statements.row(_GAP_ENDING, {"last": run.first - 1})
        after = statements.row(_GAP_BEGINNING, {"first": run.last + 1})
        whole = _joined(Gap(*before), run) if before else run
        whole = _joined(whole, Gap(*after)) if after else whole
        for neighbour in filter(None, (before, after)):
            statements.run(_DROP_GAP, {"first": neighbour[0]})
        statements.run(_INSERT_GAP, asdict(whole))


def _joined(one: Gap, other: Gap) -> Gap:
    return Gap(one.first, other.last, one.previous_hash, other.hash)
