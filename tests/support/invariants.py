"""Invariants I2 to I7, checked on a database whose broker has stopped."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from gsd_review_broker import audit
from gsd_review_broker.model import Event
from gsd_review_broker.store.reads import SqlReader

_PAGE = 1_000
_LIVE = "status IN ('claimed', 'in_review')"

# Each gives the reviews that break a rule: (what is wrong, the query).
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


def _opened(database: Path) -> sa.Connection:
    """For reading only: not even the WAL is folded in."""
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True),
        poolclass=NullPool,
    )
    return engine.connect()


def problems(database: Path) -> list[str]:
    """What is wrong, in words; nothing wrong is an empty list."""
    with _opened(database) as connection:
        return [
            *_of_the_file(connection),
            *_of_the_audit(connection),
            *_of_generations(connection),
            *_of_the_tables(connection),
        ]


def _of_the_file(connection: sa.Connection) -> list[str]:
    said = [str(row[0]) for row in connection.execute(sa.text("PRAGMA integrity_check"))]
    strays = connection.execute(sa.text("PRAGMA foreign_key_check")).all()
    return [line for line in said if line != "ok"] + [f"foreign key: {tuple(row)}" for row in strays]


def _of_the_audit(connection: sa.Connection) -> list[str]:
    head = connection.execute(sa.text("SELECT sequence, hash FROM audit_head")).one()
    count = connection.execute(sa.text("SELECT count(*) FROM reviews")).scalar_one()
    stored = SqlReader(connection).review
    return audit.check(_events(connection), stored=stored, review_count=count, head=(head.sequence, head.hash))


def _of_generations(connection: sa.Connection) -> list[str]:
    """Strictly: each claim has a number of its own, above all before it."""
    newest: dict[Any, int] = {}
    found: list[str] = []
    for event in _events(connection):
        generation = event.metadata.get("claim_generation")
        if generation is None:
            continue
        if event.event_type.value == "review_claimed" and generation <= newest.get(event.review_id, 0):
            found.append(f"event {event.id}: claim generation {generation} of {event.review_id} was used before")
        newest[event.review_id] = generation
    return found


def _of_the_tables(connection: sa.Connection) -> list[str]:
    return [f"{rule}: not so for {row[0]}" for rule, query in _RULES for row in connection.execute(sa.text(query))]


def _events(connection: sa.Connection) -> Iterator[Event]:
    reader, after = SqlReader(connection), 0
    while page := reader.events(review_id=None, after=after, limit=_PAGE):
        yield from page
        after = page[-1].id


def events_of(database: Path) -> list[Event]:
    """Every event of a stopped broker's database, for clients to compare with their own log."""
    with _opened(database) as connection:
        return list(_events(connection))
