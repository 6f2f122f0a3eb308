"""Retention: what was closed moves into an archive, nothing is lost or doubled, and the chain stays whole."""

import asyncio
import contextlib
import random
import sqlite3
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from gsd_review_broker import maintenance
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.settings import config
from gsd_review_broker.store import archive, migrations, verification
from gsd_review_broker.store.sqlite_store import SqliteStore
from gsd_review_broker.store.statements import SqliteStatements, sql_of
from gsd_review_broker.store.tables import metadata
from tests.integration.service.test_statistics import PROJECTS, STORIES, Driver, Step, in_order_of_names
from tests.support import local, postgres
from tests.support.local import LocalBroker, MovableClock, local_broker
from tests.support.mcp import ToolError
from tests.support.processes import make_repository
from tests.support.texts import BETTER, GOOD

pytestmark = pytest.mark.slow

TABLES = ("reviews", "revisions", "messages", "counter_patches", "findings", "events")
DAY = 86_400


@pytest.fixture
async def lone(tmp_path: Path) -> AsyncGenerator[LocalBroker]:
    """Outside any repository: no git is asked."""
    async with local_broker(tmp_path) as broker:
        yield broker


@contextlib.contextmanager
def opened(database: Path) -> Generator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        yield connection


async def begun(broker: LocalBroker, **proposal: Any) -> str:
    review_id = (await broker.create(**proposal))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    await broker("add_message", review_id=review_id, sender_role="reviewer", body=f"about {review_id}")
    return review_id


async def ended(broker: LocalBroker, review_id: str) -> str:
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1)
    await broker("close_review", review_id=review_id)
    return review_id


async def closed(broker: LocalBroker, **proposal: Any) -> str:
    return await ended(broker, await begun(broker, **proposal))


async def prune(broker: LocalBroker, closed_before: str | None = None) -> Any:
    """Before now, unless another moment is given; to the end."""
    moment = iso(broker.clock.now()) if closed_before is None else closed_before
    moved = 0
    while True:
        turn = await broker.application.broker.retention.prune(moment)
        moved += turn["reviews"]
        if not turn["more"]:
            return {**turn, "reviews": moved}


def problems(broker: LocalBroker, *, with_archives: bool = False) -> list[str]:
    return verification.verify(broker.database, broker.archives if with_archives else ()).problems


