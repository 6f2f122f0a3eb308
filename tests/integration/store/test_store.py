"""What the store promises beside its faults: privacy, one owner, and answers in our own codes."""

import asyncio
import fcntl
import os
import sqlite3
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.observe.meters import Meters
from gsd_review_broker.ports import Reader
from gsd_review_broker.store.sqlite import schema
from gsd_review_broker.store.sqlite.lock import DatabaseLock
from gsd_review_broker.store.sqlite.store import SqliteStore
from gsd_review_broker.wakeups import LocalWakeups
from tests.support.local import LocalBroker, MovableClock, local_broker
from tests.support.mcp import ToolError


def store_at(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=MovableClock(), wakeups=LocalWakeups(), meters=Meters())


async def test_the_folder_it_makes_and_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    store = store_at(tmp_path / "made" / "here" / "x.sqlite3")
    store.open()
    await store.write(lambda tx: tx.shift_deadlines(0))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "made" / "here").iterdir()}
    assert modes == dict.fromkeys(["x.sqlite3", "x.sqlite3-wal", "x.sqlite3-shm", "x.sqlite3.lock"], 0o600)
    assert (tmp_path / "made" / "here").stat().st_mode & 0o777 == 0o700
    await store.close()
    await store.close()


async def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    path.touch(mode=0o644)
    path.chmod(0o644)
    store = store_at(path)
    store.open()
    assert path.stat().st_mode & 0o777 == 0o600
    await store.close()


def test_the_lock_names_its_owner_and_is_free_after_release(tmp_path: Path) -> None:
    first, second = DatabaseLock(tmp_path / "x"), DatabaseLock(tmp_path / "x")
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
    made = [schema.back_up(source, path, "0001").name for _ in range(3)]
    source.close()
    assert made == ["x.sqlite3.backup-0001", "x.sqlite3.backup-0001-2", "x.sqlite3.backup-0001-3"]


async def test_after_closing_a_write_is_unavailable(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        await broker.store.close()
        with pytest.raises(ToolError) as refused:
            await broker.create()
        assert refused.value.code == "unavailable"


async def test_closing_waits_for_what_was_asked_before(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        creating = [asyncio.create_task(broker.create()) for _ in range(40)]
        while not broker.store.writer._jobs:
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
    first, next_owner = DatabaseLock(tmp_path / "x"), DatabaseLock(tmp_path / "x")
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
