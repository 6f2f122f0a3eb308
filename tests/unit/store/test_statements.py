"""Every statement of the store, and the whole schema, can be said to SQLite and to PostgreSQL."""

import importlib
import itertools
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from gsd_review_broker import store
from gsd_review_broker.domain.tally import Counted, Tally
from gsd_review_broker.domain.text import identity_key
from gsd_review_broker.ports.store import ReviewSummary
from gsd_review_broker.store import reads, tables, writes
from gsd_review_broker.store.rows import REVIEW_FIELDS
from gsd_review_broker.store.statements import Statement, Unindexed, Upsert

SUMMARY = ReviewSummary._fields
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(store.__path__, f"{store.__name__}.")
    if ".migrations" not in found.name
]


def _statements(value: Any, name: str) -> Iterator[tuple[str, Statement]]:
    if isinstance(value, Upsert) or (isinstance(value, sa.Executable) and not isinstance(value, sa.TableClause)):
        yield name, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _statements(one, f"{name}[{key}]")
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _statements(one, f"{name}[{number}]")


def _shapes() -> Iterator[tuple[str, Statement]]:
    """Those that are made for a question's filters, and for the columns that a rule changes."""
    flags = list(itertools.product((False, True), repeat=4))
    for equal, needs_human in itertools.product(((), ("status",), ("project",), ("status", "phase")), (None, True)):
        for claimable, after, live, for_pool in flags:
            yield (
                f"list {equal} {needs_human} {claimable} {after} {live} {for_pool}",
                reads._list_statement(SUMMARY, equal, needs_human, claimable, after, live, for_pool),
            )
    for equal, after in itertools.product(((), ("status",), ("project",)), (False, True)):
        yield f"feed {equal} {after}", reads._feed_statement(equal, after)
    yield "update review", writes._update_review(REVIEW_FIELDS)


STATEMENTS = dict(
    [
        *(
            one
            for module in MODULES
            for name, value in vars(module).items()
            for one in _statements(value, f"{module.__name__.rpartition('store.')[2]}.{name}")
        ),
        *_shapes(),
    ]
)


def test_there_are_statements_to_look_at() -> None:
    assert len([name for name in STATEMENTS if "[" not in name]) > 80
    assert any(isinstance(statement, Upsert) for statement in STATEMENTS.values())


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_compiles_for_both_databases(name: str) -> None:
    statement = STATEMENTS[name]
    own = (statement.for_sqlite(), statement.for_postgresql()) if isinstance(statement, Upsert) else (statement,) * 2
    for dialect, core in zip((sqlite.dialect(), postgresql.dialect()), own, strict=True):
        assert str(core.compile(dialect=dialect))


@pytest.mark.parametrize("table", tables.metadata.sorted_tables, ids=lambda table: table.name)
def test_a_table_can_be_made_in_postgresql_and_takes_what_tools_take(table: sa.Table) -> None:
    tables.prepare_for_postgresql()
    text = str(CreateTable(table).compile(dialect=postgresql.dialect()))
    for index in table.indexes:
        told = str(CreateIndex(index).compile(dialect=postgresql.dialect()))
        assert ("WHERE" in told) == ("where" in index.info)
    # Numbers that tools take have 64 bits.
    assert " INTEGER" not in text
    # Ids are compared by their bytes: a prefix is a range, in any locale.
    columns = [column for column in table.columns if column.name in {"id", "review_id", "parent_id"}]
    ids = [column for column in columns if isinstance(column.type, sa.String) and column.type.length == 32]
    ids += [table.c.key] if table is tables.counters else []
    assert text.count('COLLATE "C"') == len(ids)


@pytest.mark.parametrize("name", ["proposer_key", "author_key", "reserved_key"])
def test_the_compared_spelling_of_any_identity_fits_its_column(name: str) -> None:
    assert len(identity_key("\ufdfa" * 85)) > 1_500
    assert tables.reviews.c[name].type.dialect_impl(postgresql.dialect()).length is None


def test_the_key_of_any_two_names_fits_its_column() -> None:
    tally = Tally()
    tally.count(Counted.PAIR, '"' * 1_051)
    assert tables.counters.c.key.type.dialect_impl(postgresql.dialect()).length is None


def test_a_broker_on_sqlite_does_not_import_the_other_dialect() -> None:
    program = "import sys, gsd_review_broker.store.sqlite_store; print('sqlalchemy.dialects.postgresql' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_an_upsert_changes_the_row_that_has_the_key() -> None:
    made = Upsert(tables.counters, lambda new: {"value": tables.counters.c.value + new["value"]})
    for dialect, statement in ((sqlite.dialect(), made.for_sqlite()), (postgresql.dialect(), made.for_postgresql())):
        text = " ".join(str(statement.compile(dialect=dialect)).split())
        assert "DO UPDATE SET value = (counters.value + excluded.value)" in text


def test_only_sqlite_is_kept_from_the_index_of_a_column() -> None:
    statement = sa.select(tables.reviews.c.id).where(Unindexed(tables.reviews.c.phase) == sa.bindparam("phase"))
    assert "(reviews.phase || '') = " in str(statement.compile(dialect=sqlite.dialect()))
    assert "||" not in str(statement.compile(dialect=postgresql.dialect()))
