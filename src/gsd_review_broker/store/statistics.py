"""Counters and histograms. Each change adds to them in its transaction; they are read whole by key.

A histogram is a row with all its buckets, and the rows of single buckets that were added since. A row of all buckets is
read in the same time for any number of values; a row of one bucket is quickly written.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
import structlog

from gsd_review_broker.domain.tally import (
    BUCKETS,
    Counted,
    Histogram,
    Tally,
    Totals,
    bucket_of,
    scopes_of,
    within_bounds,
)
from gsd_review_broker.store.statements import Excluded, Parameters, Statements, Upsert, Values, parameter
from gsd_review_broker.store.tables import counters, histogram_buckets, histograms

log = structlog.get_logger()

# The database itself adds to the existing row. Nothing is read and nothing is kept in memory, so several writers add up
# correctly.
_ADD_COUNT = Upsert(counters, lambda new: {"value": counters.c.value + new["value"]})
_FIELDS = ("count", "total", "least", "most")


def _added(new: Excluded) -> dict[str, sa.ColumnElement[Any]]:
    kept = histogram_buckets.c
    return {
        "count": kept.count + new["count"],
        "total": kept.total + new["total"],
        "least": sa.case((new["least"] < kept.least, new["least"]), else_=kept.least),
        "most": sa.case((new["most"] > kept.most, new["most"]), else_=kept.most),
    }


_ADD_VALUES = Upsert(histogram_buckets, _added)
COUNTS = (
    sa.select(counters.c.key, counters.c.value)
    .where(counters.c.scope == parameter("scope"), counters.c.name == parameter("name"))
    # If not all are read, those of one reviewer are read together.
    .order_by(counters.c.key)
    .limit(parameter("most"))
)
# The keys of all other counts are made of a fixed set of words.
_UNBOUNDED = (Counted.REVIEWER, Counted.PAIR)
BOUNDED_COUNTS = sa.select(counters.c.name, counters.c.key, counters.c.value).where(
    counters.c.scope == parameter("scope"),
    counters.c.name.in_([sa.literal_column(f"'{what}'") for what in Counted if what not in _UNBOUNDED]),
)
_ONE = (histogram_buckets.c.scope == parameter("scope"), histogram_buckets.c.name == parameter("name"))
SUMS = sa.select(
    histograms.c.name, histograms.c.total, histograms.c.least, histograms.c.most, histograms.c.buckets
).where(histograms.c.scope == parameter("scope"))
_SUM = SUMS.where(histograms.c.name == parameter("name"))
ADDED = sa.select(
    histogram_buckets.c.name, histogram_buckets.c.bucket, *(histogram_buckets.c[name] for name in _FIELDS)
).where(histogram_buckets.c.scope == parameter("scope"))
_ADDED_TO_ONE = ADDED.where(histogram_buckets.c.name == parameter("name"))
_HOW_MANY = sa.select(sa.func.count()).select_from(histogram_buckets).where(*_ONE)
_FORGET = sa.delete(histogram_buckets).where(*_ONE)
_STORE_SUM = Upsert(histograms, lambda new: {name: new[name] for name in ("total", "least", "most", "buckets")})
# A commit that reaches a multiple of so many events sums up the histograms that it changes. It is a prime number,
# because work has a rhythm: if each review had four events, every 32nd would be of the same kind.
SUM_UP_EVERY = 31
# Fewer rows than this are read more quickly than a row of all buckets, and take less space.
ENOUGH_TO_SUM_UP = 16
_PACKED = struct.Struct(f"<{BUCKETS}Q")
SCOPES = sa.select(counters.c.scope).where(counters.c.scope > parameter("after")).order_by(counters.c.scope).limit(1)
# There are fewer steps than this: each is made of a fixed set of words.
_ALL_STEPS = 100_000


def add(statements: Statements, tallies: Sequence[tuple[str | None, Tally]]) -> set[tuple[str, str]]:
    """Add what a batch of commands counted, at once and in a fixed order, so that two writers cannot deadlock. Returns
    the scope and name of each histogram that got a value."""
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    values: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for project, tally in tallies:
        for scope in scopes_of(project):
            for (name, key), by in tally.counts.items():
                counts[scope, name, key] += by
            for name, value in tally.samples:
                bounded = within_bounds(value)
                values[scope, name, bucket_of(bounded)].append(bounded)
    statements.run_all(
        _ADD_COUNT,
        [{"scope": scope, "name": name, "key": key, "value": by} for (scope, name, key), by in sorted(counts.items())],
    )
    statements.run_all(
        _ADD_VALUES,
        [
            {
                "scope": scope,
                "name": name,
                "bucket": bucket,
                "count": len(these),
                "total": sum(these),
                "least": min(these),
                "most": max(these),
            }
            for (scope, name, bucket), these in sorted(values.items())
        ],
    )
    return {(scope, name) for scope, name, _ in values}


def sum_up(statements: Statements, which: Iterable[tuple[str, str]]) -> None:
    """Move the values of these histograms from the rows of single buckets into the row of all, where there are many."""
    for scope, name in sorted(which):
        key = {"scope": scope, "name": name}
        count = statements.row(_HOW_MANY, key)
        if count is None or count[0] < ENOUGH_TO_SUM_UP:
            continue
        try:
            stored = statements.row(_SUM, key)
            spread = _unpacked(*stored[1:]) if stored else Histogram()
            _add_rows({name: spread}, statements.rows(_ADDED_TO_ONE, key))
        except (ValueError, IndexError) as error:
            # `tandem audit verify` reports it. A damaged histogram must not stop the reviews.
            log.warning("histogram_damaged", scope=scope, name=name, error=str(error))
            continue
        statements.run(_STORE_SUM, sum_row(scope, name, spread))
        statements.run(_FORGET, key)


def sum_row(scope: str, name: str, spread: Histogram) -> Parameters:
    return {
        "scope": scope,
        "name": name,
        "total": spread.total,
        "least": spread.least,
        "most": spread.most,
        "buckets": _PACKED.pack(*spread.buckets),
    }


def _unpacked(total: int, least: int, most: int, packed: bytes) -> Histogram:
    if len(packed) != _PACKED.size:
        raise ValueError(f"a histogram of {len(packed)} bytes")
    buckets = list(_PACKED.unpack(packed))
    return Histogram(count=sum(buckets), total=total, least=least, most=most, buckets=buckets)


def _add_rows(spreads: dict[str, Histogram], rows: Iterable[Values]) -> None:
    for name, bucket, count, total, least, most in rows:
        spreads[name].add_bucket(bucket, count=count, total=total, least=least, most=most)


def read_totals(statements: Statements, scope: str, *, most: int) -> Totals:
    """Read at most `most` of each kind of count: the number of reviewers and pairs is not bounded."""
    totals = Totals()
    for name, key, value in statements.rows(BOUNDED_COUNTS, {"scope": scope}):
        totals.count(name, key, value)
    for what in _UNBOUNDED:
        for key, value in statements.rows(COUNTS, {"scope": scope, "name": what, "most": most}):
            totals.count(what, key, value)
    for name, *sums in statements.rows(SUMS, {"scope": scope}):
        totals.spreads[name] = _unpacked(*sums)
    _add_rows(totals.spreads, statements.rows(ADDED, {"scope": scope}))
    return totals


def read_counts(statements: Statements, scope: str, what: Counted, *, most: int) -> dict[str, int]:
    """Read the counts of one kind: those stored for themselves and those that follow from the steps."""
    totals = Totals()
    for name, limit in ((what, most), (Counted.STEP, _ALL_STEPS)):
        for key, value in statements.rows(COUNTS, {"scope": scope, "name": name, "most": limit}):
            totals.count(name, key, value)
    return {key: value for (name, key), value in totals.counts.items() if name == what}
