"""Reading: status, proposal, lists, the audit. The one read API for every front end."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gsd_review_broker import __version__
from gsd_review_broker.domain.model import Event, Identity, Review, ReviewId, values_of
from gsd_review_broker.domain.rules.verdicts import texts_of
from gsd_review_broker.domain.tally import EVERYTHING
from gsd_review_broker.domain.words import ReviewerState, Status, proposer_must_act
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import (
    FeedPosition,
    ListPosition,
    Reader,
    ReviewFilter,
    ReviewSummary,
    feed_position,
    list_position,
)
from gsd_review_broker.ports.world import QUEUE, review_topic
from gsd_review_broker.service import validation
from gsd_review_broker.service.approvals import can_add, missing_in
from gsd_review_broker.service.core import Core, find_review, present
from gsd_review_broker.service.pool_control import PoolControl
from gsd_review_broker.service.waiting import LongPoll
from gsd_review_broker.service.wire.broker import BrokerStatus
from gsd_review_broker.service.wire.encoding import make_cursor, moment, read_cursor, shortened
from gsd_review_broker.service.wire.reviews import (
    ActivityFeed,
    AuditLog,
    EventResult,
    NothingNew,
    ReviewList,
    ReviewStatus,
    Timeline,
    event_result,
    feed_row,
    nothing_new,
    review_row,
    review_status,
)
from gsd_review_broker.service.wire.statistics import MOST_COUNTS, ReviewStats, stats_of

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_LIMIT = 50
LARGEST_LIMIT = 500
_TIMELINE_EVENTS = 2_000
_FEW_EVENTS = 50
_TIMELINE_TEXT_CHARACTERS = 500
# A page of events ends early when it holds this much: reasons may be long.
_EVENTS_CHARACTERS = 256 * 1024
# The holder of a project's token is shown the events of that project among all.
_LOOKS = 10
_LOOKED_AT_ONCE = 500
# Rows that are converted at once: about 50 microseconds of work.
_ROWS = 16


async def in_pieces(convert: Callable[[T], R], rows: Sequence[T]) -> list[R]:
    """Convert all rows, in their order. Other calls run between two pieces: with a page in one piece, a short call
    beside it took 2 to 3.6 times as long as alone, and not 1.2 to 1.5 times."""
    converted: list[R] = []
    for first in range(0, len(rows), _ROWS):
        if first:
            await asyncio.sleep(0)
        converted.extend(map(convert, rows[first : first + _ROWS]))
    return converted


class _FeedQuery(ReviewFilter):
    """The same filters in another order: a list's cursor is not valid for the feed."""


def is_own_event(reader: Reader, event: Event) -> bool:
    """Does its review exist for this reader? An event without a review belongs to no project."""
    return event.review_id is not None and reader.review(event.review_id) is not None


def limit_of(limit: int | None) -> int:
    if limit is None:
        return DEFAULT_LIMIT
    validation.between("limit", limit, 1, LARGEST_LIMIT)
    return limit


