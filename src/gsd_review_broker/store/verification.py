"""Reads a whole database, with its archives, for the audit's check. It writes nothing: a broker may be running."""

import contextlib
import heapq
import itertools
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from gsd_review_broker.domain import audit
from gsd_review_broker.domain.audit import Gap, Stored
from gsd_review_broker.domain.model import Event, ReviewId
from gsd_review_broker.domain.rules.transitions import hash_of_counter_patch, hash_of_message, hash_of_revision
from gsd_review_broker.domain.tally import EVERYTHING, Totals
from gsd_review_broker.domain.words import EventType
from gsd_review_broker.errors import StartError
from gsd_review_broker.store import migrations, schema
from gsd_review_broker.store.archive import GAPS, is_archive
from gsd_review_broker.store.rows import COUNTER_PATCHES, EVENTS, FINDINGS, MESSAGES, REVIEWS, REVISIONS, Rows
from gsd_review_broker.store.statements import SqliteStatements, Values, sql_of
from gsd_review_broker.store.statistics import SCOPES, read_totals
from gsd_review_broker.store.tables import (
    audit_head,
    counter_patches,
    counters,
    events,
    findings,
    histogram_buckets,
    histograms,
    messages,
    metadata,
    reviews,
    revisions,
)

T = TypeVar("T")

