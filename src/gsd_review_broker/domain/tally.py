"""Counts and histograms of reviews, computed from their events alone.

The store adds each change's tally in the transaction that stores the change. The audit's check computes the tally of
all events again and compares. Tallies of different reviews are independent and add up in any order.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate

from gsd_review_broker.domain.model import Milliseconds, NewEvent, Review
from gsd_review_broker.domain.text import compact, is_human
from gsd_review_broker.domain.words import Category, EventType, Priority, Status, Verdict

UNCATEGORIZED = "uncategorized"
# The scope for everything; other scopes are projects.
EVERYTHING = ""
_POOL_NAME = re.compile(r"(?P<display>(?P<agent>.+)-r\d+)-[0-9a-f]{8}")


class Counted(StrEnum):
    """The kinds of counts. Steps, reviewers and pairs are stored; the others follow from the steps."""

    # One event of one review: its type, the state before and after, the priority, and other counted fields.
    STEP = "step"
    STATUS = "status"
    # Pending reviews by their priority.
    QUEUE = "queue"
    CATEGORY = "category"
    VERDICT = "verdict"
    LAST_VERDICT = "last_verdict"
    EVENT = "event"
    REVIEWER = "reviewer"
    PAIR = "pair"


class Measured(StrEnum):
    """The kinds of measurements, besides the time in each state (time_in)."""

    TIME_TO_CLAIM = "time_to_claim"
    TIME_TO_VERDICT = "time_to_verdict"
    DURATION = "review_duration"
    ROUNDS = "rounds_to_approval"


def time_in(status: Status) -> str:
    return f"time_in:{status}"


def _no_counts() -> dict[tuple[str, str], int]:
    return defaultdict(int)


@dataclass(slots=True)
class Tally:
    counts: dict[tuple[str, str], int] = field(default_factory=_no_counts)
    samples: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def count(self, what: Counted, key: str, by: int = 1) -> None:
        self.counts[what, key] += by

    def sample(self, what: str, value: int) -> None:
        self.samples.append((what, value))


@dataclass(kw_only=True, slots=True)
class Progress:
    """The state needed to count a review's next event. Each event updates it."""

    agent_type: str
    category: Category | None
    priority: Priority
    project: str | None
    created_at: Milliseconds
    status: Status
    entered_at: Milliseconds
    was_claimed: bool
    last_verdict: Verdict | None


def progress_of(review: Review) -> Progress:
    return Progress(
        agent_type=review.agent_type,
        category=review.category,
        priority=review.priority,
        project=review.project,
        created_at=review.created_at,
        status=review.status,
        entered_at=review.entered_at,
        was_claimed=review.first_claimed_at is not None,
        last_verdict=review.last_verdict,
    )


def tally_of(progress: Progress | None, events: Iterable[NewEvent]) -> Tally:
    tally = Tally()
    for event in events:
        progress = observe(progress, event, tally)
    return tally


def observe(progress: Progress | None, event: NewEvent, tally: Tally) -> Progress:
    """Count one event of one review, and return the state for the next event."""
    if progress is None:
        return _begin(event, tally)
    _count_step(progress, event, tally)
    _move(progress, event, tally)
    match event.event_type:
        case EventType.REVIEW_CLAIMED:
            if not progress.was_claimed:
                tally.sample(Measured.TIME_TO_CLAIM, event.timestamp - progress.created_at)
            progress.was_claimed = True
        case EventType.VERDICT_SUBMITTED:
            _judge(progress, event, tally)
        case EventType.VERDICT_COMMENT:
            tally.count(Counted.REVIEWER, compact([display_name(event.actor), Verdict.COMMENT]))
        case EventType.REVIEW_CLOSED:
            tally.sample(Measured.DURATION, event.timestamp - progress.created_at)
        case _:
            pass
    return progress


def _begin(event: NewEvent, tally: Tally) -> Progress:
    metadata = event.metadata
    category = metadata.get("category")
    status = event.new_status or Status.PENDING
    priority = Priority(metadata.get("priority", Priority.NORMAL))
    tally.count(Counted.STEP, _step_key(event.event_type, None, status, priority, category or UNCATEGORIZED))
    return Progress(
        agent_type=metadata.get("agent_type", ""),
        category=Category(category) if category else None,
        priority=priority,
        project=metadata.get("project"),
        created_at=event.timestamp,
        status=status,
        entered_at=event.timestamp,
        was_claimed=False,
        last_verdict=None,
    )


def _count_step(progress: Progress, event: NewEvent, tally: Tally) -> None:
    after = event.new_status or progress.status
    details: tuple[str, ...] = ()
    if event.event_type is EventType.VERDICT_SUBMITTED:
        details = (str(event.metadata["verdict"]), progress.last_verdict or "")
    tally.count(Counted.STEP, _step_key(event.event_type, progress.status, after, progress.priority, *details))


def _step_key(event_type: EventType, before: Status | None, after: Status, priority: Priority, *details: str) -> str:
    return ":".join((event_type, before or "", after, priority, *details))


