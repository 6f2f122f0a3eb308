"""The schema, and how a database of an earlier version gets it. A second migration is made on the fly."""

import contextlib
import shutil
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from gsd_review_broker.errors import StartError
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.store import migrations, schema, tables, verification
from tests.contract.schemas import newest_text
from tests.support import postgres
from tests.support.invariants import events_of, problems
from tests.support.local import LocalBroker, local_broker


def test_an_empty_database_is_migrated_to_exactly_the_schema_in_the_code(tmp_path: Path) -> None:
    database = tmp_path / "new.sqlite3"
    with contextlib.closing(sqlite3.connect(database, isolation_level=None, check_same_thread=False)) as connection:
        migrations.upgrade(connection)
    engine = sa.create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, tables.metadata) == []
        stored = {row[0] for row in connection.execute(sa.text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))}
    engine.dispose()
    assert _without_spaces(stored) == _without_spaces(_schema_in_the_code()) | _without_spaces(_ALEMBICS_OWN)


_ALEMBICS_OWN = {
    """CREATE TABLE alembic_version (
        version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"""
}


def _schema_in_the_code() -> set[str]:
    """What the tables' definitions alone make; comparing the text also sees partial indexes."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        tables.metadata.create_all(connection)
        made = {row[0] for row in connection.execute(sa.text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))}
    engine.dispose()
    return made


def _without_spaces(said: set[str]) -> set[str]:
    return {"".join(statement.split()) for statement in said}


LATER = f"{int(schema.HEAD) + 1:04}"
_FAILING = ("CREATE TABLE added (id INTEGER)", "INSERT INTO nothing VALUES (1)")
_MIGRATION = """
from alembic import op

revision = {revision!r}
down_revision = {before!r}


def upgrade():
    for statement in {statements!r}:
        op.execute(statement)
"""


@contextlib.contextmanager
def later_version(folder: Path, *statements: str, script: str | None = None) -> Generator[None]:
    """This code as the version after the present one, with one more real migration."""
    later = folder / f"migrations-{len(list(folder.iterdir()))}"
    shutil.copytree(migrations.FOLDER, later)
    migration = _MIGRATION.format(revision=LATER, before=schema.HEAD, statements=statements)
    (later / "versions" / "later.py").write_text(migration)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "FOLDER", later)
        patch.setattr(schema, "SCRIPTS", later / "schemas")
        # As `python -m tests.contract` writes it.
        script = newest_text() if script is None else script
        (later / "schemas" / f"{LATER}.sql").write_text(script)
        patch.setattr(schema, "HEAD", LATER)
        yield


async def test_an_older_schema_is_migrated_after_a_backup(tmp_path: Path) -> None:
    version = schema.HEAD
    async with local_broker(tmp_path) as broker:
        review_id = (await broker.create())["review_id"]
    with later_version(tmp_path, "CREATE TABLE added (id INTEGER PRIMARY KEY)"):
        async with local_broker(tmp_path) as broker:
            assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"
    assert _one(broker.database, "SELECT version_num FROM alembic_version") == LATER
    assert _one(broker.database, "SELECT count(*) FROM added") == 0
    (backup,) = tmp_path.glob("*.backup-*")
    assert backup.stat().st_mode & 0o077 == 0
    assert _one(backup, "SELECT version_num FROM alembic_version") == version
    assert problems(backup) == []
    assert [event.review_id for event in events_of(backup)] == [review_id]


async def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path) -> None:
    version = schema.HEAD
    async with local_broker(tmp_path) as broker:
        review_id = (await broker.create())["review_id"]
    with (
        later_version(tmp_path, *_FAILING, script=""),
        pytest.raises(StartError),
    ):
        async with local_broker(tmp_path):
            pass
    assert _one(broker.database, "SELECT version_num FROM alembic_version") == version
    assert _one(broker.database, "SELECT count(*) FROM sqlite_master WHERE name = 'added'") == 0
    assert problems(broker.database) == []
    assert [event.review_id for event in events_of(broker.database)] == [review_id]


async def test_several_migrations_are_done_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An empty file, for which all migrations run, and not only the last.
    (tmp_path / "broker.sqlite3").touch()
    monkeypatch.setattr(migrations, "create", migrations.migrate)
    with later_version(tmp_path, *_FAILING, script=""), pytest.raises(StartError):
        async with local_broker(tmp_path):
            pass
    made = _one(tmp_path / "broker.sqlite3", "SELECT group_concat(name) FROM sqlite_master WHERE type = 'table'")
    assert made is None


async def test_an_archive_of_an_older_schema_is_proven_and_added_to(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        archive = tmp_path / await _archived(broker)
    version = schema.HEAD
    with later_version(tmp_path, "CREATE TABLE added (id INTEGER PRIMARY KEY)"):
        async with local_broker(tmp_path, clock=broker.clock) as broker:
            assert verification.verify(broker.database, [archive]).problems == []
            assert verification.verify(archive).problems == []
            # To read it changes nothing; what is added to it upgrades it.
            assert _one(archive, "SELECT version_num FROM alembic_version") == version
            assert await _archived(broker) == archive.name
            assert _one(archive, "SELECT version_num FROM alembic_version") == LATER
            report = verification.verify(broker.database, [archive])
            assert (report.problems, report.reviews) == ([], 2)


async def _archived(broker: LocalBroker) -> str:
    """Close a review and move it into the archive. Returns the archive's name."""
    review_id = (await broker.create())["review_id"]
    await broker("close_review", review_id=review_id)
    broker.clock.pass_time(10)
    pruned = await broker.application.broker.retention.prune(iso(broker.clock.now()))
    assert pruned["reviews"] == 1
    return pruned["archive"]


@pytest.fixture
def own_postgres() -> Generator[str]:
    with postgres.own_database("later") as url:
        yield url


@pytest.mark.postgres
async def test_on_postgresql_the_same_migrations_upgrade_a_database(own_postgres: str, tmp_path: Path) -> None:
    async with local_broker(tmp_path, db=own_postgres) as broker:
        review_id = (await broker.create())["review_id"]
    with later_version(tmp_path, "CREATE TABLE added (id INTEGER PRIMARY KEY)"):
        async with local_broker(tmp_path, db=own_postgres) as broker:
            assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"
    with pytest.raises(StartError, match=f"has schema {LATER}, which this version does not know"):
        async with local_broker(tmp_path, db=own_postgres):
            pass


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        await broker.create()
    with contextlib.closing(sqlite3.connect(broker.database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = broker.database.read_bytes()
    with pytest.raises(StartError) as refusal:
        async with local_broker(tmp_path):
            pass
    assert "9999" in str(refusal.value)
    assert schema.HEAD in str(refusal.value)
    assert broker.database.read_bytes() == before


async def test_a_schema_from_before_the_first_release_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        await broker.create()
    with contextlib.closing(sqlite3.connect(broker.database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0007'")
    before = broker.database.read_bytes()
    with pytest.raises(StartError, match=r"has schema 0007, which is from before the first release; .* Move it away"):
        async with local_broker(tmp_path):
            pass
    with pytest.raises(StartError, match="has schema 0007, which is from before the first release"):
        verification.verify(broker.database)
    assert broker.database.read_bytes() == before
    assert list(tmp_path.glob("*.backup-*")) == []


def _one(database: Path, query: str) -> Any:
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchone()[0]
