"""Databases of earlier versions: what they hold is all there after the migration, and the audit agrees."""

import contextlib
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest
from alembic import command

from gsd_review_broker.domain.histogram import BUCKETS
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.store.sqlite import schema, verification
from gsd_review_broker.store.sqlite.archive import _ARCHIVE_MARK
from tests.support.invariants import problems, totals_of
from tests.support.local import LocalBroker, local_broker

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


def as_of_the_first_schema(database: Path) -> Path:
    """The same rows in the tables of schema 0001, with counters and histograms as they were kept then."""
    old = database.with_name("old.sqlite3")
    with (
        contextlib.closing(sqlite3.connect(old, isolation_level=None, check_same_thread=False)) as target,
        contextlib.closing(sqlite3.connect(database)) as source,
        pytest.MonkeyPatch.context() as patch,
    ):
        upgrade = command.upgrade
        patch.setattr(command, "upgrade", lambda config, _revision: upgrade(config, "0001"))
        schema.migrate(target)
        for (table,) in target.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table not in {"alembic_version", "sqlite_sequence", "counters", "histograms"}:
                _copy(source, target, table)
        totals = totals_of(database)
        for scope, kept in totals.items():
            for (name, key), value in kept.counts.items():
                target.execute("INSERT INTO counters VALUES (?, ?, ?, ?)", (scope, name, key, value))
            for name, spread in kept.spreads.items():
                blob = struct.pack(f"<{BUCKETS}I", *spread.buckets)
                values = (scope, name, spread.count, spread.total, spread.least, spread.most, blob)
                target.execute("INSERT INTO histograms VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    return old


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    names = [row[1] for row in target.execute(f"PRAGMA table_info({table})")]
    columns = ", ".join(f'"{name}"' for name in names)
    target.execute(f"DELETE FROM {table}")
    rows = source.execute(f"SELECT {columns} FROM {table}").fetchall()
    target.executemany(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(names))})", rows)


async def test_a_database_of_the_first_schema_is_whole_after_its_migration(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        review_id = await lived(broker)
        before = await broker("get_review_stats")
        of_project = await broker("get_review_stats", project="p")
    as_of_the_first_schema(broker.database).replace(broker.database)
    async with local_broker(tmp_path, clock=broker.clock) as broker:
        assert await broker("get_review_stats") == before
        assert await broker("get_review_stats", project="p") == of_project
        told = (await broker("get_discussion", review_id=review_id))["findings"]
        assert [finding["title"] for finding in told] == TITLES
        assert problems(broker.database) == []
        # What is counted from now on is added to what was counted then.
        await lived(broker)
        assert (await broker("get_review_stats"))["total_reviews"] == 2 * before["total_reviews"]
    assert problems(broker.database) == []
    assert verification.verify(broker.database).problems == []
    assert [path.name for path in tmp_path.glob("*.backup-*")] == ["broker.sqlite3.backup-0001"]


async def test_an_archive_of_the_first_schema_is_proven_and_added_to(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        for _ in range(2):
            review_id = await lived(broker)
            await broker("close_review", review_id=review_id)
            broker.clock.pass_time(10)
            pruned = await broker.application.broker.retention.prune(iso(broker.clock.now()))
            assert pruned["reviews"] == 2
            archive = tmp_path / pruned["archive"]
            old = as_of_the_first_schema(archive)
            with contextlib.closing(sqlite3.connect(old)) as connection, connection:
                connection.execute(f"PRAGMA user_version={_ARCHIVE_MARK}")
            old.replace(archive)
            for beside in ("-wal", "-shm"):
                archive.with_name(archive.name + beside).unlink(missing_ok=True)
            assert verification.verify(broker.database, [archive]).problems == []
            assert verification.verify(archive).problems == []
            with contextlib.closing(sqlite3.connect(archive)) as connection:
                assert schema.stored_version(connection) == "0001"


async def test_a_finding_that_no_event_tells_of_comes_last(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        review_id = await lived(broker)
    with contextlib.closing(sqlite3.connect(as_of_the_first_schema(broker.database))) as connection, connection:
        ((first,),) = connection.execute("SELECT id FROM findings WHERE title = 'zebra'").fetchall()
        connection.execute("UPDATE findings SET id = 'f0' WHERE id = ?", (first,))
    broker.database.with_name("old.sqlite3").replace(broker.database)
    async with local_broker(tmp_path) as broker:
        told = (await broker("get_discussion", review_id=review_id))["findings"]
    assert [finding["title"] for finding in told] == [*TITLES[1:], "zebra"]


STALE = "--- a/hello.txt\n+++ b/hello.txt\n@@ -1 +1 @@\n-not there\n+new\n"


async def rejected_automatically(broker: LocalBroker, **more: Any) -> str:
    review_id = (await broker.create(diff=STALE, project="p", **more))["review_id"]
    broker.clock.pass_time(5)
    assert (await broker("claim_review", review_id=review_id, reviewer_id="codex"))["auto_rejected"] is True
    broker.clock.pass_time(60)
    return review_id


async def approved(broker: LocalBroker, review_id: str) -> None:
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    broker.clock.pass_time(7)
    generation = claim["claim_generation"]
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)


# As versions before schema 0004 wrote it: an automatic rejection was a verdict. Only the corrected review is critical.
_COUNTED_BEFORE = """
UPDATE reviews SET last_verdict = coalesce(last_verdict, 'changes_requested'), first_verdict_at = (
    SELECT min(timestamp) FROM events WHERE review_id = reviews.id AND event_type = 'review_auto_rejected')
WHERE id IN (SELECT review_id FROM events WHERE event_type = 'review_auto_rejected');
UPDATE counters SET key = key || ':changes_requested:' WHERE name = 'step' AND key LIKE 'review_auto_rejected:%';
UPDATE counters SET key = key || 'changes_requested'
WHERE name = 'step' AND key LIKE 'verdict_submitted:%:critical:approved:';
UPDATE histogram_buckets SET count = count + 1, total = total + least WHERE name = 'time_to_verdict';
INSERT INTO histogram_buckets VALUES ('', 'time_to_verdict', 3, 1, 3, 3, 3);
DROP TABLE tokens;
UPDATE alembic_version SET version_num = '0003';
"""


async def test_automatic_rejections_that_were_counted_as_verdicts_are_counted_again(
    tmp_path: Path, repository: Path
) -> None:
    async with local_broker(tmp_path, root=repository) as broker:
        await approved(broker, (await broker.create(project="q"))["review_id"])
        await rejected_automatically(broker)
        corrected = await rejected_automatically(broker, agent_type="planner")
        await broker.create(review_id=corrected, agent_type="planner")
        await approved(broker, corrected)
        before = [await broker("get_review_stats", project=project) for project in (None, "p", "q")]
    assert before[0]["auto_rejections"] == 2
    with contextlib.closing(sqlite3.connect(broker.database)) as connection, connection:
        connection.executescript(_COUNTED_BEFORE)
        connection.execute("DROP TABLE brokers")
        connection.execute("DROP TABLE sign_in_links")
        connection.execute("DROP TABLE histograms")
    async with local_broker(tmp_path, root=repository, clock=broker.clock) as broker:
        assert [await broker("get_review_stats", project=project) for project in (None, "p", "q")] == before
        await approved(broker, (await broker.create(project="p"))["review_id"])
        await broker.create(review_id=await rejected_automatically(broker))
    assert problems(broker.database) == []
    assert verification.verify(broker.database).problems == []
