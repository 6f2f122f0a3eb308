"""Runs the store's statements on PostgreSQL, and translates its errors into our codes."""

import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy import exc

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.store.postgres.engine import Dialect
from gsd_review_broker.store.statements import Compiled, Parameters, Statement, Statements, Upsert, Values, compiled_for

_DIALECT = Dialect()
# How many rows of a long answer are fetched at a time.
_FETCHED = 500


@cache
def _compiled(statement: Statement) -> Compiled:
    return compiled_for(_DIALECT, statement.for_postgresql() if isinstance(statement, Upsert) else statement)


class PostgresStatements(Statements):
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        # Has the server answered? Until then, nothing of the transaction happened.
        self.answered = False

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Values]:
        sql = _compiled(statement)
        result = self._connection.exec_driver_sql(sql.text, sql.values(parameters))
        self.answered = True
        return [tuple(row) for row in result]

    def run(self, statement: Statement, parameters: Parameters) -> None:
        sql = _compiled(statement)
        self._connection.exec_driver_sql(sql.text, sql.values(parameters))
        self.answered = True

    def run_all(self, statement: Statement, parameters: Sequence[Parameters]) -> None:
        if parameters:
            sql = _compiled(statement)
            many: list[Any] = [sql.values(one) for one in parameters]
            self._connection.exec_driver_sql(sql.text, many)
            self.answered = True

    def stream(self, statement: sa.Executable) -> Iterator[Values]:
        """Row by row, however many there are."""
        with self._connection.execute(statement, execution_options={"yield_per": _FETCHED}) as result:
            for row in result:
                yield tuple(row)


log = structlog.get_logger()

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
# Beginnings of SQLSTATEs: lost connections, too many of them or a full disk, start and stop, a standby that only reads.
_UNAVAILABLE = ("08", "53", "57P", "58", "25006")
_SAME_KEY = "23505"
# Serialization failures, deadlocks, lock timeouts.
_BUSY = ("40", "55P03")


def is_lost(error: BaseException) -> bool:
    """Is the connection gone, or was there none?"""
    if isinstance(error, exc.DBAPIError):
        return error.connection_invalidated or _state_of(error).startswith(_UNAVAILABLE)
    return isinstance(error, (OSError, TimeoutError))


def is_same_key(error: BaseException) -> bool:
    """Has another command stored a row with the same unique key meanwhile?"""
    return isinstance(error, exc.DBAPIError) and _state_of(error) == _SAME_KEY


def _state_of(error: exc.DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def translate(error: BaseException) -> BaseException:
    """Other errors than those of the database are returned unchanged."""
    if is_lost(error):
        return unavailable(reason_of(error))
    is_busy = isinstance(error, exc.DBAPIError) and _state_of(error).startswith(_BUSY)
    if is_busy or isinstance(error, exc.TimeoutError):
        return too_many_waiting()
    return error


def too_many_waiting() -> BrokerError:
    return BrokerError(
        Code.BUSY,
        "too many commands are waiting for the database",
        "Nothing was stored; call again in a moment.",
    )


def reason_of(error: BaseException) -> str:
    """Return the reason in one line, without SQLAlchemy's own remarks."""
    origin = getattr(error, "orig", None) or error
    cause = origin.__cause__ or origin
    return " ".join(str(cause).split()) or type(cause).__name__


def unavailable(reason: str) -> BrokerError:
    return BrokerError(
        Code.UNAVAILABLE,
        f"the database cannot be reached: {reason}",
        "Nothing was stored. The broker connects again by itself; call again in a moment.",
    )


def not_known(reason: str) -> BrokerError:
    """Make the error for a connection that was lost in mid-commit, when the server cannot be asked since."""
    return BrokerError(
        Code.UNAVAILABLE,
        f"the database cannot be reached, and it is not known whether this was stored: {reason}",
        "Look at the review before you call again; a call that is repeated with its key is done once.",
    )


class Outage:
    """While the server cannot be reached, calls are refused at once, and it is tried at growing intervals."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._until = 0.0
        self._reason: str | None = None

    @property
    def is_over(self) -> bool:
        return self._reason is None

    def refuse(self) -> None:
        if self._reason is not None and time.monotonic() < self._until:
            raise unavailable(self._reason)

    def begin(self, error: BaseException) -> None:
        """Several calls notice the same failure; only one of them makes the pause longer."""
        now = time.monotonic()
        if self._reason is None:
            log.warning("database_unavailable", reason=reason_of(error))
        if now >= self._until:
            self._pause = min(max(self._pause * 2, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            self._until = now + self._pause
        self._reason = reason_of(error)

    def end(self) -> None:
        if self._reason is not None:
            log.info("database_available")
        self._pause, self._until, self._reason = 0.0, 0.0, None
