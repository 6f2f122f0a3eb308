"""One command's transaction on PostgreSQL."""

from collections.abc import Sequence

from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.ports.store import Watcher
from gsd_review_broker.ports.world import Clock
from gsd_review_broker.store.postgres.clock import DatabaseClock
from gsd_review_broker.store.statements import Statements
from gsd_review_broker.store.writes import SqlTransaction


class PostgresTransaction(SqlTransaction):
    """Its time is read when it is first needed, which is after the review was locked: of two commands on one review,
    the later one has the later time."""

    def __init__(self, statements: Statements, clock: Clock, watchers: Sequence[Watcher]) -> None:
        super().__init__(statements, Milliseconds(0), watchers)
        self._clock = clock
        self._read_at: Milliseconds | None = None

    @property
    def now(self) -> Milliseconds:
        if self._read_at is None:
            clock = self._clock
            self._read_at = clock.read(self._statements) if isinstance(clock, DatabaseClock) else clock.now()
        return self._read_at
