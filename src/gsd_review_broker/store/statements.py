"""Runs SQLAlchemy Core statements.

Each is compiled to SQL once and then passed to the driver directly. SQLAlchemy's own work for each execution costs
several times what SQLite needs for the statement itself.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.compiler import SQLCompiler

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

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

    def for_sqlite(self) -> sa.Insert:
        return self._on_conflict(sqlite.insert(self.table))

    def for_postgresql(self) -> sa.Insert:
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - costs a start on SQLite its time to import

        return self._on_conflict(postgresql.insert(self.table))

    def _on_conflict(self, insert: "sqlite.Insert | postgresql.Insert") -> sa.Insert:
        keys = [column.name for column in self.table.primary_key.columns]
        upsert = insert.on_conflict_do_update(index_elements=keys, set_=self.changes(insert.excluded), where=self.where)
        return upsert if self.where is None else upsert.returning(self.table.c[keys[0]])


Statement = sa.Executable | Upsert


class Statements(Protocol):
    """One connection's present transaction. Statements take all values by name; rows are plain tuples."""

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Values]: ...

    def row(self, statement: Statement, parameters: Parameters) -> Values | None:
        # Fetch everything, so that the cursor is closed: an open one would hold its snapshot.
        rows = self.rows(statement, parameters)
        return rows[0] if rows else None

    def run(self, statement: Statement, parameters: Parameters) -> None: ...

    def run_all(self, statement: Statement, parameters: Sequence[Parameters]) -> None: ...


def parameter(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name)


def parameters_but_id(table: sa.Table) -> dict[sa.Column[Any], sa.BindParameter[Any]]:
    """Return a parameter for each column but the id, which does not change, or which the database gives."""
    return {column: parameter(column.name) for column in table.c if column.name != "id"}


def insert_sql(table: sa.Table) -> str:
    """Return SQLite's statement that inserts a whole row, with its columns in the table's order."""
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    places = ", ".join("?" for _ in table.columns)
    return f"INSERT INTO {table.name} ({names}) VALUES ({places})"  # noqa: S608 - our own tables and columns


class Unindexed(sa.ColumnElement[str]):
    """A column that SQLite searches without its index.

    PostgreSQL chooses an index by its statistics, which it has for bare columns only, and gets the bare column.
    """

    inherit_cache = True

    def __init__(self, column: sa.Column[str]) -> None:
        self.column = column
        self.type = column.type


@compiles(Unindexed)
def _bare(element: Unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.column, **options)


@compiles(Unindexed, "sqlite")
def _unindexed(element: Unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return f"({compiler.process(element.column, **options)} || '')"


class Compiled(NamedTuple):
    """A statement as its driver takes it, with the names of its values in their order.

    By name, SQLite would search all names before each that it is given: a third of the time of inserting a review.
    """

    text: str
    names: tuple[str, ...]
    # What SQLAlchemy adds itself (OFFSET 0), so that callers need not pass it.
    constants: Parameters

    def values(self, parameters: Parameters) -> Values:
        known = {**self.constants, **parameters} if self.constants else parameters
        return tuple([known[name] for name in self.names])


def compiled_for(dialect: sa.Dialect, core: sa.Executable) -> Compiled:
    assert isinstance(core, sa.ClauseElement)  # noqa: S101 - every Core statement is one
    compiled = core.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)  # noqa: S101 - what a Core statement compiles to
    constants = {name: value for name, value in compiled.params.items() if value is not None}
    return Compiled(str(compiled), tuple(compiled.positiontup or ()), constants)


_DIALECT = sqlite.dialect(paramstyle="qmark")


# Statements live as long as the modules that define them, or in a bounded cache of shapes.
@cache
def _compiled(statement: Statement) -> Compiled:
    return compiled_for(_DIALECT, statement.for_sqlite() if isinstance(statement, Upsert) else statement)


def sql_of(statement: Statement) -> str:
    return _compiled(statement).text


class SqliteStatements(Statements):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Values]:
        sql = _compiled(statement)
        return self._connection.execute(sql.text, sql.values(parameters)).fetchall()

    def run(self, statement: Statement, parameters: Parameters) -> None:
        sql = _compiled(statement)
        self._connection.execute(sql.text, sql.values(parameters))

    def run_all(self, statement: Statement, parameters: Sequence[Parameters]) -> None:
        if parameters:
            sql = _compiled(statement)
            self._connection.executemany(sql.text, map(sql.values, parameters))