def rows(database: Path, review_id: str | None = None) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of a review in every table, or of all reviews."""
    found = {}
    with opened(database) as connection:
        for table in TABLES:
            key = "id" if table == "reviews" else "review_id"
            where = f"WHERE {key} = ?" if review_id else f"WHERE {key} IS NOT NULL"
            found[table] = sorted(
                connection.execute(f"SELECT * FROM {table} {where}", (review_id,) if review_id else ()).fetchall(),
                key=repr,
            )
    return found


NOWHERE = {table: [] for table in TABLES}


# What moves, and what stays.


async def test_a_closed_review_moves_with_all_its_rows_and_events(broker: LocalBroker) -> None:
    review_id = await begun(broker, diff=GOOD, project="site")
    remark = {"title": "t", "body": "b", "severity": "low", "path": "hello.txt", "line_start": 2}
    no = {"verdict": "changes_requested", "reason": "no", "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, **no, counter_patch=BETTER, findings=[remark])
    await broker("accept_counter_patch", review_id=review_id)
    await broker("close_review", review_id=review_id)
    before = rows(broker.database, review_id)
    assert all(before[table] for table in TABLES)
    broker.clock.pass_time(1)
    result = await prune(broker)
    assert result == {
        "closed_before": "2027-01-15T08:00:01.000Z",
        "archive": broker.archive("2027-01-15").name,
        "reviews": 1,
        "more": False,
    }
    assert rows(broker.database, review_id) == NOWHERE
    assert rows(broker.archive("2027-01-15"), review_id) == before
    assert problems(broker) == problems(broker, with_archives=True) == []


async def test_what_is_open_or_was_closed_later_stays(lone: LocalBroker) -> None:
    old = await closed(lone)
    withdrawn = (await lone.create())["review_id"]
    await lone("close_review", review_id=withdrawn)
    lone.clock.pass_time(1)
    open_ones = [(await lone.create())["review_id"], await begun(lone)]
    approved = await begun(lone)
    await lone("submit_verdict", review_id=approved, verdict="approved", claim_generation=1)
    moment = iso(lone.clock.now())
    # Closed at that very moment is not closed before it.
    at_that_moment = await closed(lone)
    lone.clock.pass_time(1)
    later = await closed(lone)
    assert (await prune(lone, moment))["reviews"] == 2
    stayed = {row["id"] for row in (await lone("list_reviews"))["reviews"]}
    assert stayed == {*open_ones, approved, at_that_moment, later}
    (kept,) = lone.archives
    assert {row[0] for row in rows(kept)["reviews"]} == {old, withdrawn}
    for review_id in (old, withdrawn):
        with pytest.raises(ToolError) as error:
            await lone("get_review_status", review_id=review_id)
        assert error.value.code == "not_found"
    assert problems(lone) == problems(lone, with_archives=True) == []


# Tables that tell of reviews and are left as they are by a prune, on purpose.
# An approval counts for the gate, and a commit has landed, also when the review is in an archive.
STAYS = {"reviewed_changes", "approved_paths"}


@pytest.mark.sqlite
def test_every_table_that_tells_of_a_review_is_thought_of() -> None:
    told = {table.name for table in metadata.sorted_tables if "review_id" in table.c} | {"reviews"}
    assert told == {table.name for table in archive._TABLES} | STAYS


async def test_more_than_one_batch_moves(lone: LocalBroker) -> None:
    for _ in range(archive.BATCH * 2 + 3):
        await lone("close_review", review_id=(await lone.create())["review_id"])
    await lone.create()
    lone.clock.pass_time(1)
    assert (await prune(lone))["reviews"] == archive.BATCH * 2 + 3
    report = verification.verify(lone.database, lone.archives)
    assert (report.problems, report.reviews) == ([], archive.BATCH * 2 + 4)


async def test_a_long_prune_is_done_in_turns(lone: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(archive.BATCH * 2):
        await lone("close_review", review_id=(await lone.create())["review_id"])
    lone.clock.pass_time(1)
    moment = iso(lone.clock.now())
    moving = lone.store.archive

    async def slowly(**asked: Any) -> Any:
        lone.clock.pass_time(2)
        return await moving(**asked)

    monkeypatch.setattr(lone.store, "archive", slowly)
    turns = []
    while not turns or turns[-1]["more"]:
        turns.append(await lone.application.broker.retention.prune(moment))
    assert [(turn["reviews"], turn["more"]) for turn in turns] == [(25, True), (25, True), (0, False)]


async def test_where_nothing_was_closed_nothing_is_made(lone: LocalBroker) -> None:
    await begun(lone)
    lone.clock.pass_time(DAY)
    before = (await lone("get_audit_log"))["events"]
    assert (await prune(lone))["reviews"] == 0
    assert lone.archives == []
    assert (await lone("get_audit_log"))["events"] == before


async def test_nothing_is_pruned_by_itself(lone: LocalBroker) -> None:
    review_id = await closed(lone)
    for _ in range(40):
        lone.clock.pass_time(30 * DAY)
        await lone.sweep()
    await lone.create()
    assert (await lone("get_review_status", review_id=review_id))["status"] == "closed"
    assert lone.archives == []


# What a caller may say.


async def test_a_day_is_its_first_moment_in_utc(lone: LocalBroker) -> None:
    # It is 08:00 in UTC on 2027-01-15.
    await closed(lone)
    lone.clock.pass_time(DAY)
    said = {
        # Before there were years as we count them, nothing was closed.
        "0001-01-01T00:00:00+23:59": 0,
        "1969-12-31": 0,
        "2027-01-15": 0,
        "2027-01-15T08:00:00": 0,
        "2027-01-15T08:00:00Z": 0,
        "2027-01-15T09:00:00+01:00": 0,
        "2027-01-15T09:00:00.001+01:00": 1,
    }
    for moment, moved in said.items():
        assert (await prune(lone, moment))["reviews"] == moved, moment


@pytest.mark.parametrize(
    "moment",
    [
        "", " ", "soon", "yesterday", "2027-02-30", "2027-13-01", "1800000000", "2027-01-15T25:00",
        "2027-01-15 nonsense", "half \ud800", "nul\0", "x" * 100_000, "9999-12-31",
        "2027-01-15T08:00:00.001Z", "2027-01-16",
    ],
    ids=lambda said: repr(said[:30]),
)  # fmt: skip
async def test_what_is_no_past_moment_is_refused(lone: LocalBroker, moment: str) -> None:
    await closed(lone)
    with pytest.raises(BrokerError) as error:
        await prune(lone, moment)
    assert error.value.code is Code.INVALID_ARGUMENT
    assert len(error.value.message) < 300
    assert lone.archives == []


# What is kept up.


async def test_statistics_do_not_change(lone: LocalBroker) -> None:
    for project in (None, "site", "site"):
        await closed(lone, project=project)
        lone.clock.pass_time(7)
    await begun(lone, project="site")
    before = [await lone("get_review_stats", **asked) for asked in ({}, {"project": "site"})]
    await prune(lone)
    assert [await lone("get_review_stats", **asked) for asked in ({}, {"project": "site"})] == before
    report = verification.verify(lone.database, lone.archives)
    assert (report.problems, report.statistics_checked) == ([], True)
    # Alone, what the archive holds is not there to be counted.
    assert not verification.verify(lone.database).statistics_checked


async def test_events_that_stay_keep_their_numbers_and_a_checkpoint_tells_of_the_rest(lone: LocalBroker) -> None:
    stays = await begun(lone)
    await closed(lone)
    lone.clock.pass_time(1)
    result = await prune(lone)
    after = await lone.create()
    log = await lone("get_audit_log")
    assert [event["id"] for event in log["events"]] == [1, 2, 3, 9, 10]
    assert [event["review_id"] for event in log["events"]] == [stays, stays, stays, None, after["review_id"]]
    checkpoint = log["events"][3]
    assert (checkpoint["event_type"], checkpoint["actor"]) == ("audit_checkpoint", "broker")
    assert (checkpoint["old_status"], checkpoint["new_status"]) == (None, None)
    sealed = checkpoint["metadata"].pop("gaps_hash")
    assert len(sealed) == 64
    assert checkpoint["metadata"] == {
        "archive": result["archive"], "closed_before": result["closed_before"], "reviews": 1, "events": 5,
    }  # fmt: skip
    # Read on over the gap.
    assert [event["id"] for event in (await lone("get_audit_log", after=5))["events"]] == [9, 10]
    page = await lone("get_audit_log", limit=3)
    assert [event["id"] for event in (await lone("get_audit_log", after=page["next_cursor"]))["events"]] == [9, 10]


async def test_lists_feed_and_status_know_only_what_stayed(lone: LocalBroker) -> None:
    await closed(lone, project="site", category="handoff")
    stays = await begun(lone, project="site", category="handoff")
    lone.clock.pass_time(1)
    await prune(lone)
    for tool in ("list_reviews", "get_activity_feed"):
        for asked in ({}, {"project": "site"}, {"category": "handoff"}, {"status": "in_review"}):
            assert [row["id"] for row in (await lone(tool, **asked))["reviews"]] == [stays]
    assert (await lone("broker_status"))["queue"] == {"critical": 0, "normal": 0, "low": 0}


async def test_work_goes_on_after_a_prune(lone: LocalBroker) -> None:
    parent = await closed(lone)
    child = await begun(lone, parent_id=parent)
    lone.clock.pass_time(1)
    await prune(lone)
    await ended(lone, child)
    assert (await lone("get_review_timeline", review_id=child))["event_count"] == 5
    assert problems(lone) == problems(lone, with_archives=True) == []


# Several prunes.


async def test_two_prunes_of_two_days_make_two_archives_and_one_chain(lone: LocalBroker) -> None:
    first = await closed(lone)
    lone.clock.pass_time(DAY)
    second = await closed(lone)
    lone.clock.pass_time(DAY)
    stays = await begun(lone)
    assert (await prune(lone, "2027-01-16"))["reviews"] == 1
    assert (await prune(lone, "2027-01-17"))["reviews"] == 1
    older, newer = lone.archives
    assert [row[0] for row in rows(older)["reviews"]] == [first]
    assert [row[0] for row in rows(newer)["reviews"]] == [second]
    assert problems(lone) == problems(lone, with_archives=True) == []
    # What was beside each other is one gap now.
    with opened(lone.database) as connection:
        assert connection.execute("SELECT first, last FROM audit_gaps").fetchall() == [(1, 10)]
    # Of two archives one does not tell the whole story.
    assert verification.verify(lone.database, [older]).problems == ["gap: event 6 is missing, the next is 11"]
    assert [row["id"] for row in (await lone("list_reviews"))["reviews"]] == [stays]


async def test_two_prunes_into_one_archive_keep_the_words_of_both(lone: LocalBroker) -> None:
    """The first prune takes the newest messages away, and their numbers must not be given again."""
    first = await closed(lone)
    lone.clock.pass_time(60)
    await prune(lone)
    second = await closed(lone)
    lone.clock.pass_time(60)
    await prune(lone)
    (both,) = lone.archives
    with opened(both) as connection:
        said = connection.execute("SELECT review_id, body FROM messages ORDER BY id").fetchall()
    assert said == [(first, f"about {first}"), (second, f"about {second}")]
    assert verification.verify(both).problems == problems(lone, with_archives=True) == []


async def test_counter_patches_of_two_prunes_stay_apart(broker: LocalBroker) -> None:
    for _ in range(2):
        review_id = await begun(broker, diff=GOOD)
        offer = {"verdict": "comment", "reason": "r", "claim_generation": 1, "counter_patch": BETTER}
        await broker("submit_verdict", review_id=review_id, **offer)
        await broker("close_review", review_id=review_id)
        broker.clock.pass_time(60)
        await prune(broker)
    (both,) = broker.archives
    assert len(rows(both)["counter_patches"]) == 2
    assert problems(broker, with_archives=True) == []


async def interleaved(broker: LocalBroker) -> list[str]:
    """Three reviews whose events alternate: 1 2 3 1 2 3 … in the audit."""
    reviews = [(await broker.create())["review_id"] for _ in range(3)]
    for review_id in reviews:
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
    for review_id in reviews:
        await broker("add_message", review_id=review_id, sender_role="reviewer", body="hm")
    return reviews


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)], ids=str)
async def test_gaps_between_events_that_alternate_grow_together(lone: LocalBroker, order: tuple[int, int, int]) -> None:
    reviews = await interleaved(lone)
    for which in order:
        await ended(lone, reviews[which])
        lone.clock.pass_time(1)
        await prune(lone)
        assert problems(lone) == problems(lone, with_archives=True) == []
    with opened(lone.database) as connection:
        gaps = connection.execute("SELECT first, last FROM audit_gaps ORDER BY first").fetchall()
        left = [row[0] for row in connection.execute("SELECT id FROM events ORDER BY id")]
    # What is left are the three checkpoints, and around them everything is gone.
    assert left == [12, 15, 18]
    assert gaps == [(1, 11), (13, 14), (16, 17)]


async def test_all_reviews_of_one_batch_join_their_gaps(lone: LocalBroker) -> None:
    for review_id in reversed(await interleaved(lone)):
        await ended(lone, review_id)
    await lone.create()
    lone.clock.pass_time(1)
    await prune(lone)
    with opened(lone.database) as connection:
        assert connection.execute("SELECT first, last FROM audit_gaps").fetchall() == [(1, 15)]
    assert problems(lone) == problems(lone, with_archives=True) == []


BY_KEY = {name: value for name, value in vars(archive).items() if isinstance(value, sa.Select) and name != "GAPS"}


@pytest.mark.sqlite
@pytest.mark.parametrize("name", [*sorted(BY_KEY), *(f"_DELETIONS {n}" for n in range(len(TABLES)))])
async def test_each_step_of_a_prune_goes_by_an_index(lone: LocalBroker, name: str) -> None:
    """It holds the write transaction meanwhile, and the tables may be large."""
    statement = archive._DELETIONS[int(name[-1])] if name.startswith("_DELETIONS") else BY_KEY[name]
    sql = sql_of(statement)
    with opened(lone.database) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?")).fetchall()
    assert [step[3] for step in plan if not step[3].startswith("SEARCH")] == []


# Cut short.


async def copied(broker: LocalBroker) -> dict[str, int]:
    """A prune that got as far as its copy, and then the power failed."""
    asked = broker.clock.now(), broker.archive("2027-01-15")
    if isinstance(broker.store, SqliteStore):
        return dict(await asyncio.to_thread(broker.store._copy_closed, *asked))
    return dict(await broker.store._copy_closed(*asked))


async def test_a_crash_between_copy_and_removal_neither_doubles_nor_loses(lone: LocalBroker) -> None:
    reviews = {await closed(lone) for _ in range(3)}
    await begun(lone)
    lone.clock.pass_time(1)
    before = rows(lone.database)
    assert set(await copied(lone)) == reviews
    # Everything is in the database still, and the copies disturb nobody.
    assert rows(lone.database) == before
    assert problems(lone) == problems(lone, with_archives=True) == []
    (result,) = lone.archives
    assert verification.verify(result).problems == []
    assert (await prune(lone))["reviews"] == 3
    gone = rows(result)
    assert {row[0] for row in gone["reviews"]} == reviews
    assert {table: sorted([*gone[table], *rows(lone.database)[table]], key=repr) for table in TABLES} == before
    assert problems(lone) == problems(lone, with_archives=True) == []


async def test_copies_of_a_crash_under_another_date_do_no_harm(lone: LocalBroker) -> None:
    await closed(lone)
    lone.clock.pass_time(DAY)
    await copied(lone)
    assert (await prune(lone))["archive"] == lone.archive("2027-01-16").name
    assert len(lone.archives) == 2
    assert problems(lone) == problems(lone, with_archives=True) == []
    assert verification.verify(lone.database, lone.archives[::-1]).problems == []


async def refuse_late_verdict(broker: LocalBroker, review_id: str) -> None:
    """Even a closed review hears of it, and its version grows."""
    with pytest.raises(ToolError) as error:
        await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=0, reviewer_id="late")
    assert error.value.code == "stale_claim"


async def test_a_review_that_changes_between_copy_and_removal_is_not_lost(lone: LocalBroker) -> None:
    changes, other = await closed(lone), await closed(lone)
    lone.clock.pass_time(1)
    batch = await copied(lone)
    await refuse_late_verdict(lone, changes)
    said = {"archive": lone.archive("2027-01-15").name, "closed_before": iso(lone.clock.now())}
    assert await lone.store.write(lambda tx: archive.remove(tx, batch, **said)) == [other]
    assert (await lone("get_review_timeline", review_id=changes))["event_count"] == 6
    assert problems(lone) == problems(lone, with_archives=True) == []
    # The next prune takes it as it is by then.
    assert (await prune(lone))["reviews"] == 1
    (kept,) = lone.archives
    assert len(rows(kept, changes)["events"]) == 6
    assert problems(lone) == problems(lone, with_archives=True) == []


async def test_if_everything_changed_meanwhile_nothing_is_removed(lone: LocalBroker) -> None:
    changes = await closed(lone)
    lone.clock.pass_time(1)
    batch = await copied(lone)
    await refuse_late_verdict(lone, changes)
    before = rows(lone.database)
    gone = await lone.store.write(lambda tx: archive.remove(tx, batch, archive="x", closed_before="y"))
    assert (gone, rows(lone.database)) == ([], before)


async def test_a_review_that_changed_after_a_cut_short_copy_is_whole_in_any_order_of_archives(
    lone: LocalBroker,
) -> None:
    changes = await closed(lone)
    lone.clock.pass_time(DAY)
    await copied(lone)
    await refuse_late_verdict(lone, changes)
    await prune(lone)
    older, newer = lone.archives
    assert problems(lone) == []
    assert verification.verify(lone.database, [newer, older]).problems == []
    assert verification.verify(lone.database, [older, newer]).problems == []


@pytest.mark.sqlite
async def test_a_prune_that_comes_late_takes_nothing_out_of_the_archive(
    lone: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once: when the second begins to copy what it has chosen, the first has removed it."""
    review_id = await closed(lone)
    lone.clock.pass_time(1)
    before = rows(lone.database, review_id)
    chosen, go_on = threading.Event(), threading.Event()
    choosing = archive.closed_reviews

    def slowly(*asked: Any) -> Any:
        batch = choosing(*asked)
        chosen.set()
        assert go_on.wait(10)
        return batch

    monkeypatch.setattr(archive, "closed_reviews", slowly)
    late = asyncio.create_task(copied(lone))
    assert await asyncio.to_thread(chosen.wait, 10)
    monkeypatch.setattr(archive, "closed_reviews", choosing)
    assert (await prune(lone))["reviews"] == 1
    go_on.set()
    assert set(await late) == {review_id}
    (kept,) = lone.archives
    assert rows(kept, review_id) == before
    assert problems(lone, with_archives=True) == []


