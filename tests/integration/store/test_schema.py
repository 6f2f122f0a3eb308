"""A database file counts as ours only if it holds what our migrations make."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from gsd_review_broker.errors import StartError
from gsd_review_broker.store import migrations, schema


class SwitchedConnection(sqlite3.Connection):
    """Newer Pythons can switch triggers and views off for a connection."""

    switched: dict[int, bool]

    def setconfig(self, option: int, enable: bool = True) -> None:
        self.switched = {**getattr(self, "switched", {}), option: enable}


@pytest.mark.parametrize("factory", [sqlite3.Connection, SwitchedConnection])
def test_a_file_is_opened_with_its_own_code_switched_off(factory: type[sqlite3.Connection]) -> None:
    with contextlib.closing(sqlite3.connect(":memory:", factory=factory)) as connection:
        schema.harden(connection)
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
        if isinstance(connection, SwitchedConnection):
            # SQLite's numbers for: defensive, enable trigger, enable view.
            assert connection.switched == {1010: True, 1003: False, 1015: False}


@pytest.mark.parametrize(
    ("statement", "altered"),
    [
        ("CREATE TRIGGER helpful AFTER INSERT ON reviews BEGIN SELECT 1; END", "trigger helpful"),
        ("CREATE VIEW verdicts AS SELECT 1", "view verdicts"),
        ("CREATE INDEX quick ON reviews (status)", "index quick"),
        ("ALTER TABLE reviews ADD COLUMN extra TEXT", "table reviews"),
    ],
)
def test_a_file_with_more_than_we_made_is_refused(statement: str, altered: str) -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrations.upgrade(connection)
        schema.refuse_altered(connection, schema.HEAD, "x.sqlite3")
        connection.execute(statement)
        with pytest.raises(StartError, match=altered):
            schema.refuse_altered(connection, schema.HEAD, "x.sqlite3")


def test_in_a_version_without_a_list_triggers_are_still_refused() -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrations.upgrade(connection)
        connection.execute("CREATE INDEX quick ON reviews (status)")
        schema.refuse_altered(connection, "0000", "x.sqlite3")
        connection.execute("CREATE TRIGGER helpful AFTER INSERT ON reviews BEGIN SELECT 1; END")
        with pytest.raises(StartError, match="trigger helpful is added"):
            schema.refuse_altered(connection, "0000", "x.sqlite3")


def test_a_new_database_is_made_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / f"{schema.HEAD}.sql"
    script.write_text(f"CREATE TABLE reviews (id TEXT){schema.STATEMENT_END}INSERT INTO nothing VALUES (1)")
    monkeypatch.setattr(schema, "SCRIPTS", tmp_path)
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrations.upgrade(connection)
        assert schema.objects(connection) == {}


def test_only_versions_that_our_migrations_made_are_known() -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrations.upgrade(connection)
        (newest,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert schema.is_known(newest)
    assert not schema.is_known("9999")
