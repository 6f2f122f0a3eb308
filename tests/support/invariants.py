"""Invariants I2 to I7, checked on a database whose broker has stopped.

`audit.check` is the function that `tandem audit verify` uses, too. The rows are read by plain SQL and not by the
store's own verification: a mistake in how the store reads its rows would otherwise hide what it wrote."""

import contextlib
import json
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gsd_review_broker.domain import audit
from gsd_review_broker.domain.model import (
    AffectedFile,
    CounterPatch,
    Event,
    Finding,
    Message,
    Review,
    Revision,
    field_names,
)
from gsd_review_broker.domain.rules.transitions import hash_of_counter_patch, hash_of_message, hash_of_revision
from gsd_review_broker.domain.tally import BUCKETS, Histogram, Totals
from gsd_review_broker.domain.words import EventType, Status

_LIVE = "status IN ('claimed', 'in_review')"

# Each returns the reviews that break a rule: (what is wrong, the query).
_RULES = (
    (
        "a live claim has a claimant and a deadline",
        f"SELECT id FROM reviews WHERE {_LIVE} AND (claimed_by IS NULL OR claim_expires_at IS NULL)",
    ),
    (
        "only a live claim has a deadline",
        f"SELECT id FROM reviews WHERE NOT ({_LIVE}) AND claim_expires_at IS NOT NULL",
    ),
    ("nothing pending has a claimant", "SELECT id FROM reviews WHERE status = 'pending' AND claimed_by IS NOT NULL"),
    (
        "revisions are numbered from 1 to the review's own",
        """SELECT reviews.id FROM reviews LEFT JOIN revisions ON revisions.review_id = reviews.id GROUP BY reviews.id
           HAVING count(number) != revision OR min(number) IS NOT 1 OR max(number) IS NOT revision""",
    ),
    (
        "the review's content is its newest revision's",
        """SELECT reviews.id FROM reviews JOIN revisions ON review_id = reviews.id AND number = revision
           WHERE reviews.intent != revisions.intent OR reviews.author != revisions.author
              OR has_diff != (diff IS NOT NULL)""",
    ),
    (
        "open_finding_count counts the open findings",
        """SELECT id FROM reviews WHERE open_finding_count !=
           (SELECT count(*) FROM findings WHERE review_id = reviews.id AND disposition = 'open')""",
    ),
    (
        "at most one counter-patch is open",
        "SELECT review_id FROM counter_patches WHERE status = 'pending' GROUP BY review_id HAVING count(*) > 1",
    ),
    (
        "counter_patch_status is the newest counter-patch's",
        """SELECT id FROM reviews WHERE counter_patch_status IS NOT
           (SELECT status FROM counter_patches WHERE review_id = reviews.id ORDER BY id DESC LIMIT 1)""",
    ),
    (
        "each message has its event",
        """SELECT id FROM reviews WHERE (SELECT count(*) FROM messages WHERE review_id = reviews.id) !=
           (SELECT count(*) FROM events WHERE review_id = reviews.id AND event_type = 'message_sent')""",
    ),
    (
        "version counts the review's events",
        "SELECT id FROM reviews WHERE version != (SELECT count(*) FROM events WHERE review_id = reviews.id)",
    ),
    (
        "who approved does not stand behind the content",
        """SELECT id FROM reviews
           WHERE status = 'approved' AND (claimed_by IS NULL OR lower(claimed_by) = lower(author))""",
    ),
    ("a closed review has an outcome", "SELECT id FROM reviews WHERE (status = 'closed') != (outcome IS NOT NULL)"),
)


def problems(database: Path) -> list[str]:
    """What is wrong, in words. An empty list means that nothing is wrong."""
    with _opened(database) as connection:
        return [
            *_of_the_file(connection),
            *_of_the_audit(connection),
            *_of_generations(connection),
            *_of_the_tables(connection),
        ]


def events_of(database: Path) -> list[Event]:
    """Every event of a stopped broker's database, for clients to compare with their own log."""
    with _opened(database) as connection:
        return list(_events(connection, "ORDER BY id"))


@contextlib.contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    """For reading only: not even the WAL is checkpointed."""
    with contextlib.closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def _of_the_file(connection: sqlite3.Connection) -> list[str]:
    lines = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    strays = connection.execute("PRAGMA foreign_key_check").fetchall()
    return [line for line in lines if line != "ok"] + [f"foreign key: {tuple(row)}" for row in strays]


