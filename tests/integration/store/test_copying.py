"""A database moves from SQLite to PostgreSQL and back, and nothing of it changes."""

import argparse
import asyncio
import json
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.generator import NOW, generate

from gsd_review_broker import maintenance
from gsd_review_broker.cli.commands import db
from gsd_review_broker.domain.caller import SignInLink
from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit
from gsd_review_broker.domain.model import Identity
from gsd_review_broker.errors import StartError
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store.tables import metadata
from tests.integration.store.test_lock_order import use_pool, use_tools
from tests.integration.store.test_moving import alter
from tests.support import postgres
from tests.support.local import LocalBroker, local_broker
from tests.support.texts import BETTER, GOOD

pytestmark = pytest.mark.postgres

TITLES = ["zebra", "apple", "mango", "Berry", "1st", "ß", "last"]


def remark(title: str, **more: Any) -> dict[str, Any]:
    return {"title": title, "body": f"about {title}", "severity": "low", **more}


async def lived(broker: LocalBroker) -> str:
    """Two reviews of two projects, one of them with findings in an order that no column but the events tells."""
    review_id = (await broker.create(project="p"))["review_id"]
    broker.clock.pass_time(3)
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    for verdict, titles in (("comment", TITLES[:3]), ("changes_requested", [*TITLES[3:], TITLES[0]])):
        await broker(
            "submit_verdict",
            review_id=review_id,
            verdict=verdict,
            reason="see there",
            claim_generation=claim["claim_generation"],
            findings=[remark(title) for title in titles],
        )
    other = (await broker.create(project="q"))["review_id"]
    broker.clock.pass_time(700)
    await broker("claim_review", review_id=other, reviewer_id="claude")
    await broker("close_review", review_id=other)
    return review_id


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


async def counter_patched_and_landed(broker: LocalBroker) -> None:
    """An accepted counter-patch, an approved change that has landed, and an override for another."""
    review_id = (await broker.create(diff=GOOD, project="site"))["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    remark = {"title": "t", "body": "b", "severity": "low", "path": "hello.txt", "line_start": 2}
    offer = {"verdict": "changes_requested", "reason": "no", "counter_patch": BETTER, "findings": [remark]}
    await broker("submit_verdict", review_id=review_id, claim_generation=claim["claim_generation"], **offer)
    await broker("accept_counter_patch", review_id=review_id)
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    approval = {"verdict": "approved", "claim_generation": claim["claim_generation"]}
    await broker("submit_verdict", review_id=review_id, **approval)
    override = GateOverride(
        repository="r", folder="f", person=Identity("human:ada"), reason="late", created_at=NOW, until=NOW
    )
    number = await broker.store.write(lambda tx: tx.save_override(override))
    commit = LandedCommit(
        folder="f", commit_id="c" * 40, branch="main", digest="sha256:0", subject="s", because=None,
        reviews=(), override_id=number, landed_at=NOW,
    )  # fmt: skip
    await broker.store.write(lambda tx: tx.save_landed(commit))


async def with_everything(folder: Path, repository: Path) -> Database:
    """A few hundred reviews, some of them in an archive, and a row in every table."""
    generate(folder / "broker.sqlite3", 300)
    async with local_broker(folder, root=repository) as broker:
        await use_pool(broker)
        await use_tools(broker)
        await counter_patched_and_landed(broker)
        await broker.application.broker.tokens.new(None, "human", name="ada", project=None, expires="1d")
        link = SignInLink(hash="h", sealed_token="t", page="/", expires_at=NOW)
        await broker.store.write(lambda tx: tx.save_sign_in_link(link, NOW))
        broker.clock.pass_time(1_200)
        moment = iso(broker.clock.now())
        while (await broker.application.broker.retention.prune(moment))["more"]:
            pass
    return Database(folder / "broker.sqlite3")


def test_hundreds_of_reviews_with_everything_come_back_byte_for_byte(
    empty: Database, tmp_path: Path, repository: Path
) -> None:
    source = asyncio.run(with_everything(tmp_path, repository))
    # The heartbeats of its brokers are from the test's clock, which is ahead.
    alter(source.path, "UPDATE brokers SET heartbeat_at = 0")
    before = rows(source.path)
    assert [name for name, found in before.items() if not found] == []
    back = Database(tmp_path / "back.sqlite3")
    assert (
        maintenance.move(source, empty).reviews == maintenance.move(empty, back).reviews == len(before["reviews"]) > 250
    )
    assert rows(back.path) == before
    assert exported(source) == exported(empty) == exported(back)
    (archive,) = tmp_path.glob("broker.sqlite3.archive-*[0-9]")
    for database in (empty, back):
        report = maintenance.verify(database, [archive])
        assert (report.problems, report.statistics_checked) == ([], True)


def exported(database: Database) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in maintenance.export(database))


def test_there_and_back_every_row_is_the_same(source: Database, empty: Database, tmp_path: Path) -> None:
    back = Database(tmp_path / "made" / "back.sqlite3")
    moved = maintenance.move(source, empty)
    assert moved.reviews == 2
    assert maintenance.move(empty, back).events == moved.events
    assert rows(back.path) == rows(source.path)
    assert exported(back) == exported(empty) == exported(source)
    assert all(maintenance.verify(database).problems == [] for database in (source, empty, back))
    assert back.path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in back.path.parent.glob("back*")) == ["back.sqlite3", "back.sqlite3.lock"]
    # Where something is already, nothing is written.
    maintenance.reopen(empty)
    with pytest.raises(StartError, match="exists already"):
        maintenance.move(empty, back)
    maintenance.reopen(source)
    with pytest.raises(StartError, match="holds tables of another program"):
        maintenance.move(source, empty)


async def test_a_broker_goes_on_with_the_moved_database(source: Database, empty: Database, tmp_path: Path) -> None:
    await asyncio.to_thread(maintenance.move, source, empty)
    async with local_broker(tmp_path / "elsewhere", db=empty.url) as broker:
        (pending,) = (await broker("list_reviews", status="changes_requested"))["reviews"]
        message = {"sender_id": "gsd-executor", "sender_role": "proposer", "body": "again"}
        assert (await broker("add_message", review_id=pending["id"], **message))["message_id"] == 2
    assert (await asyncio.to_thread(maintenance.verify, empty)).problems == []


def test_a_server_that_cannot_be_reached_is_told_in_a_sentence(source: Database, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be used: "):
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
    assert db.migrate(options) == 0
    told = capsys.readouterr().out
    assert "2 reviews are in postgresql://" in told
    assert f"No broker starts on {source} any more." in told
    options = argparse.Namespace(db=empty.url, config=None, user=True, target="sqlite:///back.sqlite3", json=True)
    assert db.migrate(options) == 0
    assert json.loads(capsys.readouterr().out)["reviews"] == 2
    options = argparse.Namespace(db=str(source), config=None, user=True, json=False)
    for expected in ("is open again. What was stored in postgresql://", "is open; nothing was changed"):
        assert db.reopen(options) == 0
        assert expected in capsys.readouterr().out
    options.json = True
    assert db.reopen(options) == 0
    assert json.loads(capsys.readouterr().out) == {"database": str(source), "was_moved_to": None}
