"""A database moves from SQLite to PostgreSQL and back, and nothing of it changes."""

import argparse
import asyncio
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker import maintenance
from gsd_review_broker.cli import databases
from gsd_review_broker.errors import StartError
from gsd_review_broker.settings.database import Database
from gsd_review_broker.store.sqlite.lock import DatabaseLock
from gsd_review_broker.store.tables import metadata
from tests.integration.store.test_migrations import lived
from tests.support import postgres
from tests.support.local import local_broker

pytestmark = pytest.mark.postgres


@pytest.fixture
def source(tmp_path: Path) -> Database:
    async def live() -> None:
        async with local_broker(tmp_path) as broker:
            review_id = await lived(broker)
            await broker.application.broker.pool.records.pause(True)
            message = {"sender_id": "gsd-executor", "sender_role": "proposer", "body": "see there"}
            await broker("add_message", review_id=review_id, **message)

    asyncio.run(live())
    return Database(tmp_path / "broker.sqlite3")


@pytest.fixture
def empty(tmp_path: Path) -> Generator[Database]:
    with postgres.own_database("moved", empty=True) as url:
        yield Database(tmp_path / "state" / "x", url)


def rows(path: Path) -> dict[str, Any]:
    connection = sqlite3.connect(path)
    names = [*(table.name for table in metadata.sorted_tables), "sqlite_sequence", "alembic_version"]
    content = {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
    connection.close()
    return content


def test_there_and_back_every_row_is_the_same(source: Database, empty: Database, tmp_path: Path) -> None:
    back = Database(tmp_path / "made" / "back.sqlite3")
    report = maintenance.move(source, empty)
    assert (report.problems, report.reviews) == ([], 2)
    assert maintenance.move(empty, back) == report
    assert rows(back.path) == rows(source.path)
    assert back.path.stat().st_mode & 0o777 == 0o600
    # Where something is already, nothing is written.
    with pytest.raises(StartError, match="cannot be created: File exists"):
        maintenance.move(empty, back)
    with pytest.raises(StartError, match="holds tables of another program"):
        maintenance.move(source, empty)


async def test_a_broker_goes_on_with_the_moved_database(source: Database, empty: Database, tmp_path: Path) -> None:
    await asyncio.to_thread(maintenance.move, source, empty)
    async with local_broker(tmp_path / "elsewhere", db=empty.url) as broker:
        (pending,) = (await broker("list_reviews", status="changes_requested"))["reviews"]
        message = {"sender_id": "gsd-executor", "sender_role": "proposer", "body": "again"}
        assert (await broker("add_message", review_id=pending["id"], **message))["message_id"] == 2
    assert (await asyncio.to_thread(maintenance.verify, empty)).problems == []


def test_a_database_in_use_or_not_whole_is_not_copied(source: Database, empty: Database) -> None:
    lock = DatabaseLock(source)
    lock.acquire()
    with pytest.raises(StartError, match="in use by another broker"):
        maintenance.move(source, empty)
    lock.release()
    connection = sqlite3.connect(source.path)
    connection.execute("UPDATE reviews SET intent = 'altered'")
    connection.commit()
    connection.close()
    with pytest.raises(StartError, match=r"is not whole .* nothing was copied"):
        maintenance.move(source, empty)


def test_a_copy_that_differs_is_reported(source: Database, empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_digest", str)
    with pytest.raises(StartError, match="differs from"):
        maintenance.move(source, empty)


def test_a_server_that_cannot_be_reached_is_told_in_a_sentence(source: Database, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be written: "):
        maintenance.move(source, Database(tmp_path / "x", "postgresql://nobody@127.0.0.1:1/x"))


def test_the_command_says_what_it_copied(
    source: Database,
    empty: Database,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    options = argparse.Namespace(db=str(source), config=None, user=True, target=empty.url, json=False)
    assert databases.migrate(options) == 0
    assert "2 reviews in postgresql://" in capsys.readouterr().out
    options = argparse.Namespace(db=empty.url, config=None, user=True, target="back.sqlite3", json=True)
    assert databases.migrate(options) == 0
    assert '"reviews": 2' in capsys.readouterr().out
