"""The database's clock: brokers on several machines agree on the time without agreeing on a clock."""

import time

import sqlalchemy as sa

from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.store.statements import Statements

_NOW = sa.text("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")


class DatabaseClock:
    """Each command reads it. Between two commands this machine's steady clock carries it on."""

    def __init__(self) -> None:
        self._ahead = time.time_ns() // 1_000_000 - self.steady()

    def now(self) -> Milliseconds:
        return Milliseconds(self.steady() + self._ahead)

    def steady(self) -> Milliseconds:
        return Milliseconds(time.monotonic_ns() // 1_000_000)

    def read(self, statements: Statements) -> Milliseconds:
        row = statements.row(_NOW, {})
        assert row is not None  # noqa: S101 - the answer is always one row
        self._ahead = row[0] - self.steady()
        return Milliseconds(row[0])
