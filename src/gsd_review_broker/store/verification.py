"""Reading a whole database, with its archives, for the audit's check. Nothing is written: a broker may be running."""

import contextlib
import heapq
import itertools
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from gsd_review_broker import audit
from gsd_review_broker.audit import Gap, Stored
from gsd_review_broker.errors import StartError
from gsd_review_broker.model import Event, EventType, ReviewId
from gsd_review_broker.rules.contents import hash_of_counter_patch, hash_of_message, hash_of_revision
from gsd_review_broker.store import schema
from gsd_review_broker.store.archive import is_archive
from gsd_review_broker.store.rows import COUNTER_PATCHES, EVENTS, MESSAGES, REVIEWS, REVISIONS, Rows
from gsd_review_broker.store.session import SqliteSession, Values, sql_of
from gsd_review_broker.store.statistics import SCOPES, read_totals
from gsd_review_broker.store.tables import (
    audit_gaps,
    audit_head,
    counter_patches,
    events,
    messages,
    reviews,
    revisions,
)
from gsd_review_broker.tally import EVERYTHING, Totals

T = TypeVar("T")

_CHAIN = sa.select(*EVENTS.columns).order_by(events.c.id)
_BY_REVIEW = sa.select(*EVENTS.columns).where(events.c.review_id.is_not(None)).order_by(events.c.review_id, events.c.id)
_REVIEWS = sa.select(*REVIEWS.columns).order_by(reviews.c.id)
_REVISIONS = sa.select(*REVISIONS.columns).order_by(revisions.c.review_id, revisions.c.number)
_MESSAGES = sa.select(*MESSAGES.columns).order_by(messages.c.review_id, messages.c.id)
_COUNTER_PATCHES = sa.select(*COUNTER_PATCHES.columns).order_by(counter_patches.c.review_id, counter_patches.c.id)
_GAPS = sa.select(audit_gaps.c.first, audit_gaps.c.last, audit_gaps.c.previous_hash, audit_gaps.c.hash).order_by(
    audit_gaps.c.first
)
_HEAD = sa.select(audit_head.c.sequence, audit_head.c.hash)
_EVERY_COUNT = 1 << 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    problems: list[str]
    events: int
    reviews: int
    archived_events: int
    statistics_checked: bool


def verify(database: Path, archives: Sequence[Path] = ()) -> Report:
    """The whole database, of one moment: the file itself, the chain, every review, the statistics."""
    with contextlib.ExitStack() as stack:
        files = [_Whole(stack.enter_context(opened(path))) for path in (database, *archives)]
        main = files[0]
        damage = [f"{path.name}: {said}" for path, file in zip((database, *archives), files, strict=True)
                  for said in file.damage()]  # fmt: skip
        if damage:
            return Report(problems=damage, events=0, reviews=0, archived_events=0, statistics_checked=False)
        if main.is_archive:
            return _verify_archive(main)
        archived = sum(gap.last - gap.first + 1 for gap in main.gaps())
        statistics = bool(archives) or not archived
        problems = audit.check(
            heapq.merge(*(file.chain() for file in files), key=lambda event: event.id),
            gaps=main.gaps(),
            head=main.head(),
            by_review=heapq.merge(*(file.by_review() for file in files), key=lambda event: (event.review_id, event.id)),
            stored=heapq.merge(*(file.stored() for file in files), key=lambda row: row.review.id),
            totals=main.totals() if statistics else None,
            with_archives=bool(archives),
        )
        return Report(
            problems=problems,
            events=sum(file.count("events") for file in files),
            reviews=sum(file.count("reviews") for file in files),
            archived_events=archived,
            statistics_checked=statistics,
        )


