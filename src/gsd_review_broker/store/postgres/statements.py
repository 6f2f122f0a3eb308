"""Runs the store's statements on PostgreSQL. Each is compiled once, as for SQLite (store/statements.py)."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler

from gsd_review_broker.store.postgres.engine import Dialect
from gsd_review_broker.store.statements import OFF_INDEX, Parameters, Statement, Upsert, Values

_DIALECT = Dialect()
# How many rows of a long answer are fetched at a time.
_FETCHED = 500


class _Compiled(NamedTuple):
    text: str
    # The parameters in their order; those that SQLAlchemy adds itself (LIMIT 1) have a value.
    names: tuple[str, ...]
    constants: Parameters

    def values(self, parameters: Parameters) -> Values:
        return tuple(parameters[name] if name in parameters else self.constants[name] for name in self.names)


_SQL: dict[Statement, _Compiled] = {}


def sql_of(statement: Statement) -> _Compiled:
    known = _SQL.get(statement)
    if known is None:
        core = statement.for_postgresql() if isinstance(statement, Upsert) else statement
        assert isinstance(core, sa.ClauseElement)  # noqa: S101 - every Core statement is one
        compiled = core.compile(dialect=_DIALECT)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101 - what a Core statement compiles to
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        text = str(compiled).replace(OFF_INDEX, "")
        known = _SQL[statement] = _Compiled(text, tuple(compiled.positiontup or ()), constants)
    return known


class PostgresStatements:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        # Has the server answered? Until then, nothing of the transaction happened.
        self.answered = False

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Values]:
        sql = sql_of(statement)
        result = self._connection.exec_driver_sql(sql.text, sql.values(parameters))
        self.answered = True
        return [tuple(row) for row in result]

    def row(self, statement: Statement, parameters: Parameters) -> Values | None:
        rows = self.rows(statement, parameters)
        return rows[0] if rows else None

    def run(self, statement: Statement, parameters: Parameters) -> None:
        sql = sql_of(statement)
        self._connection.exec_driver_sql(sql.text, sql.values(parameters))
        self.answered = True

    def run_all(self, statement: Statement, parameters: Sequence[Parameters]) -> None:
        if parameters:
            sql = sql_of(statement)
            many: list[Any] = [sql.values(one) for one in parameters]
            self._connection.exec_driver_sql(sql.text, many)
            self.answered = True

    def stream(self, statement: sa.Executable) -> Iterator[Values]:
        """Row by row, however many there are."""
        with self._connection.execute(statement, execution_options={"yield_per": _FETCHED}) as result:
            for row in result:
                yield tuple(row)
