"""Which callers were active lately. A hint in memory: a restart forgets it, and only a reservation is lost."""

from collections import OrderedDict

from gsd_review_broker.domain.identity import identity_key
from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.pool import ReviewerState
from gsd_review_broker.ports.world import Clock
from gsd_review_broker.service.access import Access

ALIVE_MILLISECONDS = 60_000
_MOST_REMEMBERED = 10_000


class Liveness:
    def __init__(self, clock: Clock, access: Access) -> None:
        self._clock = clock
        self._access = access
        self._seen: OrderedDict[str, Milliseconds] = OrderedDict()

    def heard(self, identity: Identity) -> None:
        key = identity_key(identity)
        self._seen[key] = self._clock.steady()
        self._seen.move_to_end(key)
        if len(self._seen) > _MOST_REMEMBERED:
            self._seen.popitem(last=False)

    def is_alive(self, identity: Identity | None) -> bool:
        standing = self._access.standing(identity)
        if standing is not None:
            # For the pool's reviewers the pool knows: the process is running and may claim again.
            return standing is ReviewerState.ACTIVE
        seen = self._seen.get(identity_key(identity)) if identity else None
        return seen is not None and self._clock.steady() - seen <= ALIVE_MILLISECONDS