async def test_prunes_at_the_same_time_lose_nothing_and_count_each_review_once(lone: LocalBroker) -> None:
    for _ in range(60):
        await lone("close_review", review_id=(await lone.create())["review_id"])
    lone.clock.pass_time(1)
    turns = await asyncio.gather(*(prune(lone) for _ in range(4)))
    assert sum(turn["reviews"] for turn in turns) == 60
    (kept,) = lone.archives
    assert len(rows(kept)["reviews"]) == 60
    assert problems(lone) == problems(lone, with_archives=True) == []


async def test_writers_and_readers_go_on_while_it_prunes(lone: LocalBroker) -> None:
    for _ in range(60):
        await lone("close_review", review_id=(await lone.create())["review_id"])
    lone.clock.pass_time(1)
    pruning = asyncio.create_task(prune(lone))
    made = []
    while not pruning.done():
        lone.clock.pass_time(0.001)
        made.append(await closed(lone))
        assert (await lone("get_activity_feed", limit=1))["reviews"][0]["id"] == made[-1]
    # Those were not closed before it began.
    assert (await pruning)["reviews"] == 60
    assert {row["id"] for row in (await lone("list_reviews", limit=500))["reviews"]} == set(made)
    assert problems(lone) == problems(lone, with_archives=True) == []


