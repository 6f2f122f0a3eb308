"""Counters and histograms. Each change adds to them in its transaction; they are read whole by key."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from gsd_review_broker.domain.histogram import Histogram, bucket_of, within_bounds
from gsd_review_broker.domain.tally import Counted, Tally, Totals, scopes_of
from gsd_review_broker.store.statements import Excluded, Statements, Upsert, Values, parameter
from gsd_review_broker.store.tables import counters, histogram_buckets

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
BUCKETS = (
    sa.select(histogram_buckets.c.name, histogram_buckets.c.bucket, *(histogram_buckets.c[name] for name in _FIELDS))
    .where(histogram_buckets.c.scope == parameter("scope"))
    .order_by(histogram_buckets.c.name, histogram_buckets.c.bucket)
)
SCOPES = sa.select(counters.c.scope).where(counters.c.scope > parameter("after")).order_by(counters.c.scope).limit(1)
# There are fewer steps than this: each is made of a fixed set of words.
_ALL_STEPS = 100_000


def add(statements: Statements, tallies: Sequence[tuple[str | None, Tally]]) -> None:
    """Add what a batch of commands counted, at once and in a fixed order, so that two writers cannot deadlock."""
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


def read_totals(statements: Statements, scope: str, *, most: int) -> Totals:
    """At most `most` of each kind of count: the number of reviewers and pairs is not bounded."""
    totals = Totals()
    for what in Counted:
        limit = _ALL_STEPS if what is Counted.STEP else most
        for key, value in statements.rows(COUNTS, {"scope": scope, "name": what, "most": limit}):
            totals.count(what, key, value)
    for name, rows in groupby(statements.rows(BUCKETS, {"scope": scope}), key=itemgetter(0)):
        totals.spreads[name] = _spread(rows)
    return totals


def _spread(rows: Iterable[Values]) -> Histogram:
    """Column by column: there are a thousand buckets once there are enough reviews, and a call for each takes longer
    than reading them."""
    _, buckets, counts, values, leasts, mosts = zip(*rows, strict=True)
    return Histogram(
        count=sum(counts),
        total=sum(values),
        least=min(leasts),
        most=max(mosts),
        buckets=dict(zip(buckets, counts, strict=True)),
    )


def read_counts(statements: Statements, scope: str, what: Counted, *, most: int) -> dict[str, int]:
    """The counts of one kind: those stored for themselves and those that follow from the steps."""
    totals = Totals()
    for name, limit in ((what, most), (Counted.STEP, _ALL_STEPS)):
        for key, value in statements.rows(COUNTS, {"scope": scope, "name": name, "most": limit}):
            totals.count(name, key, value)
    return {key: value for (name, key), value in totals.counts.items() if name == what}