_CHAIN = EVENTS.select.order_by(events.c.id)
_BY_REVIEW = EVENTS.select.where(events.c.review_id.is_not(None)).order_by(events.c.review_id, events.c.id)
_REVIEWS = REVIEWS.select.order_by(reviews.c.id)
_REVISIONS = REVISIONS.select.order_by(revisions.c.review_id, revisions.c.number)
_MESSAGES = MESSAGES.select.order_by(messages.c.review_id, messages.c.id)
_FINDINGS = FINDINGS.select.order_by(findings.c.review_id, findings.c.position)
_COUNTER_PATCHES = COUNTER_PATCHES.select.order_by(counter_patches.c.review_id, counter_patches.c.id)
_HEAD = sa.select(audit_head.c.sequence, audit_head.c.hash)
_EVERY_COUNT = 1 << 40
_METADATA = EVENTS.columns.index(events.c.metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class VerificationReport:
    problems: list[str]
    events: int = 0
    reviews: int = 0
    archived_events: int = 0
    statistics_checked: bool = False


class _UnreadableError(Exception):
    """A row that no broker wrote; the message names it."""


def verify(database: Path, archives: Sequence[Path] = ()) -> VerificationReport:
    """Check one snapshot: the file itself, the chain, every review, the statistics."""
    with contextlib.ExitStack() as stack:
        paths = (database, *archives)
        files = [_Whole(stack.enter_context(opened(path))) for path in paths]
        damage = [
            f"{path.name}: {problem}" for path, file in zip(paths, files, strict=True) for problem in file.damage()
        ]
        if damage:
            return VerificationReport(problems=damage)
        try:
            return _verify_archive(files[0]) if files[0].is_archive else _verify_all(files)
        except (_UnreadableError, sqlite3.DatabaseError) as error:
            return VerificationReport(problems=[str(error)])


def differing_tables(one: Path, other: Path) -> list[str]:
    """Name the tables whose rows are not the same in both databases."""
    differing: list[str] = []
    with opened(one) as first, opened(other) as second:
        for table in metadata.sorted_tables:
            statement = sql_of(sa.select(table).order_by(*table.primary_key))
            pairs = itertools.zip_longest(first.execute(statement), second.execute(statement))
            if any(left != right for left, right in pairs):
                differing.append(table.name)
    return differing


def _verify_all(files: list["_Whole"]) -> VerificationReport:
    main, *archives = files
    archived = sum(gap.last - gap.first + 1 for gap in main.gaps())
    statistics = bool(archives) or not archived
    problems = audit.check(
        _once(heapq.merge(*(file.chain() for file in files), key=lambda event: event.id)),
        gaps=main.gaps(),
        head=main.head(),
        by_review=_once(
            heapq.merge(*(file.by_review() for file in files), key=lambda event: (event.review_id, event.id))
        ),
        stored=_newest_of_each(heapq.merge(*(file.stored() for file in files), key=lambda row: row.review.id)),
        totals=main.totals() if statistics else None,
        with_archives=bool(archives),
    )
    return VerificationReport(
        problems=problems,
        events=sum(file.count("events") for file in files),
        reviews=sum(file.count("reviews") for file in files),
        archived_events=archived,
        statistics_checked=statistics,
    )


def _once(events: Iterable[Event]) -> Iterator[Event]:
    """Drop the copies that an interrupted prune left in an archive: those with the same number and the same hash."""
    before: Event | None = None
    for event in events:
        if before is None or (event.id, event.hash) != (before.id, before.hash):
            yield event
        before = event


def _newest_of_each(rows: Iterable[Stored]) -> Iterator[Stored]:
    """Keep the newest version of each review, which may have been copied and not removed."""
    for _, same in itertools.groupby(rows, key=lambda row: row.review.id):
        yield max(same, key=lambda row: row.review.version)


def _verify_archive(archive: "_Whole") -> VerificationReport:
    """Check an archive by itself: each event's hash, the links between neighbours, each review."""
    problems: list[str] = []
    before: Event | None = None
    for event in archive.chain():
        follows = before is not None and before.id + 1 == event.id
        if event.hash != audit.recomputed(event) or (follows and before and event.previous_hash != before.hash):
            problems.append(f"event {event.id} was altered: its hash does not fit")
            break
        before = event
    if not problems:
        problems += audit.check_reviews(archive.by_review(), archive.stored(), defaultdict(Totals))
    count = archive.count("events")
    return VerificationReport(problems=problems, events=count, reviews=archive.count("reviews"), archived_events=count)


def export(database: Path) -> Iterator[dict[str, Any]]:
    """Yield every stored event with its hashes, so that other programs can check the chain."""
    names = [column.name for column in EVENTS.columns]
    with opened(database) as connection:
        for event in _Whole(connection).chain():
            yield {name: getattr(event, name) for name in names}


@contextlib.contextmanager
def opened(database: Path) -> Generator[sqlite3.Connection]:
    if not database.is_file():
        raise StartError(f"there is no database {database}; give its path with --db.")
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    with contextlib.closing(connection):
        try:
            schema.harden(connection)
            connection.execute("PRAGMA query_only=ON")
            version = schema.stored_version(connection)
        except sqlite3.Error as error:
            raise StartError(f"the database {database} cannot be read: {error}.") from error
        if version is not None:
            schema.refuse_foreign(connection, version, database)
        if schema.is_older(version) and is_archive(connection):
            # No broker starts on an archive, so a copy of it is upgraded to the present schema and read.
            with _brought_up_to_date(connection) as copy:
                yield copy
            return
        schema.require_newest(version, database)
        # One snapshot for everything that is read.
        connection.execute("BEGIN")
        yield connection


@contextlib.contextmanager
def _brought_up_to_date(archive: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    # A temporary file without a name; it is deleted when it is closed.
    with contextlib.closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as copy:
        archive.backup(copy)
        migrations.upgrade(copy)
        yield copy


class _Whole:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.is_archive = is_archive(connection)

    def damage(self) -> list[str]:
        try:
            lines = [row[0] for row in self._connection.execute("PRAGMA integrity_check")]
            strays = self._connection.execute("PRAGMA foreign_key_check").fetchall()
            orphans = {(table, self._owner(table, number)) for table, number, _, _ in strays}
        except sqlite3.DatabaseError as error:
            return [str(error)]
        return [line for line in lines if line != "ok"] + [
            f"a row of {table} does not belong to a review: {review_id} is not stored"
            for table, review_id in sorted(orphans)
        ]

    def _owner(self, table: str, number: int) -> str:
        row = self._connection.execute(f"SELECT review_id FROM {table} WHERE rowid = ?", (number,)).fetchone()  # noqa: S608 - the names are our own tables and columns
        return str(row[0])

    def count(self, table: str) -> int:
        return self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - names of ours

    def chain(self) -> Iterator[Event]:
        """Yield the events in order. The hash covers the text of an event's metadata, which has only one spelling."""
        for event, text in self._with_rows(_CHAIN, EVENTS, "event {id} was altered: it cannot be read"):
            if audit.canonical(event.metadata) != text[_METADATA]:
                raise _UnreadableError(f"event {event.id} was altered: its hash does not fit")
            yield event

    def by_review(self) -> Iterator[Event]:
        return self._objects(_BY_REVIEW, EVENTS, "event {id} was altered: it cannot be read")

    def gaps(self) -> list[Gap]:
        unreadable = "the record of archived events was altered: it cannot be read"
        return [Gap(*row) for row in self._rows(GAPS, list(GAPS.selected_columns), unreadable)]

    def head(self) -> tuple[int, str]:
        rows = list(self._rows(_HEAD, list(_HEAD.selected_columns), "gap: the chain's head cannot be read"))
        if not rows:
            raise _UnreadableError("gap: the chain's head is missing")
        return rows[0][0], rows[0][1]

    def totals(self) -> dict[str, Totals]:
        for table, what in ((counters, "counters"), (histogram_buckets, "histograms"), (histograms, "histograms")):
            for _ in self._rows(sa.select(table), list(table.c), f"the {what} were altered: they cannot be read"):
                pass
        statements = SqliteStatements(self._connection)
        totals: dict[str, Totals] = {}
        row: Values | None = (EVERYTHING,)
        while row is not None:
            totals[row[0]] = self._totals_of(statements, row[0])
            row = statements.row(SCOPES, {"after": row[0]})
        return totals

    def _totals_of(self, statements: SqliteStatements, scope: str) -> Totals:
        try:
            return read_totals(statements, scope, most=_EVERY_COUNT)
        except (ValueError, IndexError) as error:
            raise _UnreadableError("the counters were altered: they cannot be read") from error

    def stored(self) -> Iterator[Stored]:
        revisions_of = self._beside(_REVISIONS, REVISIONS, "revision {number}")
        messages_of = self._beside(_MESSAGES, MESSAGES, "message {id}")
        patches_of = self._beside(_COUNTER_PATCHES, COUNTER_PATCHES, "counter-patch {id}")
        findings_of = self._beside(_FINDINGS, FINDINGS, "finding {id}")
        for review in self._objects(_REVIEWS, REVIEWS, "review {id} was altered: it cannot be read"):
            patches = patches_of(review.id)
            yield Stored(
                review=review,
                contents={
                    EventType.REVIEW_REVISED: [hash_of_revision(revision) for revision in revisions_of(review.id)],
                    EventType.MESSAGE_SENT: [hash_of_message(message) for message in messages_of(review.id)],
                    EventType.COUNTER_PATCH_OFFERED: [hash_of_counter_patch(patch) for patch in patches],
                },
                counter_patches=patches,
                findings=findings_of(review.id),
            )

    def _beside(self, statement: sa.Executable, rows: Rows[T], what: str) -> Callable[[ReviewId], list[T]]:
        """Reviews and the rows beside them come in the same order, so each group is read together with its review."""
        objects = self._objects(statement, rows, "review {review_id}: " + what + " was altered: it cannot be read")
        groups = itertools.groupby(objects, key=lambda row: getattr(row, "review_id"))  # noqa: B009 - all have one
        waiting: list[tuple[str, list[T]]] = []

        def of(review_id: ReviewId) -> list[T]:
            while not waiting or waiting[0][0] < review_id:
                waiting.clear()
                group = next(groups, None)
                if group is None:
                    return []
                waiting.append((group[0], list(group[1])))
            return waiting[0][1] if waiting[0][0] == review_id else []

        return of

    def _objects(self, statement: sa.Executable, rows: Rows[T], unreadable: str) -> Iterator[T]:
        return (item for item, _ in self._with_rows(statement, rows, unreadable))

    def _with_rows(self, statement: sa.Executable, rows: Rows[T], unreadable: str) -> Iterator[tuple[T, Values]]:
        for row in self._rows(statement, rows.columns, unreadable):
            try:
                yield rows.read(row), row
            except (KeyError, ValueError, TypeError) as error:
                raise _UnreadableError(_named(unreadable, rows.columns, row)) from error

    def _rows(
        self, statement: sa.Executable, columns: Sequence[sa.ColumnElement[Any]], unreadable: str
    ) -> Iterator[Values]:
        """SQLite stores any type in any column; a broker stores only the column's own type."""
        kinds = [_kinds_of(column) for column in columns]
        for row in self._connection.execute(sql_of(statement)):
            if not all(isinstance(value, kind) for value, kind in zip(row, kinds, strict=True)):
                raise _UnreadableError(_named(unreadable, columns, row))
            yield row


def _named(unreadable: str, columns: Sequence[sa.ColumnElement[Any]], row: Values) -> str:
    return unreadable.format(**{str(column.key): value for column, value in zip(columns, row, strict=True)})


def _kinds_of(column: sa.ColumnElement[Any]) -> tuple[type, ...]:
    kind = column.type.python_type
    kinds: tuple[type, ...] = {bool: (int,), float: (float, int)}.get(kind, (kind,))
    return (*kinds, type(None)) if getattr(column, "nullable", False) else kinds
