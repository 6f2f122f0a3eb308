"""Counters and histograms: added to in the transaction of each change, read whole by key."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from gsd_review_broker.domain.histogram import Histogram
from gsd_review_broker.domain.tally import Counted, Tally, Totals, scopes_of
from gsd_review_broker.store.statements import Statements, Values, parameter
from gsd_review_broker.store.tables import counters, histograms

_NEW_COUNT = insert(counters)
# PostgreSQL compiles ON CONFLICT the same way.
_ADD_COUNT = _NEW_COUNT.on_conflict_do_update(
    index_elements=["scope", "name", "key"], set_={"value": counters.c.value + _NEW_COUNT.excluded.value}
)
_FIELDS = ("count", "total", "least", "most", "buckets")
_HISTOGRAM = (
    sa.select(*(histograms.c[name] for name in _FIELDS))
    .where(histograms.c.scope == parameter("scope"), histograms.c.name == parameter("name"))
    .with_for_update()
)
_NEW_HISTOGRAM = insert(histograms)
_SAVE_HISTOGRAM = _NEW_HISTOGRAM.on_conflict_do_update(
    index_elements=["scope", "name"], set_={name: _NEW_HISTOGRAM.excluded[name] for name in _FIELDS}
)
COUNTS = (
    sa.select(counters.c.key, counters.c.value)
    .where(counters.c.scope == parameter("scope"), counters.c.name == parameter("name"))
    .limit(parameter("most"))
)
HISTOGRAMS = sa.select(histograms.c.name, *(histograms.c[name] for name in _FIELDS)).where(
    histograms.c.scope == parameter("scope")
)
# Two kilobytes each.
_MOST_AT_HAND = 1_000
SCOPES = sa.select(counters.c.scope).where(counters.c.scope > parameter("after")).order_by(counters.c.scope).limit(1)


class StatisticsRows:
    """What a batch of commands adds, in one go. The histograms are kept at hand: this store is the only writer."""

    def __init__(self) -> None:
        self._spreads: dict[tuple[str, str], Histogram] = {}

    def forget(self) -> None:
        """What was added was rolled back."""
        self._spreads.clear()

    def add(self, statements: Statements, tallies: Sequence[tuple[str | None, Tally]]) -> None:
        counts: dict[tuple[str, str, str], int] = defaultdict(int)
        samples: dict[tuple[str, str], list[int]] = defaultdict(list)
        for project, tally in tallies:
            for scope in scopes_of(project):
                for (name, key), by in tally.counts.items():
                    counts[scope, name, key] += by
                for name, value in tally.samples:
                    samples[scope, name].append(value)
        statements.run_all(
            _ADD_COUNT,
            [
                {"scope": scope, "name": name, "key": key, "value": by}
                for (scope, name, key), by in counts.items()
                if by
            ],
        )
        statements.run_all(_SAVE_HISTOGRAM, [self._row(statements, place, values) for place, values in samples.items()])
        if len(self._spreads) > _MOST_AT_HAND:
            self.forget()

    def _row(self, statements: Statements, place: tuple[str, str], values: list[int]) -> dict[str, Any]:
        where = {"scope": place[0], "name": place[1]}
        spread = self._spreads.get(place)
        if spread is None:
            row = statements.row(_HISTOGRAM, where)
            spread = self._spreads[place] = _histogram(row) if row else Histogram()
        for value in values:
            spread.add(value)
        return where | {field: getattr(spread, field) for field in _FIELDS}


def read_totals(statements: Statements, scope: str, *, most: int) -> Totals:
    """Of each kind of count at most so many: reviewers and pairs may be any number."""
    totals = Totals()
    for what in Counted:
        for key, value in read_counts(statements, scope, what, most=most).items():
            totals.counts[what, key] = value
    for name, *values in statements.rows(HISTOGRAMS, {"scope": scope}):
        totals.spreads[name] = _histogram(tuple(values))
    return totals


def read_counts(statements: Statements, scope: str, what: Counted, *, most: int) -> dict[str, int]:
    return dict(statements.rows(COUNTS, {"scope": scope, "name": what, "most": most}))


def _histogram(values: Values) -> Histogram:
    count, total, least, most, buckets = values
    return Histogram(count=count, total=total, least=least, most=most, buckets=bytearray(buckets))