def counts_of_step(key: str) -> list[tuple[Counted, str, int]]:
    """Return the counts that follow from such a step."""
    event_type, before, after, priority, *details = key.split(":")
    counts = [(Counted.EVENT, event_type, 1)]
    if not before:
        counts += [(Counted.CATEGORY, details[0], 1), (Counted.STATUS, after, 1), (Counted.QUEUE, priority, 1)]
    elif before != after:
        counts += [(Counted.STATUS, before, -1), (Counted.STATUS, after, 1)]
        if Status.PENDING in (before, after):
            counts.append((Counted.QUEUE, priority, 1 if after == Status.PENDING else -1))
    if event_type == EventType.VERDICT_SUBMITTED:
        verdict, previous = details
        counts += [(Counted.LAST_VERDICT, verdict, 1), (Counted.VERDICT, verdict, 1)]
        counts += [(Counted.LAST_VERDICT, previous, -1)] if previous else []
    elif event_type == EventType.VERDICT_COMMENT:
        counts.append((Counted.VERDICT, Verdict.COMMENT, 1))
    return counts


def _move(progress: Progress, event: NewEvent, tally: Tally) -> None:
    before, status = progress.status, event.new_status
    if status is None or status is before:
        return
    tally.sample(time_in(before), event.timestamp - progress.entered_at)
    progress.status, progress.entered_at = status, event.timestamp


def _judge(progress: Progress, event: NewEvent, tally: Tally) -> None:
    """Count a reviewer's verdict. Automatic rejections are counted as events only."""
    verdict = Verdict(event.metadata["verdict"])
    if progress.last_verdict is None:
        tally.sample(Measured.TIME_TO_VERDICT, event.timestamp - progress.created_at)
    progress.last_verdict = verdict
    tally.count(Counted.REVIEWER, compact([display_name(event.actor), verdict]))
    tally.count(Counted.PAIR, compact([progress.agent_type, kind_of(event.actor), verdict]))
    if verdict is Verdict.APPROVED:
        tally.sample(Measured.ROUNDS, event.metadata["round"])


def display_name(reviewer: str) -> str:
    """Count all starts of one reviewer program together: codex-r1-0a1b2c3d is codex-r1."""
    match = _POOL_NAME.fullmatch(reviewer)
    return match["display"] if match else reviewer


def kind_of(reviewer: str) -> str:
    """Return the kind of reviewer: a person, a program of the pool, or the name that it gave itself."""
    if is_human(reviewer):
        return "human"
    match = _POOL_NAME.fullmatch(reviewer)
    return match["agent"] if match else reviewer


# A histogram takes constant space: sixteen buckets for each doubling, so a percentile is right to 3 %.
_EXACT = 32
_STEPS = 16
# Everything above two years in milliseconds falls into the last bucket.
_LARGEST = (1 << 36) - 1
BUCKETS = _EXACT + (_LARGEST.bit_length() - _EXACT.bit_length() + 1) * _STEPS


def within_bounds(value: int) -> int:
    return min(max(value, 0), _LARGEST)


def bucket_of(value: int) -> int:
    """Give small values a bucket each, and place a larger value by its five leading bits."""
    if value < _EXACT:
        return value
    shift = value.bit_length() - _EXACT.bit_length() + 1
    return _EXACT + (shift - 1) * _STEPS + (value >> shift) - _STEPS


def bounds_of(bucket: int) -> tuple[int, int]:
    """Return the least value of a bucket and that of the next."""
    if bucket < _EXACT:
        return bucket, bucket + 1
    doubling, step = divmod(bucket - _EXACT, _STEPS)
    shift = doubling + 1
    return (_STEPS + step) << shift, (_STEPS + step + 1) << shift


@dataclass(slots=True)
class Histogram:
    """The distribution of values that are whole and not negative: milliseconds, rounds."""

    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0
    # How many values each bucket holds.
    buckets: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, value: int) -> None:
        value = within_bounds(value)
        self.add_bucket(bucket_of(value), count=1, total=value, least=value, most=value)

    def add_bucket(self, bucket: int, *, count: int, total: int, least: int, most: int) -> None:
        """Add several values of one bucket at once."""
        if bucket < 0:
            raise IndexError(f"bucket {bucket} does not exist")
        self.least = least if self.count == 0 else min(self.least, least)
        self.most = max(self.most, most)
        self.count += count
        self.total += total
        self.buckets[bucket] += count

    def average(self) -> float | None:
        return self.total / self.count if self.count else None

    def percentiles(self, *percents: int) -> list[float | None]:
        """Return the values that so many percent of all values do not exceed."""
        if not self.count:
            return [None] * len(percents)
        # All other buckets are empty.
        first, last = bucket_of(self.least), bucket_of(self.most)
        reached = list(accumulate(self.buckets[first : last + 1]))
        return [self._middle(first + bisect_left(reached, -(-self.count * percent // 100))) for percent in percents]

    def _middle(self, bucket: int) -> float:
        low, high = bounds_of(bucket)
        return min(max((low + high - 1) / 2, self.least), self.most)


def _no_spreads() -> dict[str, Histogram]:
    return defaultdict(Histogram)


@dataclass(slots=True)
class Totals:
    """The tallies of many reviews in one scope, added up."""

    counts: dict[tuple[str, str], int] = field(default_factory=_no_counts)
    spreads: dict[str, Histogram] = field(default_factory=_no_spreads)

    def count(self, what: str, key: str, by: int) -> None:
        if what != Counted.STEP:
            self.counts[what, key] += by
            return
        for part, part_key, times in counts_of_step(key):
            self.counts[part, part_key] += by * times

    def add(self, tally: Tally) -> None:
        for (what, key), by in tally.counts.items():
            self.count(what, key, by)
        for what, value in tally.samples:
            self.spreads[what].add(value)


def scopes_of(project: str | None) -> tuple[str, ...]:
    return (EVERYTHING, project) if project else (EVERYTHING,)