def _of_the_audit(connection: sqlite3.Connection) -> list[str]:
    ((number, last_hash),) = connection.execute("SELECT sequence, hash FROM audit_head").fetchall()
    return audit.check(
        _events(connection, "ORDER BY id"),
        gaps=[audit.Gap(*row) for row in connection.execute("SELECT * FROM audit_gaps ORDER BY first")],
        head=(number, last_hash),
        by_review=_events(connection, "WHERE review_id IS NOT NULL ORDER BY review_id, id"),
        stored=_stored(connection),
        totals=_totals(connection),
    )


def _stored(connection: sqlite3.Connection) -> Iterator[audit.Stored]:
    def of(review_id: str, table: str, order: str) -> list[dict[str, Any]]:
        fields = connection.execute(f"SELECT * FROM {table} WHERE review_id = ? ORDER BY {order}", (review_id,))
        rows = [dict(row) for row in fields]
        for row in rows:
            if "affected_files" in row:
                names = ("path", "operation", "added", "removed", "old_path", "binary", "old_mode", "new_mode")
                files = (dict(zip(names, file, strict=True)) for file in json.loads(row["affected_files"]))
                row["affected_files"] = tuple(AffectedFile(**file) for file in files)
            if row.get("metadata") is not None:
                row["metadata"] = json.loads(row["metadata"])
        return rows

    for row in connection.execute("SELECT * FROM reviews ORDER BY id").fetchall():
        patches = [CounterPatch(**fields) for fields in of(row["id"], "counter_patches", "id")]
        revisions = [Revision(**fields) for fields in of(row["id"], "revisions", "number")]
        messages = [Message(**fields) for fields in of(row["id"], "messages", "id")]
        yield audit.Stored(
            review=Review(**{name: row[name] for name in row.keys() if name in field_names(Review)}),  # noqa: SIM118
            contents={
                EventType.REVIEW_REVISED: [hash_of_revision(revision) for revision in revisions],
                EventType.MESSAGE_SENT: [hash_of_message(message) for message in messages],
                EventType.COUNTER_PATCH_OFFERED: [hash_of_counter_patch(patch) for patch in patches],
            },
            counter_patches=patches,
            findings=[Finding(**fields) for fields in of(row["id"], "findings", "position")],
        )


def totals_of(database: Path) -> dict[str, Totals]:
    with _opened(database) as connection:
        return _totals(connection)


def _totals(connection: sqlite3.Connection) -> dict[str, Totals]:
    totals: dict[str, Totals] = defaultdict(Totals)
    for scope, name, key, value in connection.execute("SELECT * FROM counters"):
        totals[scope].count(name, key, value)
    for scope, name, total, least, most, packed in connection.execute("SELECT * FROM histograms"):
        buckets = list(struct.unpack(f"<{BUCKETS}Q", packed))
        totals[scope].spreads[name] = Histogram(sum(buckets), total, least, most, buckets)
    for scope, name, bucket, count, total, least, most in connection.execute("SELECT * FROM histogram_buckets"):
        totals[scope].spreads[name].add_bucket(bucket, count=count, total=total, least=least, most=most)
    return totals


def _of_generations(connection: sqlite3.Connection) -> list[str]:
    """Strictly increasing: each claim has its own number, above all earlier ones."""
    newest: dict[Any, int] = {}
    problems_found: list[str] = []
    for event in _events(connection, "ORDER BY id"):
        generation = event.metadata.get("claim_generation")
        if generation is None:
            continue
        if event.event_type is EventType.REVIEW_CLAIMED and generation <= newest.get(event.review_id, 0):
            problems_found.append(
                f"event {event.id}: claim generation {generation} of {event.review_id} was used before"
            )
        newest[event.review_id] = generation
    return problems_found


def _of_the_tables(connection: sqlite3.Connection) -> list[str]:
    return [f"not so that {rule}: {row[0]}" for rule, query in _RULES for row in connection.execute(query)]


def _events(connection: sqlite3.Connection, order: str) -> Iterator[Event]:
    for row in connection.execute(f"SELECT * FROM events {order}"):
        values: dict[str, Any] = dict(row)
        values["event_type"] = EventType(values["event_type"])
        values["metadata"] = json.loads(values["metadata"])
        for name in ("old_status", "new_status"):
            values[name] = Status(values[name]) if values[name] is not None else None
        yield Event(**values)
