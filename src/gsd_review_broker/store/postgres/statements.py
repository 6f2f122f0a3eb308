"""Runs the store's statements on PostgreSQL. Each is compiled once, as for SQLite (store/statements.py)."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from gsd_review_broker.store.postgres.engine import Dialect
from gsd_review_broker.store.statements import Compiled, Parameters, Statement, Upsert, Values, compiled_for

_DIALECT = Dialect()
# How many rows of a long answer are fetched at a time.
_FETCHED = 500


@cache
def _compiled(statement: Statement) -> Compiled:
    return compiled_for(_DIALECT, statement.for_postgresql() if isinstance(statement, Upsert) else statement)


class PostgresStatements:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        # Has the server answered? Until then, nothing of the transaction happened.
        self.answered = False

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Values]:
        sql = _compiled(statement)
        result = self._connection.exec_driver_sql(sql.text, sql.values(parameters))
        self.answered = True
        return [tuple(row) for row in result]

    def row(self, statement: Statement, parameters: Parameters) -> Values | None:
        rows = self.rows(statement, parameters)
        return rows[0] if rows else None

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