class ReviewQueries:
    def __init__(self, core: Core, waiting: LongPoll, reviewers: PoolControl, *, serves: str) -> None:
        self._core = core
        self._waiting = waiting
        self._reviewers = reviewers
        self._serves = serves
        self._started = core.clock.steady()

    async def status(
        self,
        review_id: str,
        *,
        wait: bool = False,
        wait_seconds: float | None = None,
        since: int | None = None,
        caller_id: str | None = None,
    ) -> ReviewStatus | NothingNew:
        review = await self._core.find(review_id)
        await self._saw(caller_id, review)
        self._waiting.refuse_too_long(wait_seconds)
        if not wait:
            return await self._with_missing(review, changed=since is None or review.version > since)
        known = review.version if since is None else since
        at_once = since is None and proposer_must_act(review.status, review.counter_patch_status)

        async def look() -> Review | None:
            current = present(await self._core.store.glance(lambda reader: reader.review(review.id)), review.id)
            news = at_once or current.version > known or current.status is Status.CLOSED
            return current if news else None

        topic = review_topic(review.id)
        newer = await self._waiting.until(topic, look, wait=True, wait_seconds=wait_seconds)
        if newer is None:
            return nothing_new(await self._core.find(review.id))
        return await self._with_missing(newer, changed=since is None or newer.version > since)

    async def _with_missing(self, review: Review, *, changed: bool) -> ReviewStatus:
        """Return the status, and what the approval policy still asks for."""
        result = review_status(review, changed=changed)
        policy = self._core.policy.approvals
        if policy.is_one_reviewer:
            return result
        found = await self._core.store.read(lambda reader: missing_in(reader, review, policy))
        if found is not None:
            result["approved_by"], result["missing"] = list(found[0].approvers), texts_of(found[1])
        return result

    async def _saw(self, caller_id: str | None, review: Review) -> None:
        caller = validation.optional_identity("caller_id", caller_id, self._core.policy.limits)
        await self._core.saw(caller, review)

    async def reviews(
        self,
        wanted: ReviewFilter,
        *,
        wait: bool,
        wait_seconds: float | None,
        reviewer_id: str | None,
        limit: int | None,
        cursor: str | None,
    ) -> ReviewList:
        size = limit_of(limit)
        if wait and wanted.status is not Status.PENDING:
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                'wait: only with status="pending"',
                'Pass status="pending", or leave wait out.',
            )
        validation.project(wanted.project, self._core.policy.limits)
        reviewer = validation.optional_identity("reviewer_id", reviewer_id, self._core.policy.limits)
        if reviewer is not None:
            await self._core.saw(reviewer)
        query = replace(wanted, claimable_by=reviewer)
        after = _list_position_in(read_cursor(cursor, query)) if cursor is not None else None

        async def look() -> ReviewList | None:
            rows = await self._core.store.read(lambda reader: self._list(reader, query, after, size + 1))
            if wait and not rows:
                return None
            more = len(rows) > size
            return {
                "reviews": await in_pieces(review_row, rows[:size]),
                "next_cursor": make_cursor(query, list_position(rows[size - 1])) if more else None,
                "changed": True,
            }

        result = await self._waiting.until(QUEUE, look, wait=wait, wait_seconds=wait_seconds)
        return result or {"reviews": [], "next_cursor": None, "changed": False}

    def _list(self, reader: Reader, wanted: ReviewFilter, after: ListPosition | None, size: int) -> list[ReviewSummary]:
        state = self._core.access.pool_state(wanted.claimable_by)
        if state not in {None, ReviewerState.ACTIVE}:
            return []
        filtered = replace(
            wanted,
            claimable_at=self._core.clock.now(),
            for_pool=state is not None and wanted.status is Status.PENDING,
        )
        if wanted.parent_id is not None:
            filtered = replace(filtered, parent_id=find_review(reader, wanted.parent_id).id)
        if wanted.claimable_by is None or self._core.policy.approvals.is_one_reviewer:
            return reader.summaries(filtered, after=after, limit=size)
        return self._wanted_of(reader, wanted.claimable_by, filtered, after, size)

    def _wanted_of(
        self, reader: Reader, reviewer: Identity, filtered: ReviewFilter, after: ListPosition | None, size: int
    ) -> list[ReviewSummary]:
        """Leave out pending reviews to which this reviewer cannot add the missing approval."""
        kept: list[ReviewSummary] = []
        while len(kept) < size:
            page = reader.summaries(filtered, after=after, limit=size)
            kept += [summary for summary in page if self._may_help(reader, reviewer, summary)]
            if len(page) < size:
                break
            after = list_position(page[-1])
        return kept[:size]

    def _may_help(self, reader: Reader, reviewer: Identity, summary: ReviewSummary) -> bool:
        if summary.status != Status.PENDING:
            return True
        review = present(reader.review(summary.id), summary.id)
        return can_add(reader, review, self._core.policy.approvals, reviewer)

    async def feed(self, wanted: ReviewFilter, *, limit: int | None, cursor: str | None) -> ActivityFeed:
        size = limit_of(limit)
        validation.project(wanted.project, self._core.policy.limits)
        query = _FeedQuery(**values_of(wanted))
        after = _feed_position_in(read_cursor(cursor, query)) if cursor is not None else None
        rows = await self._core.store.read(lambda reader: reader.feed(wanted, after=after, limit=size + 1))
        more = len(rows) > size
        return {
            "reviews": await in_pieces(feed_row, rows[:size]),
            "next_cursor": make_cursor(query, feed_position(rows[size - 1])) if more else None,
        }

    async def audit_log(self, *, review_id: str | None, after: int | None, limit: int | None) -> AuditLog:
        size = limit_of(limit)
        review = await self._core.find(review_id) if review_id is not None else None
        wanted = review.id if review else None
        events, looked_until = await self._core.store.read(
            lambda reader: self._events(reader, wanted, after or 0, size + 1)
        )
        shown: list[EventResult] = await in_pieces(event_result, events[: _how_many_fit(events[:size])])
        more = len(shown) < len(events)
        return {"events": shown, "next_cursor": shown[-1]["id"] if more else looked_until}

    def _events(
        self, reader: Reader, review_id: ReviewId | None, after: int, size: int
    ) -> tuple[list[Event], int | None]:
        """Return events, and where to go on if enough was looked at for one call."""
        if review_id is not None or self._core.project is None:
            return reader.events(review_id=review_id, after=after, limit=size), None
        kept: list[Event] = []
        for _ in range(_LOOKS):
            events = reader.events(review_id=None, after=after, limit=_LOOKED_AT_ONCE)
            kept += [event for event in events if is_own_event(reader, event)]
            if len(kept) >= size or len(events) < _LOOKED_AT_ONCE:
                return kept[:size], None
            after = events[-1].id
        return kept, after

    async def timeline(self, review_id: str) -> Timeline:
        review = await self._core.find(review_id)
        # Its version is the number of its events.
        read = self._core.store.glance if review.version <= _FEW_EVENTS else self._core.store.read
        stored = await read(lambda reader: reader.events(review_id=review.id, after=0, limit=_TIMELINE_EVENTS))
        events = [event_result(event) for event in stored]
        for event in events:
            event["metadata"] = {name: _brief(value) for name, value in event["metadata"].items()}
        return {
            "review_id": review.id,
            "intent": review.intent,
            "current_status": review.status.value,
            "category": review.category.value if review.category else None,
            "version": review.version,
            "events": events,
            # Each of a review's events increases its version by one.
            "event_count": review.version,
            # Where get_audit_log goes on, if not all of them fit here.
            "next_cursor": events[-1]["id"] if len(events) < review.version else None,
        }

    async def broker_status(self) -> BrokerStatus:
        queue, oldest, last = await self._core.store.glance(
            lambda reader: (
                reader.pending_by_priority(),
                reader.oldest_pending_at(),
                reader.last_event_at(),
            )
        )
        return {
            "version": __version__,
            "serves": self._serves,
            "uptime_seconds": (self._core.clock.steady() - self._started) // 1000,
            "queue": queue,
            "oldest_pending_at": moment(oldest),
            "last_activity_at": moment(last),
            "waiting": self._core.wakeups.waiting,
            "reviewers": await self._reviewers.running(),
        }

    async def stats(self, *, project: str | None = None) -> ReviewStats:
        """Read counters: as quick at a million reviews as at ten."""
        scope = validation.project(project, self._core.policy.limits) or EVERYTHING
        # On SQLite the thread that reads also computes, and short calls need not wait for it.
        return await self._core.store.read(lambda reader: stats_of(reader.totals(scope, most=MOST_COUNTS)))


def _how_many_fit(events: Sequence[Event]) -> int:
    """Return how many fit into a page: at least one, however long it is."""
    room = _EVENTS_CHARACTERS
    for number, event in enumerate(events):
        room -= len(str(event.metadata))
        if number and room < 0:
            return number
    return len(events)


def _brief(value: Any) -> Any:
    return shortened(value, _TIMELINE_TEXT_CHARACTERS) if isinstance(value, str) else value


def _feed_position_in(position: Sequence[Any]) -> FeedPosition:
    match position:
        case [int() as updated_at, str() as review_id]:
            return updated_at, review_id
        case _:
            raise _foreign_cursor()


def _foreign_cursor() -> BrokerError:
    return BrokerError(Code.INVALID_ARGUMENT, "cursor: this is not a cursor of this list", "Begin again without it.")


def _list_position_in(position: Sequence[Any]) -> ListPosition:
    match position:
        case [int() as rank, int() as created_at, str() as review_id]:
            return rank, created_at, review_id
        case _:
            raise _foreign_cursor()