async def test_all_is_whole_at_every_moment_of_a_prune(lone: LocalBroker) -> None:
    for _ in range(archive.BATCH * 3):
        await lone("close_review", review_id=(await lone.create())["review_id"])
    await begun(lone)
    lone.clock.pass_time(1)
    pruning = asyncio.create_task(prune(lone))
    looks = 0
    while not pruning.done() or looks < 2:
        # Each in a thread, so that the prune goes on under its eyes.
        for with_archives in (False, True):
            assert await asyncio.to_thread(problems, lone, with_archives=with_archives) == []
        looks += 1
    assert (await pruning)["reviews"] == archive.BATCH * 3


async def test_a_broken_archive_stops_it_and_nothing_is_removed(lone: LocalBroker) -> None:
    review_id = await closed(lone)
    lone.clock.pass_time(1)
    target = lone.archive("2027-01-15")
    target.parent.mkdir(parents=True, exist_ok=True)
    before = rows(lone.database)
    foreign, newer, unmarked = b"no database at all " * 500, target.with_suffix(".newer"), target.with_suffix(".main")
    with opened(foreign_database := target.with_suffix(".foreign")) as connection:
        connection.execute("CREATE TABLE precious (x)")
    with archive.opened_archive(newer) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    # A whole broker's database is no archive.
    with opened(unmarked) as connection:
        connection.isolation_level = None
        migrations.upgrade(connection)
    for content in (foreign, *(path.read_bytes() for path in (foreign_database, newer, unmarked))):
        target.write_bytes(content)
        with pytest.raises(BrokerError) as error:
            await prune(lone)
        assert error.value.code is Code.UNAVAILABLE
        assert target.read_bytes() == content
    assert rows(lone.database) == before
    target.unlink()
    assert (await prune(lone))["reviews"] == 1
    assert len(rows(target, review_id)["reviews"]) == 1


