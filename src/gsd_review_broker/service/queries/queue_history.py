"""How many reviews were waiting for a reviewer over time: computed backwards from the present number and the newest
events.
"""

from dataclasses import dataclass

from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.domain.words import Status
from gsd_review_broker.ports.reader import Reader
from gsd_review_broker.service.queries.reviews import is_own_event

_LOOKED_AT = 2_000
_MOST_POINTS = 200


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """(moment, pending from then on), oldest first; the last one is now."""

    points: tuple[tuple[Milliseconds, int], ...]


def queue_history(reader: Reader, now: Milliseconds, *, only_own: bool = False) -> QueueHistory:
    pending = sum(reader.pending_by_priority().values())
    points: list[tuple[Milliseconds, int]] = [(now, pending)]
    for event in reader.events_before(review_id=None, before=None, limit=_LOOKED_AT):
        if only_own and not is_own_event(reader, event):
            continue
        change = (event.new_status is Status.PENDING) - (event.old_status is Status.PENDING)
        if change:
            points.append((event.timestamp, pending))
            pending = max(0, pending - change)
    points.reverse()
    return QueueHistory(tuple(_thinned(points)))


def _thinned(points: list[tuple[Milliseconds, int]]) -> list[tuple[Milliseconds, int]]:
    if len(points) <= _MOST_POINTS:
        return points
    step = len(points) / _MOST_POINTS
    kept = [points[int(index * step)] for index in range(_MOST_POINTS)]
    return [*kept, points[-1]]
