"""What has changed in a database since a copy of it was made, and how a copy follows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import sqlalchemy as sa

from gsd_review_broker.store.statements import Parameters, Statements, Upsert, Values, parameter
from gsd_review_broker.store.tables import counter_patches, gate_overrides, messages, metadata

TABLES = metadata.sorted_tables
# Tables whose rows the database numbers; a number is never used twice, even if its row is in an archive.
NUMBERED = (messages, counter_patches, gate_overrides)


@dataclass(frozen=True, slots=True)
class TableChanges:
    table: sa.Table
    # The keys of rows that are no longer there.
    gone: list[Values] = field(default_factory=list[Values])
    # Whole rows. Changed ones come before new ones: a new row may take a name that a changed one has given up.
    changed: list[Values] = field(default_factory=list[Values])
    new: list[Values] = field(default_factory=list[Values])


@dataclass(frozen=True, slots=True)
class Changes:
    # Parents before children.
    tables: list[TableChanges]
    # The last number that was given in each of the tables NUMBERED; none if there was none yet.
    numbers: dict[str, int]

    @property
    def size(self) -> int:
        """How many rows."""
        return sum(len(one.gone) + len(one.changed) + len(one.new) for one in self.tables)


class DifferentError(Exception):
    """A row was stored, and reads back as another one; or it was deleted, and is there."""


def _has_key(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(*(column == parameter(f"key_{column.name}") for column in table.primary_key))


_STORE = {table: Upsert(table, lambda new: {column.name: column for column in new}) for table in TABLES}
_DELETE = {table: sa.delete(table).where(_has_key(table)) for table in TABLES}
ROW = {table: sa.select(table).where(_has_key(table)) for table in TABLES}
KEYS = {table: sa.select(*table.primary_key) for table in TABLES}
COUNT = {table: sa.select(sa.func.count()).select_from(table) for table in TABLES}


def key_of(table: sa.Table, row: Values) -> Values:
    return tuple(row[number] for number, column in enumerate(table.columns) if column.primary_key)


def by_key(table: sa.Table, key: Values) -> Parameters:
    return {f"key_{column.name}": value for column, value in zip(table.primary_key, key, strict=True)}


def typed(table: sa.Table, rows: Iterable[Values]) -> Iterator[Values]:
    """SQLite stores a truth as 0 or 1; PostgreSQL wants a truth."""
    truths = {number for number, column in enumerate(table.columns) if isinstance(column.type, sa.Boolean)}
    if not truths:
        return iter(rows)
    return (tuple(bool(value) if number in truths else value for number, value in enumerate(row)) for row in rows)


def follow(copy: Statements, changes: Changes) -> None:
    """Make the changes. The numbers are the caller's, since each database keeps its own."""
    for one in reversed(changes.tables):
        copy.run_all(_DELETE[one.table], [by_key(one.table, key) for key in one.gone])
    for one in changes.tables:
        names = [column.name for column in one.table.columns]
        rows = [dict(zip(names, row, strict=True)) for row in (*one.changed, *one.new)]
        copy.run_all(_STORE[one.table], rows)


def compare(copy: Statements, changes: Changes) -> None:
    """Read every row again. Raises DifferentError."""
    for one in changes.tables:
        expected: dict[Values, Values | None] = dict.fromkeys(one.gone)
        expected |= {key_of(one.table, row): row for row in (*one.changed, *one.new)}
        for key, row in expected.items():
            if copy.row(ROW[one.table], by_key(one.table, key)) != row:
                raise DifferentError(one.table.name)
