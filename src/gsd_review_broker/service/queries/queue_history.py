"""How many reviews were waiting for a reviewer over time: computed backwards from the present number and the newest
events.
"""

from dataclasses import dataclass

from gsd_review_broker.domain.model import Milliseconds, Status
from gsd_review_broker.ports.store import EVENT_SUMMARY, Reader
from gsd_review_broker.service.queries.reviews import is_own_event

_LOOKED_AT = 2_000
_MOST_POINTS = 200
_OLD, _NEW = EVENT_SUMMARY.index("old_status"), EVENT_SUMMARY.index("new_status")
_TIMESTAMP = EVENT_SUMMARY.index("timestamp")


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """(moment, pending from then on), oldest first; the last one is now."""

    points: tuple[tuple[Milliseconds, int], ...]


def queue_history(reader: Reader, now: Milliseconds, *, only_own: bool = False) -> QueueHistory:
    pending = sum(reader.pending_by_priority().values())
    points: list[tuple[Milliseconds, int]] = [(now, pending)]
    for row in reader.events_before(review_id=None, before=None, limit=_LOOKED_AT):
        if only_own and not is_own_event(reader, row):
            continue
        change = (row[_NEW] == Status.PENDING) - (row[_OLD] == Status.PENDING)
        if change:
            points.append((row[_TIMESTAMP], pending))
            pending = max(0, pending - change)
    points.reverse()
    return QueueHistory(tuple(_thinned(points)))


def _thinned(points: list[tuple[Milliseconds, int]]) -> list[tuple[Milliseconds, int]]:
    if len(points) <= _MOST_POINTS:
        return points
    step = len(points) / _MOST_POINTS
    kept = [points[int(index * step)] for index in range(_MOST_POINTS)]
    return [*kept, points[-1]]
