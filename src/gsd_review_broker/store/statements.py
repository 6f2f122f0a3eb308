"""Runs SQLAlchemy Core statements.

Each is compiled to SQL once and then passed to the driver directly. SQLAlchemy's own work for each execution costs
several times what SQLite needs for the statement itself.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.compiler import SQLCompiler

Values = tuple[Any, ...]
Parameters = Mapping[str, Any]


Excluded = ReadOnlyColumnCollection[str, sa.ColumnElement[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class Upsert:
    """Insert a row, or change the row with its key. Core has ON CONFLICT only for each dialect separately.

    The changes are expressed with the row that could not be inserted.
    """

    table: sa.Table
    changes: Callable[[Excluded], Mapping[str, Any]]
    # Change only where this holds of the existing row. The key's first column is returned if anything was written.
    where: sa.ColumnElement[bool] | None = None

    def _keys(self) -> list[str]:
        return [column.name for column in self.table.primary_key.columns]

    def for_sqlite(self) -> sa.Insert:
        insert = sqlite.insert(self.table)
        return self._returning(
            insert.on_conflict_do_update(
                index_elements=self._keys(), set_=self.changes(insert.excluded), where=self.where
            )
        )

    def for_postgresql(self) -> sa.Insert:
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - costs a start on SQLite its time to import

        insert = postgresql.insert(self.table)
        return self._returning(
            insert.on_conflict_do_update(
                index_elements=self._keys(), set_=self.changes(insert.excluded), where=self.where
            )
        )

    def _returning(self, insert: sa.Insert) -> sa.Insert:
        return insert if self.where is None else insert.returning(self.table.c[self._keys()[0]])


Statement = sa.Executable | Upsert


class Statements(Protocol):
    """One connection's present transaction. Statements take all values by name; rows are plain tuples."""

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Values]: ...

    def row(self, statement: Statement, parameters: Parameters) -> Values | None: ...

    def run(self, statement: Statement, parameters: Parameters) -> None: ...

    def run_all(self, statement: Statement, parameters: Sequence[Parameters]) -> None: ...


def parameter(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name)


# Keeps SQLite off a column's index. PostgreSQL chooses an index by its statistics, which it has for bare columns only.
OFF_INDEX = " || ''"
_NOTHING: sa.ColumnClause[str] = sa.literal_column("''", sa.String)


def off_index(column: sa.Column[str]) -> sa.ColumnElement[str]:
    return column.concat(_NOTHING)


_DIALECT = sqlite.dialect(paramstyle="named")
# Statements live as long as the modules that define them, or in a bounded cache of shapes.
_SQL: dict[Statement, str] = {}


def sql_of(statement: Statement) -> str:
    text = _SQL.get(statement)
    if text is None:
        core = statement.for_sqlite() if isinstance(statement, Upsert) else statement
        assert isinstance(core, sa.ClauseElement)  # noqa: S101 - every Core statement is one
        compiled = core.compile(dialect=_DIALECT)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101 - what a Core statement compiles to
        text = str(compiled)
        # Numbers that SQLAlchemy adds itself (OFFSET 0) are written into the SQL, so that callers need not pass them.
        for name, value in compiled.params.items():
            if isinstance(value, int):
                text = re.sub(rf":{name}\b", str(value), text)
        _SQL[statement] = text
    return text


class _Positional(NamedTuple):
    text: str
    # The parameters' values in their order. For each name that SQLite is given, it searches all names before it, which
    # takes a third of the time of inserting a review.
    values: Callable[[Parameters], Values]


_POSITIONAL: dict[Statement, _Positional] = {}
_NAMED = re.compile(r":(\w+)")


def _positional(statement: Statement) -> _Positional:
    known = _POSITIONAL.get(statement)
    if known is None:
        text = sql_of(statement)
        known = _POSITIONAL[statement] = _Positional(_NAMED.sub("?", text), _in_order(_NAMED.findall(text)))
    return known


def _in_order(names: list[str]) -> Callable[[Parameters], Values]:
    match names:
        case []:
            return lambda _: ()
        case [name]:
            # With one name, itemgetter returns the bare value.
            return lambda parameters: (parameters[name],)
        case _:
            return itemgetter(*names)


class SqliteStatements:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Values]:
        text, values = _positional(statement)
        return self._connection.execute(text, values(parameters)).fetchall()

    def row(self, statement: Statement, parameters: Parameters) -> Values | None:
        # Fetch everything, so that the cursor is closed: an open one would hold its snapshot.
        rows = self.rows(statement, parameters)
        return rows[0] if rows else None

    def run(self, statement: Statement, parameters: Parameters) -> None:
        text, values = _positional(statement)
        self._connection.execute(text, values(parameters))

    def run_all(self, statement: Statement, parameters: Sequence[Parameters]) -> None:
        if parameters:
            text, values = _positional(statement)
            self._connection.executemany(text, map(values, parameters))
