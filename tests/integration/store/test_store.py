"""What the store promises beside its faults: privacy, one owner, and answers in our own codes."""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.domain.rules.pool import Failure, Work
from gsd_review_broker.domain.tally import Counted, Tally
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.observe.telemetry import Meters
from gsd_review_broker.ports.store import KEY_LIFETIME_MILLISECONDS, IdempotencyKey, Reader, Transaction
from gsd_review_broker.ports.world import Wakeups
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store import migrations, statistics
from gsd_review_broker.store.lock import DatabaseLock
from gsd_review_broker.store.reads import SqlReader
from gsd_review_broker.store.sqlite_store import SqliteStore
from gsd_review_broker.store.statements import SqliteStatements, Statements, parameter
from gsd_review_broker.store.tables import brokers
from gsd_review_broker.store.writes import SqlTransaction
from tests.integration.store.test_lock_order import reviewer
from tests.support.local import LocalBroker, MovableClock, local_broker
from tests.support.mcp import ToolError
from tests.support.reviews import NOW


def store_at(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=MovableClock(), wakeups=Wakeups(), meters=Meters())


async def test_the_folder_it_makes_and_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    store = store_at(tmp_path / "made" / "here" / "x.sqlite3")
    store.open()
    await store.write(lambda tx: tx.shift_deadlines(0))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "made" / "here").iterdir()}
    assert modes == dict.fromkeys(["x.sqlite3", "x.sqlite3-wal", "x.sqlite3-shm", "x.sqlite3.lock"], 0o600)
    assert (tmp_path / "made" / "here").stat().st_mode & 0o777 == 0o700
    await store.close()
    await store.close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux lists a process's open files there")
async def test_a_command_that_changes_many_pages_writes_no_temporary_file(tmp_path: Path) -> None:
    """For a rollback SQLite keeps the old state of each page: in memory, or in a file without a name."""
    store = store_at(tmp_path / "x.sqlite3")
    store.open()
    wide = [{"id": f"{number}".ljust(3000, "x"), "heartbeat_at": 0} for number in range(100)]
    await store.write(lambda tx: statements_of(tx).run_all(sa.insert(brokers), wide))

    def change_all(tx: Transaction) -> list[str]:
        statements_of(tx).run(sa.update(brokers).values(heartbeat_at=parameter("now")), {"now": 1})
        return [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]

    def fail_half_way(tx: Transaction) -> None:
        tx.save_heartbeat("x", tx.now)
        raise RuntimeError

    # Only commands that share a batch with such a one are run in savepoints.
    _, open_files = await asyncio.gather(store.write(fail_half_way), store.write(change_all), return_exceptions=True)
    assert isinstance(open_files, list)
    assert str(tmp_path / "x.sqlite3") in open_files
    assert not [name for name in open_files if name.endswith("(deleted)") and "etilqs" in name]
    await store.close()


def statements_of(tx: Transaction) -> Statements:
    return cast("SqlTransaction", tx).statements


async def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    path.touch(mode=0o644)
    path.chmod(0o644)
    store = store_at(path)
    store.open()
    assert path.stat().st_mode & 0o777 == 0o600
    await store.close()


def test_the_lock_names_its_owner_and_is_free_after_release(tmp_path: Path) -> None:
    first, second = DatabaseLock(Database(tmp_path / "x")), DatabaseLock(Database(tmp_path / "x"))
    first.acquire()
    with pytest.raises(StartError, match=r"pid \d+"):
        second.acquire()
    (tmp_path / "x.lock").write_text("nonsense")
    with pytest.raises(StartError, match="pid unknown"):
        second.acquire()
    second.release()
    first.release()
    second.acquire()
    second.release()


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE precious (x)")
    foreign.close()
    with pytest.raises(StartError, match="another program"):
        store_at(path).open()