async def test_an_archive_whose_making_was_cut_short_is_made_anew(lone: LocalBroker) -> None:
    review_id = await closed(lone)
    lone.clock.pass_time(1)
    target = lone.archive("2027-01-15")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(mode=0o600)
    assert (await prune(lone))["reviews"] == 1
    assert len(rows(target, review_id)["events"]) == 5
    assert problems(lone, with_archives=True) == []
    # Nothing is left lying beside it, but what SQLite itself keeps there while somebody reads.
    beside = {path.name.removeprefix(target.name) for path in target.parent.glob("*archive*")}
    assert beside - {"-wal", "-shm"} == {""}


async def test_an_archive_that_cannot_be_made_stops_it_and_nothing_is_removed(lone: LocalBroker) -> None:
    await closed(lone)
    lone.clock.pass_time(1)
    before = rows(lone.database)
    lone.archive("2027-01-15").mkdir(parents=True)
    with pytest.raises(BrokerError) as error:
        await prune(lone)
    assert (error.value.code, rows(lone.database)) == (Code.UNAVAILABLE, before)


@pytest.mark.sqlite
async def test_a_copy_that_fails_half_way_is_undone(lone: LocalBroker) -> None:
    first, second = [await closed(lone) for _ in range(2)]
    lone.clock.pass_time(1)
    source = SqliteStatements(lone.store._reader())
    target = lone.archive("2027-01-15")
    # One that another run has removed meanwhile has no rows.
    archive.write(target, [(one, archive.rows_of(source, one)) for one in (first, "gone")])
    kept = rows(target)
    with archive.opened_archive(target) as copies:
        copies.execute("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        with pytest.raises(sqlite3.Error, match="disk full"):
            archive.copy([(one, archive.rows_of(source, one)) for one in (first, second)], copies)
        assert not copies.in_transaction
    assert rows(target) == kept
    with pytest.raises(BrokerError, match="trigger full is added"):
        archive.write(target, [])
    with pytest.raises(BrokerError) as error:
        await prune(lone)
    assert error.value.code is Code.UNAVAILABLE
    assert len(rows(lone.database)["reviews"]) == 2


# Any story.


async def start_over() -> None:
    """On SQLite each example has a file of its own."""
    if local.postgres_url is not None:
        await postgres.emptied(local.postgres_url)


@settings(max_examples=8)
@given(steps=STORIES, seed=st.integers(0, 2**32))
@pytest.mark.slow
def test_after_any_story_with_prunes_in_it_all_is_whole(tree: Path, steps: list[Step], seed: int) -> None:
    """Between the steps of any story, now and then, what was closed goes away; statistics tell nothing of it."""
    chance = random.Random(seed)

    async def live(folder: Path) -> None:
        await start_over()
        async with local_broker(folder, root=tree) as broker:
            for archive_of_another_example in broker.archives:
                archive_of_another_example.unlink()
            driver = Driver(broker)
            for begin in range(0, len(steps), 20):
                await driver.do(steps[begin : begin + 20])
                asked: list[dict[str, Any]] = [{"project": project} if project else {} for project in PROJECTS]
                before = [in_order_of_names(await broker("get_review_stats", **one)) for one in asked]
                broker.clock.pass_time(chance.choice([0.001, DAY]))
                await prune(broker)
                assert [in_order_of_names(await broker("get_review_stats", **one)) for one in asked] == before
            reviews = (await broker("list_reviews", limit=500))["reviews"]
            assert all(row["status"] != "closed" for row in reviews)
            report = verification.verify(broker.database, broker.archives)
            # Each review is in one place.
            assert (report.problems, report.reviews) == ([], before[0]["total_reviews"])
            assert verification.verify(broker.database).problems == []
            for each in broker.archives:
                assert verification.verify(each).problems == []

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder)))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("retention") / "repository")