def _verify_archive(archive: "_Whole") -> Report:
    """By itself: each event is what it was, those that follow each other are linked, each review is whole."""
    problems: list[str] = []
    before: Event | None = None
    for event in archive.chain():
        follows = before is not None and before.id + 1 == event.id
        if event.hash != audit.recomputed(event) or (follows and before and event.previous_hash != before.hash):
            problems.append(f"event {event.id} was altered: its hash does not fit")
            break
        before = event
    if not problems:
        problems += audit.check_reviews(archive.by_review(), archive.stored(), _Ignored())
    count = archive.count("events")
    return Report(
        problems=problems,
        events=count,
        reviews=archive.count("reviews"),
        archived_events=count,
        statistics_checked=False,
    )


class _Ignored(dict[str, Totals]):
    def __missing__(self, scope: str) -> Totals:
        return Totals()


def export(database: Path) -> Iterator[dict[str, Any]]:
    """Every event as it is stored, hashes and all, so that the chain can be checked elsewhere."""
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
            connection.execute("PRAGMA query_only=ON")
            version = schema.stored_version(connection)
        except sqlite3.Error as error:
            raise StartError(f"the database {database} cannot be read: {error}.") from error
        if version != schema.HEAD:
            raise StartError(
                f"the database {database} has schema {version}, this version reads {schema.HEAD}; "
                "start the broker on it once, which brings it up to date."
            )
        # One moment for all that is read.
        connection.execute("BEGIN")
        yield connection


class _Whole:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.is_archive = is_archive(connection)

    def damage(self) -> list[str]:
        said = [row[0] for row in self._connection.execute("PRAGMA integrity_check")]
        strays = self._connection.execute("PRAGMA foreign_key_check").fetchall()
        return [line for line in said if line != "ok"] + [f"a row of {row[0]} belongs to no review" for row in strays]

    def count(self, table: str) -> int:
        return self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - names of ours

    def chain(self) -> Iterator[Event]:
        return self._objects(_CHAIN, EVENTS)

    def by_review(self) -> Iterator[Event]:
        return self._objects(_BY_REVIEW, EVENTS)

    def gaps(self) -> list[Gap]:
        return [Gap(*row) for row in self._connection.execute(sql_of(_GAPS))]

    def head(self) -> tuple[int, str]:
        number, last_hash = self._connection.execute(sql_of(_HEAD)).fetchone()
        return number, last_hash

    def totals(self) -> dict[str, Totals]:
        session = SqliteSession(self._connection)
        found: dict[str, Totals] = {}
        row: Values | None = (EVERYTHING,)
        while row is not None:
            found[row[0]] = read_totals(session, row[0], most=_EVERY_COUNT)
            row = session.row(SCOPES, {"after": row[0]})
        return found

    def stored(self) -> Iterator[Stored]:
        kinds = {
            EventType.REVIEW_REVISED: _hashes(self._objects(_REVISIONS, REVISIONS), hash_of_revision),
            EventType.MESSAGE_SENT: _hashes(self._objects(_MESSAGES, MESSAGES), hash_of_message),
            EventType.COUNTER_PATCH_OFFERED: _hashes(
                self._objects(_COUNTER_PATCHES, COUNTER_PATCHES), hash_of_counter_patch
            ),
        }
        for review in self._objects(_REVIEWS, REVIEWS):
            yield Stored(review=review, contents={kind: hashes_of(review.id) for kind, hashes_of in kinds.items()})

    def _objects(self, statement: sa.Executable, rows: Rows[T]) -> Iterator[T]:
        return (rows.read(row) for row in self._connection.execute(sql_of(statement)))


def _hashes(contents: Iterable[T], hash_of: Callable[[T], str]) -> Callable[[ReviewId], list[str]]:
    """Reviews and their contents come in the same order, so each group is read when its review is."""
    groups = itertools.groupby(contents, key=lambda content: getattr(content, "review_id"))  # noqa: B009
    waiting: list[tuple[str, list[str]]] = []

    def of(review_id: ReviewId) -> list[str]:
        while not waiting or waiting[0][0] < review_id:
            waiting.clear()
            group = next(groups, None)
            if group is None:
                return []
            waiting.append((group[0], [hash_of(content) for content in group[1]]))
        return waiting[0][1] if waiting[0][0] == review_id else []

    return of