@pytest.mark.parametrize(
    "content", [b"this is no database, whatever it says" * 100, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_what_is_no_database_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.sqlite3"
    path.write_bytes(content)
    with pytest.raises(StartError):
        store_at(path).open()
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_opened_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="cannot be opened"):
        store_at(tmp_path / "file" / "x.sqlite3").open()


def test_backups_of_one_version_do_not_overwrite_each_other(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    source = sqlite3.connect(path)
    made = [migrations.back_up(source, path, "0001").name for _ in range(3)]
    source.close()
    assert made == ["x.sqlite3.backup-0001", "x.sqlite3.backup-0001-2", "x.sqlite3.backup-0001-3"]


async def test_after_closing_a_write_is_unavailable(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        assert '"ready":true' in await broker.page("/healthz?ready")
        await broker.store.close()
        assert '"ready":false' in await broker.page("/healthz?ready", status=503)
        with pytest.raises(ToolError) as refused:
            await broker.create()
        assert refused.value.code == "unavailable"


async def test_closing_waits_for_what_was_asked_before(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        creating = [asyncio.create_task(broker.create()) for _ in range(40)]
        while not broker.store.pending_writes:
            await asyncio.sleep(0)
        await broker.store.close()
        assert len({(await task)["review_id"] for task in creating}) == 40


async def test_a_damaged_page_found_by_a_read_is_unavailable(broker: LocalBroker) -> None:
    def damaged(_reader: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    for read in (broker.store.glance, broker.store.read):
        with pytest.raises(BrokerError) as refused:
            await read(damaged)
        assert refused.value.code is Code.UNAVAILABLE


async def test_a_checkpoint_that_fails_is_told_and_hurts_nobody(broker: LocalBroker, monkeypatch) -> None:
    class Refusing:
        def execute(self, _sql: str) -> None:
            raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(broker.store.writer, "_connection", Refusing())
        broker.store.writer._checkpoint()
    assert [(line["event"], line["error"]) for line in logs] == [("checkpoint_failed", "disk I/O error")]
    review_id = (await broker.create())["review_id"]
    assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"


async def test_the_same_verdict_again_stores_nothing(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    verdict = {"review_id": review_id, "verdict": "approved", "claim_generation": 1}
    assert await broker("submit_verdict", **verdict) == await broker("submit_verdict", **verdict)
    assert (await broker("get_review_timeline", review_id=review_id))["event_count"] == 3


async def test_messages_of_one_round_are_read_alone(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    await broker("add_message", review_id=review_id, sender_role="proposer", body="b")
    assert len((await broker("get_discussion", review_id=review_id, round=1))["messages"]) == 1
    assert (await broker("get_discussion", review_id=review_id, round=2))["messages"] == []


async def test_the_queue_is_counted_by_priority_as_reviews_come_and_go(broker: LocalBroker) -> None:
    ids = [(await broker.create())["review_id"] for _ in range(3)]
    await broker.create(agent_type="gsd-planner")
    await broker.create(phase="verify")
    assert (await broker("broker_status"))["queue"] == {"critical": 1, "normal": 3, "low": 1}
    claim = await broker("claim_review", review_id=ids[0], reviewer_id="codex")
    await broker("close_review", review_id=ids[1])
    assert (await broker("broker_status"))["queue"] == {"critical": 1, "normal": 1, "low": 1}
    await broker("release_claim", review_id=ids[0], claim_generation=claim["claim_generation"])
    assert (await broker("broker_status"))["queue"] == {"critical": 1, "normal": 2, "low": 1}


async def test_a_read_sees_one_moment_however_long_it_takes(broker: LocalBroker) -> None:
    looked, written = threading.Event(), threading.Event()

    def twice(reader: Reader) -> tuple[int, int]:
        first = reader.last_event_id()
        looked.set()
        assert written.wait(20)
        return first, reader.last_event_id()

    reading = asyncio.create_task(broker.store.read(twice))
    assert await asyncio.to_thread(looked.wait, 20)
    await broker.create()
    written.set()
    first, second = await reading
    assert first == second
    assert await broker.store.read(lambda reader: reader.last_event_id()) == first + 1


def test_whoever_opened_the_lock_before_its_release_cannot_lock_beside_the_next_owner(tmp_path: Path) -> None:
    first, next_owner = DatabaseLock(Database(tmp_path / "x")), DatabaseLock(Database(tmp_path / "x"))
    first.acquire()
    # A broker that is about to lock: it has opened the file and no more.
    opened = os.open(tmp_path / "x.lock", os.O_RDWR)
    first.release()
    next_owner.acquire()
    try:
        with pytest.raises(OSError, match="unavailable"):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(opened)
        next_owner.release()


def _two_writers(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    one, other = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
    return one, other


def _key(arguments_hash: str = "a") -> IdempotencyKey:
    return IdempotencyKey(project="p", tool="create_review", key="k", arguments_hash=arguments_hash)


async def test_a_key_that_two_take_is_answered_by_the_first(tmp_path: Path) -> None:
    """As two brokers on one database would: each with a connection and a transaction of its own."""
    async with local_broker(tmp_path) as broker:
        pass
    one, other = _two_writers(broker.database)
    with contextlib.closing(one), contextlib.closing(other):
        # Both have looked before, and found nothing.
        readers = [SqlReader(SqliteStatements(connection)) for connection in (one, other)]
        assert [reader.recall(_key(), NOW) for reader in readers] == [None, None]
        one.execute("BEGIN IMMEDIATE")
        first = SqlTransaction(SqliteStatements(one), NOW)
        assert first.take(_key()) is None
        first.remember(_key(), {"review_id": "r1"})
        one.execute("COMMIT")
        other.execute("BEGIN IMMEDIATE")
        second = SqlTransaction(SqliteStatements(other), NOW)
        assert second.take(_key()) == {"review_id": "r1"}
        with pytest.raises(BrokerError, match="was used for another create_review call"):
            second.take(_key("b"))
        other.execute("COMMIT")


async def test_a_key_whose_call_was_not_answered_is_free_and_so_is_an_old_one(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        pass
    with contextlib.closing(sqlite3.connect(broker.database, isolation_level=None)) as connection:
        transaction = SqlTransaction(SqliteStatements(connection), NOW)
        assert transaction.take(_key()) is None
        assert transaction.recall(_key("b"), NOW) is None
        assert transaction.take(_key("b")) is None
        transaction.remember(_key("b"), {"answer": 1})
        assert transaction.take(_key("b")) == {"answer": 1}
        later = SqlTransaction(SqliteStatements(connection), Milliseconds(NOW + KEY_LIFETIME_MILLISECONDS))
        assert later.take(_key("c")) is None


async def test_what_two_writers_count_adds_up(tmp_path: Path) -> None:
    """Neither reads what the other wrote: the database adds."""
    async with local_broker(tmp_path) as broker:
        pass
    tallies: list[Tally] = [Tally(), Tally()]
    tallies[0].count(Counted.REVIEWER, "r", 2)
    tallies[1].count(Counted.REVIEWER, "r", 3)
    for tally, values in zip(tallies, ([5, 1000, 1001], [4, 1003]), strict=True):
        for value in values:
            tally.sample("time_to_claim", value)
    connections = _two_writers(broker.database)
    for connection, tally in zip(connections, tallies, strict=True):
        connection.execute("BEGIN IMMEDIATE")
        statistics.add(SqliteStatements(connection), [("p", tally)])
        connection.execute("COMMIT")
    for scope in ("", "p"):
        totals = statistics.read_totals(SqliteStatements(connections[0]), scope, most=100)
        assert totals.counts[Counted.REVIEWER, "r"] == 5
        spread = totals.spreads["time_to_claim"]
        assert (spread.count, spread.total, spread.least, spread.most) == (5, 3_013, 4, 1_003)
    for connection in connections:
        connection.close()


async def test_what_is_put_is_there_once_whoever_was_first(tmp_path: Path) -> None:
    """Two brokers that save one row: the last is kept, and neither fails on the other's."""
    async with local_broker(tmp_path) as broker:
        pass
    connections = _two_writers(broker.database)
    for number, connection in enumerate(connections):
        transaction = SqlTransaction(SqliteStatements(connection), NOW)
        transaction.save_failure(Failure(review_id=ReviewId("r"), failures=number, retry_at=NOW))
        transaction.pause_pool(bool(number))
    reader = SqlReader(SqliteStatements(connections[0]))
    assert reader.failure(ReviewId("r")) == Failure(review_id=ReviewId("r"), failures=1, retry_at=NOW)
    assert reader.is_pool_paused()
    for connection in connections:
        connection.close()


async def test_a_start_leaves_another_brokers_reviewers_alone(broker: LocalBroker) -> None:
    records = broker.application.broker.pool.records
    for name in ("codex", "claude"):
        await records.begun(reviewer(name))
    with contextlib.closing(sqlite3.connect(broker.database)) as connection, connection:
        connection.execute("UPDATE reviewers SET broker_id = 'another' WHERE agent = 'claude'")
    # Alone on its database: the other broker had it before the database was moved here.
    assert sorted([one.agent for one in await records.left_running()]) == ["claude", "codex"]
    broker.store.is_shared = True
    assert [one.agent for one in await records.left_running()] == ["codex"]


async def test_the_rows_of_the_pool_are_read_as_they_were_saved(broker: LocalBroker) -> None:
    review_id = ReviewId((await broker.create(intent="Held back"))["review_id"])
    running = reviewer("codex")
    work = Work(review_id=review_id, claim_generation=1, reviewer_id=running.id, claimed_at=NOW)
    now = broker.clock.now()
    failure = Failure(review_id=review_id, failures=2, retry_at=Milliseconds(now + 1_000))

    def save(tx: SqlTransaction) -> None:
        tx.save_reviewer(running)
        tx.save_work(work)
        tx.save_failure(failure)

    await broker.store.write(save)
    assert await broker.store.read(lambda reader: reader.reviewer_ids()) == [running.id]
    assert await broker.store.read(lambda reader: reader.work_on(review_id)) == [work]
    assert await broker.store.read(lambda reader: reader.held_back(now, 10)) == [(failure, None)]
    assert await broker.store.read(lambda reader: reader.held_back(Milliseconds(now + 1_000), 10)) == []


async def test_the_running_reviewers_of_a_broker_without_a_heartbeat_are_found(broker: LocalBroker) -> None:
    silent, alive = (replace(reviewer(name), broker_id=name) for name in ("codex", "claude"))

    def save(tx: SqlTransaction) -> None:
        for one, beat in ((silent, NOW), (alive, Milliseconds(NOW + 10))):
            tx.save_reviewer(one)
            tx.save_heartbeat(one.agent, beat)

    await broker.store.write(save)
    before = Milliseconds(NOW + 10)
    assert await broker.store.read(lambda reader: reader.reviewers_of_silent_brokers(before)) == [silent.id]