# Without a broker.


def pruned_here(database: Path, closed_before: str) -> list[Any]:
    turns: list[Any] = []
    flags = {"db": local.postgres_url or str(database)}
    configuration = config.load(root=None, flags=flags, environment={})
    maintenance.prune(configuration, closed_before, turns.append)
    return turns


def test_a_stopped_brokers_database_is_pruned_by_itself(tmp_path: Path) -> None:
    async def live() -> LocalBroker:
        # The system's clock prunes, so all this was before.
        async with local_broker(tmp_path, clock=MovableClock(1_600_000_000_000)) as broker:
            for _ in range(30):
                await closed(broker)
            await begun(broker)
            return broker

    broker = asyncio.run(live())
    database = tmp_path / "broker.sqlite3"
    turns = pruned_here(database, "2021-01-01")
    assert sum(turn["reviews"] for turn in turns) == 30
    kept = broker.archive("2021-01-01")
    assert kept.stat().st_mode & 0o777 == 0o600
    report = verification.verify(broker.database, [kept])
    assert (report.problems, report.reviews, report.statistics_checked) == ([], 31, True)
    assert [turn["reviews"] for turn in pruned_here(database, "2021-01-01")] == [0]


@pytest.mark.sqlite
async def test_a_running_brokers_database_is_not_pruned_behind_its_back(lone: LocalBroker) -> None:
    await closed(lone)
    before = rows(lone.database)
    with pytest.raises(StartError, match="pid"):
        await asyncio.to_thread(pruned_here, lone.database, "2021-01-01")
    assert rows(lone.database) == before


@pytest.mark.sqlite
def test_where_there_is_no_database_none_is_made(tmp_path: Path) -> None:
    with contextlib.suppress(StartError):
        pruned_here(tmp_path / "none.sqlite3", "2021-01-01")
    assert not list(tmp_path.glob("none*"))
