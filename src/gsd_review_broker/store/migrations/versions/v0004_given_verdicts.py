"""An automatic rejection is not a verdict that somebody gave: what older versions counted as one is counted again.

The tables stay as they are. A database without automatic rejections is left alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_EVERYTHING = ""
_EXACT, _STEPS, _LARGEST = 32, 16, (1 << 36) - 1


def upgrade() -> None:
    connection = op.get_bind()
    rejected = sa.text("SELECT DISTINCT review_id FROM events WHERE event_type = 'review_auto_rejected'")
    review_ids = [row[0] for row in connection.execute(rejected)]
    if not review_ids:
        return
    for review_id in review_ids:
        _name_verdicts(connection, review_id)
    if connection.execute(sa.text("SELECT 1 FROM audit_gaps LIMIT 1")).first() is None:
        # Reviews that were moved to an archive are counted too, and their events are not here to count them again.
        _count_last_verdicts(connection)
        _measure_times(connection)


def _name_verdicts(connection: sa.Connection, review_id: str) -> None:
    """The first and the last verdict that somebody gave, if there is one."""
    given = sa.text(
        "SELECT timestamp, metadata FROM events WHERE review_id = :id AND event_type = 'verdict_submitted' ORDER BY id"
    )
    events = connection.execute(given, {"id": review_id}).all()
    values = {
        "id": review_id,
        "first": events[0][0] if events else None,
        "last": _verdict_in(events[-1][1]) if events else None,
    }
    connection.execute(
        sa.text("UPDATE reviews SET first_verdict_at = :first, last_verdict = :last WHERE id = :id"), values
    )


def _verdict_in(metadata: str) -> str:
    import json  # noqa: PLC0415 - few databases need it

    return json.loads(metadata)["verdict"]


def _count_last_verdicts(connection: sa.Connection) -> None:
    counted = Counter[tuple[str, str]]()
    for scope, name, key, value in connection.execute(sa.text("SELECT scope, name, key, value FROM counters")):
        for verdict, times in _last_verdicts_in(name, key):
            counted[scope, verdict] += value * times
    reviews = sa.text("SELECT project, last_verdict FROM reviews WHERE last_verdict IS NOT NULL")
    expected = Counter[tuple[str, str]]()
    for project, verdict in connection.execute(reviews):
        expected.update((scope, verdict) for scope in _scopes_of(project))
    for scope, verdict in counted.keys() | expected.keys():
        missing = expected[scope, verdict] - counted[scope, verdict]
        if missing:
            _add(connection, scope, verdict, missing)


def _last_verdicts_in(name: str, key: str) -> Iterator[tuple[str, int]]:
    """A verdict's step names the verdict, and the one before it."""
    if name == "last_verdict":
        yield key, 1
    elif name == "step" and key.startswith("verdict_submitted:"):
        *_, verdict, previous = key.split(":")
        yield verdict, 1
        if previous:
            yield previous, -1


def _add(connection: sa.Connection, scope: str, verdict: str, value: int) -> None:
    row = {"scope": scope, "name": "last_verdict", "key": verdict, "value": value}
    where = "WHERE scope = :scope AND name = :name AND key = :key"
    if connection.execute(sa.text(f"UPDATE counters SET value = value + :value {where}"), row).rowcount == 0:  # noqa: S608 - a constant
        connection.execute(sa.text("INSERT INTO counters VALUES (:scope, :name, :key, :value)"), row)


@dataclass(slots=True)
class _Bucket:
    count: int = 0
    total: int = 0
    least: int = _LARGEST
    most: int = 0

    def add(self, value: int) -> None:
        self.count += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)


def _measure_times(connection: sa.Connection) -> None:
    """From the proposal to the first verdict."""
    buckets: dict[tuple[str, int], _Bucket] = {}
    reviews = sa.text("SELECT project, created_at, first_verdict_at FROM reviews WHERE first_verdict_at IS NOT NULL")
    for project, created_at, first_verdict_at in connection.execute(reviews):
        value = min(max(first_verdict_at - created_at, 0), _LARGEST)
        for scope in _scopes_of(project):
            buckets.setdefault((scope, _bucket_of(value)), _Bucket()).add(value)
    connection.execute(sa.text("DELETE FROM histogram_buckets WHERE name = 'time_to_verdict'"))
    rows = [
        {"scope": scope, "bucket": bucket, "count": kept.count, "total": kept.total, "least": kept.least,
         "most": kept.most}
        for (scope, bucket), kept in buckets.items()
    ]  # fmt: skip
    if rows:
        connection.execute(
            sa.text(
                "INSERT INTO histogram_buckets VALUES "
                "(:scope, 'time_to_verdict', :bucket, :count, :total, :least, :most)"
            ),
            rows,
        )


def _bucket_of(value: int) -> int:
    if value < _EXACT:
        return value
    shift = value.bit_length() - _EXACT.bit_length() + 1
    return _EXACT + (shift - 1) * _STEPS + (value >> shift) - _STEPS


def _scopes_of(project: str | None) -> tuple[str, ...]:
    return (_EVERYTHING, project) if project else (_EVERYTHING,)
