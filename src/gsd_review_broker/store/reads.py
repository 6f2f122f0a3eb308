"""Every query a tool makes, over one connection. Sync on purpose: it runs unchanged on each database."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from gsd_review_broker.domain.model import (
    CounterPatch,
    Event,
    Finding,
    Message,
    Milliseconds,
    Review,
    ReviewId,
    Revision,
)
from gsd_review_broker.domain.tally import EVERYTHING, Counted, Totals
from gsd_review_broker.domain.text import identity_key
from gsd_review_broker.domain.words import CounterPatchStatus, Priority, Status
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import (
    KEY_LIFETIME_MILLISECONDS,
    RANKS,
    FeedPosition,
    IdempotencyKey,
    ListPosition,
    ReviewFilter,
    ReviewSummary,
)
from gsd_review_broker.store.beside_reviews import GateReads, PoolReads, TokenReads, not_held_back
from gsd_review_broker.store.rows import COUNTER_PATCHES, EVENTS, FINDINGS, MESSAGES, REVIEW_FIELDS, REVIEWS, REVISIONS
from gsd_review_broker.store.statements import Statements, Unindexed, Values, parameter
from gsd_review_broker.store.statistics import read_counts, read_totals
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

_REVIEW = REVIEWS.select.where(reviews.c.id == parameter("review_id"))
_THIS_REVISION = (
    revisions.c.review_id == parameter("review_id"),
    revisions.c.number == parameter("number"),
)
_REVISION = REVISIONS.select.where(*_THIS_REVISION)
_REVISION_WITHOUT_DIFF = sa.select(
    *(sa.null() if column is revisions.c.diff else column for column in REVISIONS.columns)
).where(*_THIS_REVISION)
_PREFIX = (
    sa.select(reviews.c.id)
    .where(reviews.c.id >= parameter("low"), reviews.c.id < parameter("high"))
    .order_by(reviews.c.id)
    .limit(parameter("most"))
)
_EXPIRED = (
    REVIEWS.select.where(reviews.c.claim_expires_at <= parameter("now"))
    .order_by(reviews.c.claim_expires_at)
    .limit(parameter("most"))
)
_RESERVED = (
    sa.select(reviews.c.id)
    .where(reviews.c.reserved_until > parameter("after"), reviews.c.reserved_until <= parameter("until"))
    .limit(parameter("most"))
)
_EVENTS = EVENTS.select.where(events.c.id > parameter("after")).order_by(events.c.id).limit(parameter("most"))
_EVENTS_OF_REVIEW = _EVENTS.where(events.c.review_id == parameter("review_id"))
# The list's own index answers this, once for each rank.
_OLDEST = sa.select(
    *(
        sa.select(reviews.c.created_at)
        .where(reviews.c.status == parameter("status"), reviews.c.rank == rank)
        .order_by(reviews.c.created_at)
        .limit(1)
        .scalar_subquery()
        for rank in RANKS.values()
    )
)
_LAST_EVENT = sa.select(events.c.timestamp).order_by(events.c.id.desc()).limit(parameter("most"))
_MESSAGES = (
    MESSAGES.select.where(messages.c.review_id == parameter("review_id"), messages.c.id > parameter("after"))
    .order_by(messages.c.id)
    .limit(parameter("most"))
)
_MESSAGES_OF_ROUND = _MESSAGES.where(messages.c.round == parameter("round"))
_FINDINGS = FINDINGS.select.where(findings.c.review_id == parameter("review_id")).order_by(findings.c.position)
_ALL_COUNTER_PATCHES = COUNTER_PATCHES.select.where(counter_patches.c.review_id == parameter("review_id")).order_by(
    counter_patches.c.id
)
_COUNTER_PATCHES = (
    COUNTER_PATCHES.select.where(counter_patches.c.review_id == parameter("review_id"))
    .order_by(counter_patches.c.id.desc())
    .limit(parameter("most"))
)
_COUNTER_PATCH_IN = _COUNTER_PATCHES.where(counter_patches.c.status == parameter("status"))
_COUNTER_PATCH_OF = _COUNTER_PATCHES.where(counter_patches.c.revision == parameter("revision"))
_KEY = sa.select(idempotency_keys.c.arguments_hash, idempotency_keys.c.result).where(
    idempotency_keys.c.project == parameter("project"),
    idempotency_keys.c.tool == parameter("tool"),
    idempotency_keys.c.key == parameter("key"),
    idempotency_keys.c.created_at > parameter("since"),
)
# Additional queries of the dashboard.
_EVENTS_BEFORE = (
    EVENTS.select.where(events.c.id < parameter("before")).order_by(events.c.id.desc()).limit(parameter("most"))
)
_EVENTS_OF_REVIEW_BEFORE = _EVENTS_BEFORE.where(events.c.review_id == parameter("review_id"))
# The head of a database that was moved away has a higher number.
_LAST_EVENT_ID = sa.select(audit_head.c.sequence).where(audit_head.c.id >= parameter("head"))
_LAST_MESSAGE = (
    MESSAGES.select.where(messages.c.review_id == parameter("review_id"))
    .order_by(messages.c.id.desc())
    .limit(parameter("most"))
)
_AFTER_ALL = 2**62
# Empty for a call that has not finished, or finished without an answer.
UNANSWERED = ""
_ORDER = (reviews.c.rank, reviews.c.created_at, reviews.c.id)


class SqlReader(PoolReads, GateReads, TokenReads):
    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    @property
    def statements(self) -> Statements:
        """Let a store run what only it does."""
        return self._statements

    def review(self, review_id: ReviewId) -> Review | None:
        return REVIEWS.find(self._statements, _REVIEW, {"review_id": review_id})

    def ids_with_prefix(self, prefix: str, limit: int) -> list[ReviewId]:
        # Ids are ASCII, so every id with the prefix sorts before the prefix followed by the last ASCII character.
        rows = self._statements.rows(_PREFIX, {"low": prefix, "high": prefix + "\x7f", "most": limit})
        return [ReviewId(row[0]) for row in rows]

    def revision(self, review_id: ReviewId, number: int, *, with_diff: bool) -> Revision | None:
        statement = _REVISION if with_diff else _REVISION_WITHOUT_DIFF
        return REVISIONS.find(self._statements, statement, {"review_id": review_id, "number": number})

    def reviews(self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int) -> list[Review]:
        return [REVIEWS.read(row) for row in self._listed(REVIEW_FIELDS, wanted, after, limit)]

    def summaries(self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int) -> list[ReviewSummary]:
        return [ReviewSummary(*row) for row in self._listed(ReviewSummary._fields, wanted, after, limit)]

    def _listed(
        self, columns: tuple[str, ...], wanted: ReviewFilter, after: ListPosition | None, limit: int
    ) -> Sequence[Values]:
        equal = {name: value for name in _EQUAL if (value := getattr(wanted, name)) is not None}
        statement = _list_statement(
            columns,
            tuple(equal),
            wanted.needs_human,
            claimable=wanted.claimable_by is not None,
            after=after is not None,
            live=wanted.status is not Status.CLOSED,
            for_pool=wanted.for_pool,
            only_live=wanted.only_live,
        )
        parameters: dict[str, Any] = {**equal, "most": limit, "now": wanted.claimable_at or 0}
        if wanted.claimable_by is not None:
            parameters |= {"reviewer": identity_key(wanted.claimable_by)}
        if after is not None:
            parameters |= {"after_rank": after[0], "after_created": after[1], "after_id": after[2]}
        return self._statements.rows(statement, parameters)

    def expired_claims(self, now: Milliseconds, limit: int) -> list[Review]:
        return REVIEWS.find_all(self._statements, _EXPIRED, {"now": now, "most": limit})

    def reservation_ended(self, *, after: Milliseconds, until: Milliseconds) -> bool:
        return self._statements.row(_RESERVED, {"after": after, "until": until, "most": 1}) is not None

    def events(self, *, review_id: ReviewId | None, after: int, limit: int) -> list[Event]:
        parameters = {"review_id": review_id, "after": after, "most": limit}
        return EVENTS.find_all(self._statements, _EVENTS if review_id is None else _EVENTS_OF_REVIEW, parameters)

    def pending_by_priority(self, scope: str = EVERYTHING) -> dict[str, int]:
        counted = read_counts(self._statements, scope, Counted.QUEUE, most=len(RANKS))
        return {priority.value: counted.get(priority.value, 0) for priority in Priority}

    def oldest_pending_at(self) -> Milliseconds | None:
        oldest = self._statements.row(_OLDEST, {"status": Status.PENDING}) or ()
        return min((moment for moment in oldest if moment is not None), default=None)

    def last_event_at(self) -> Milliseconds | None:
        row = self._statements.row(_LAST_EVENT, {"most": 1})
        return row[0] if row else None

    def messages(self, review_id: ReviewId, *, round_: int | None, after: int, limit: int) -> list[Message]:
        statement = _MESSAGES if round_ is None else _MESSAGES_OF_ROUND
        parameters: dict[str, Any] = {"review_id": review_id, "after": after, "most": limit}
        if round_ is not None:
            parameters["round"] = round_
        return MESSAGES.find_all(self._statements, statement, parameters)

    def findings(self, review_id: ReviewId) -> list[Finding]:
        return FINDINGS.find_all(self._statements, _FINDINGS, {"review_id": review_id})

    def counter_patches(self, review_id: ReviewId) -> list[CounterPatch]:
        return COUNTER_PATCHES.find_all(self._statements, _ALL_COUNTER_PATCHES, {"review_id": review_id})

    def open_counter_patch(self, review_id: ReviewId) -> CounterPatch | None:
        wanted = {"review_id": review_id, "status": CounterPatchStatus.PENDING, "most": 1}
        return COUNTER_PATCHES.find(self._statements, _COUNTER_PATCH_IN, wanted)

    def counter_patch_of(self, review_id: ReviewId, revision: int) -> CounterPatch | None:
        wanted = {"review_id": review_id, "revision": revision, "most": 1}
        return COUNTER_PATCHES.find(self._statements, _COUNTER_PATCH_OF, wanted)

    def feed(self, wanted: ReviewFilter, *, after: FeedPosition | None, limit: int) -> list[ReviewSummary]:
        equal = {name: value for name in _FEED_FILTERS if (value := getattr(wanted, name)) is not None}
        parameters: dict[str, Any] = {**equal, "most": limit}
        if after is not None:
            parameters |= {"after_updated": after[0], "after_id": after[1]}
        rows = self._statements.rows(_feed_statement(tuple(equal), after is not None), parameters)
        return [ReviewSummary(*row) for row in rows]

    def totals(self, scope: str, *, most: int) -> Totals:
        return read_totals(self._statements, scope, most=most)

    def recall(self, key: IdempotencyKey, now: Milliseconds) -> dict[str, Any] | None:
        since = now - KEY_LIFETIME_MILLISECONDS
        parameters = {"project": key.project, "tool": key.tool, "key": key.key, "since": since}
        row = self._statements.row(_KEY, parameters)
        if row is None or row[1] == UNANSWERED:
            return None
        arguments_hash, result = row
        if arguments_hash != key.arguments_hash:
            raise BrokerError(
                Code.CONFLICT,
                f"idempotency_key {key.key!r} was used for another {key.tool} call within 24 h",
                "Repeat a call with exactly the same arguments, or take a new key.",
            )
        return json.loads(result)

    # Additional queries of the dashboard.

    def last_event_id(self) -> int:
        row = self._statements.row(_LAST_EVENT_ID, {"head": 1})
        return row[0] if row else 0

    def events_before(self, *, review_id: ReviewId | None, before: int | None, limit: int) -> list[Event]:
        parameters = {"review_id": review_id, "before": before or _AFTER_ALL, "most": limit}
        statement = _EVENTS_BEFORE if review_id is None else _EVENTS_OF_REVIEW_BEFORE
        return EVENTS.find_all(self._statements, statement, parameters)

    def last_message(self, review_id: ReviewId) -> Message | None:
        return MESSAGES.find(self._statements, _LAST_MESSAGE, {"review_id": review_id, "most": 1})


_EQUAL = ("status", "category", "project", "phase", "plan", "proposer_id", "parent_id")


@cache
def _list_statement(
    columns: tuple[str, ...],
    equal: tuple[str, ...],
    needs_human: bool | None,
    claimable: bool,
    after: bool,
    live: bool,
    for_pool: bool = False,
    only_live: bool = False,
) -> sa.Select[Any]:
    """Make one statement for each shape of query. There are few shapes, and each is compiled once."""
    aside = _not_by_index(equal, live=live)
    conditions = [
        (Unindexed(reviews.c[name]) if name in aside else reviews.c[name]) == parameter(name) for name in equal
    ]
    if needs_human is not None:
        is_null = reviews.c.needs_human.is_(None)
        conditions.append(sa.not_(is_null) if needs_human else is_null)
    if only_live:
        conditions.append(reviews.c.status != sa.literal_column(f"'{Status.CLOSED}'"))
    if claimable:
        conditions += _claimable()
    if for_pool:
        conditions.append(not_held_back(parameter("now")))
    if after:
        places = (parameter(name) for name in ("after_rank", "after_created", "after_id"))
        conditions.append(sa.tuple_(*_ORDER) > sa.tuple_(*places))
    shown = (reviews.c[name] for name in columns)
    page = sa.select(*shown).where(*conditions).order_by(*_ORDER).limit(parameter("most"))
    return _by_state(page, ("rank", "created_at", "id")) if "project" in equal and "status" not in equal else page


def _not_by_index(equal: tuple[str, ...], *, live: bool) -> set[str]:
    """Choose the columns to search without their index: this code knows which of two indexes leads to fewer rows.

    A project's index contains the status. Few reviews are not closed; nearly all are closed.
    """
    others = set(equal) - {"status"}
    if "project" in equal:
        return others - {"project"}
    if "status" not in equal or not others:
        return set()
    return others if live else {"status"}


_FEED_FILTERS = ("status", "category", "project")
_SUMMARY = tuple(reviews.c[name] for name in ReviewSummary._fields)
_LATEST = (reviews.c.updated_at.desc(), reviews.c.id.desc())


@cache
def _feed_statement(equal: tuple[str, ...], after: bool) -> sa.Select[Any]:
    conditions = [reviews.c[name] == parameter(name) for name in equal]
    if after:
        place = sa.tuple_(parameter("after_updated"), parameter("after_id"))
        conditions.append(sa.tuple_(reviews.c.updated_at, reviews.c.id) < place)
    page = sa.select(*_SUMMARY).where(*conditions).order_by(*_LATEST).limit(parameter("most"))
    if "status" in equal:
        return page
    return _by_state(page, ("updated_at", "id"), newest_first=True)


def _by_state(page: sa.Select[Any], order: tuple[str, ...], *, newest_first: bool = False) -> sa.Select[Any]:
    """Read one page for each state, for indexes that have the state before the order: six short searches, not a long
    one.

    They read only the index. Table rows are read only for the reviews that are shown.
    """
    keys = page.with_only_columns(*(reviews.c[name] for name in order))
    each = [keys.where(reviews.c.status == sa.literal_column(f"'{status}'")).subquery() for status in Status]
    every = sa.union_all(*(sa.select(rows) for rows in each)).subquery()
    placed = [every.c[name].desc() if newest_first else every.c[name] for name in order]
    first = sa.select(every.c.id).order_by(*placed).limit(parameter("most")).subquery()
    shown = [reviews.c[name].desc() if newest_first else reviews.c[name] for name in order]
    return sa.select(*page.selected_columns).join(first, reviews.c.id == first.c.id).order_by(*shown)


def _claimable() -> list[sa.ColumnElement[bool]]:
    """Filter first, so that a page holds reviews that the rules will grant. The rules decide."""
    reviewer, now = parameter("reviewer"), parameter("now")
    return [
        reviews.c.proposer_key != reviewer,
        reviews.c.author_key != reviewer,
        sa.or_(
            reviews.c.reserved_until.is_(None),
            reviews.c.reserved_until <= now,
            reviews.c.reserved_key == reviewer,
        ),
    ]
