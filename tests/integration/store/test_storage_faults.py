"""A disk that is full, a lock that is held, a file that is damaged: refused clearly, and nothing half done."""

import asyncio
import contextlib
import itertools
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.domain.model import ReviewId
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.world import review_topic
from gsd_review_broker.store import migrations
from gsd_review_broker.store.sqlite_writer import Writer
from tests.support.invariants import events_of, problems
from tests.support.local import PROPOSAL, LocalBroker, local_broker
from tests.support.mcp import Mcp, ToolError
from tests.support.processes import BrokerProcess, run_broker
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow

LARGE = "x" * 60_000
DEADLINE = PATIENCE


def writer_of(broker: LocalBroker) -> sqlite3.Connection:
    """The one connection that writes."""
    return broker.store._connection


def queued(broker: LocalBroker) -> int:
    return broker.store.pending_writes


async def refused(call: Any) -> str:
    with pytest.raises(ToolError) as refusal:
        await call
    assert refusal.value.hint
    return refusal.value.code


async def last_event(broker: LocalBroker) -> int:
    return (await broker.store.read(lambda reader: reader.events(review_id=None, after=0, limit=10_000)))[-1].id


@pytest.fixture
async def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[LocalBroker]:
    """Without a repository; whatever the test did to it, its database is whole when it has stopped. Its disk
    counts as a slow one, so that commits run in their thread and can be stopped there."""
    monkeypatch.setattr("gsd_review_broker.store.sqlite_writer._QUICK_SECONDS", 0.0)
    async with local_broker(tmp_path) as broker:
        yield broker
    assert problems(broker.database) == []


class Held:
    """Stops the writer at its commit, until told to go on; and knows what was handed to SQLite since."""

    def __init__(self, broker: LocalBroker) -> None:
        self.seen: list[str] = []
        self.reached, self._go_on = threading.Event(), threading.Event()
        writer_of(broker).set_trace_callback(self._trace)

    def _trace(self, statement: str) -> None:
        self.seen.append(statement)
        if statement == "COMMIT" and not self.reached.is_set():
            self.reached.set()
            assert self._go_on.wait(DEADLINE)

    def go_on(self) -> None:
        self.seen.clear()
        self._go_on.set()


@contextlib.asynccontextmanager
async def busy_writer(broker: LocalBroker) -> AsyncGenerator[Held]:
    """The writer waits for the disk; what is asked meanwhile becomes one batch."""
    held = Held(broker)
    # Two at once are committed in a thread of their own, so that the event loop runs on.
    occupied = asyncio.gather(*(broker.store.write(lambda _tx: None) for _ in range(2)))
    assert await asyncio.to_thread(held.reached.wait, DEADLINE)
    try:
        yield held
    finally:
        held.go_on()
        await occupied


async def eventually(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not happened():
            await asyncio.sleep(0.001)


# No room, no right to write.


async def test_a_full_disk_is_unavailable_and_over_when_there_is_room(lone: LocalBroker) -> None:
    review_id = (await lone.create())["review_id"]
    await lone("claim_review", review_id=review_id, reviewer_id="codex")
    before = await last_event(lone)
    (pages,) = writer_of(lone).execute("PRAGMA page_count").fetchone()
    writer_of(lone).execute(f"PRAGMA max_page_count={pages}")
    assert await refused(lone.create(description=LARGE)) == "unavailable"
    message = {"review_id": review_id, "sender_role": "reviewer", "body": LARGE}
    assert await refused(lone("add_message", **message)) == "unavailable"
    status = await lone("get_review_status", review_id=review_id)
    assert (status["status"], status["version"], await last_event(lone)) == ("claimed", 2, before)
    writer_of(lone).execute(f"PRAGMA max_page_count={2**30}")
    assert (await lone("add_message", **message))["status"] == "in_review"
    assert await last_event(lone) == before + 1


async def test_a_batch_that_a_full_disk_ends_is_refused_whole(lone: LocalBroker) -> None:
    """SQLite undoes the whole transaction, so what had room is refused too rather than acknowledged."""
    await lone.create()
    (pages,) = writer_of(lone).execute("PRAGMA page_count").fetchone()
    writer_of(lone).execute(f"PRAGMA max_page_count={pages}")
    async with busy_writer(lone):
        racing = asyncio.gather(*(refused(lone.create(description=LARGE)) for _ in range(3)))
        await eventually(lambda: queued(lone) == 3)
    assert await racing == ["unavailable"] * 3
    assert await last_event(lone) == 1
    writer_of(lone).execute(f"PRAGMA max_page_count={2**30}")
    await lone.create(description=LARGE)
    assert await last_event(lone) == 2


async def test_a_database_that_cannot_be_written_is_unavailable_and_still_read(lone: LocalBroker) -> None:
    review_id = (await lone.create())["review_id"]
    writer_of(lone).execute("PRAGMA query_only=ON")
    assert await refused(lone("claim_review", review_id=review_id, reviewer_id="codex")) == "unavailable"
    assert (await lone("get_review_status", review_id=review_id))["status"] == "pending"
    writer_of(lone).execute("PRAGMA query_only=OFF")
    assert (await lone("claim_review", review_id=review_id, reviewer_id="codex"))["claim_generation"] == 1


@pytest.mark.slow
def test_a_broker_whose_files_cannot_grow_refuses_and_recovers(process: BrokerProcess) -> None:
    """The operating system itself refuses each write, the log's too."""
    client = Mcp(process.port, timeout=DEADLINE)
    assert process.process is not None
    pid = process.process.pid
    review_id = client("create_review", **PROPOSAL)["review_id"]
    client("claim_review", review_id=review_id, reviewer_id="codex")
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    try:
        for _ in range(3):
            with pytest.raises(ToolError) as refusal:
                client("add_message", review_id=review_id, sender_role="reviewer", body=LARGE)
            assert refusal.value.code == "unavailable"
        assert client("get_review_status", review_id=review_id)["version"] == 2
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    assert client("add_message", review_id=review_id, sender_role="reviewer", body=LARGE)["version"] == 3
    client.close()
    assert process.stop() == 0
    assert problems(process.database) == []
    assert len(events_of(process.database)) == 3


# Somebody else's lock.

_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
print("free", flush=True)
"""


@contextlib.contextmanager
def held_by_another_process(database: Path) -> Generator[Callable[[], None]]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"

    def let_go() -> None:
        print(file=holder.stdin, flush=True)
        assert holder.stdout.readline() == "free\n"

    try:
        yield let_go
    finally:
        holder.communicate("\n", timeout=DEADLINE)


async def test_a_lock_that_another_process_holds_is_waited_for(lone: LocalBroker) -> None:
    review_id = (await lone.create())["review_id"]
    with held_by_another_process(lone.database) as let_go:
        claiming = asyncio.create_task(lone("claim_review", review_id=review_id, reviewer_id="codex"))
        done, _ = await asyncio.wait([claiming], timeout=0.3)
        assert not done
        assert (await lone("get_review_status", review_id=review_id))["status"] == "pending"
        await asyncio.to_thread(let_go)
        assert (await asyncio.wait_for(claiming, DEADLINE))["status"] == "claimed"


async def test_a_lock_that_is_held_too_long_is_busy_and_over_when_it_is_free(lone: LocalBroker) -> None:
    review_id = (await lone.create())["review_id"]
    lone.store.writer.patience_milliseconds = 100
    with held_by_another_process(lone.database):
        assert await refused(lone("claim_review", review_id=review_id, reviewer_id="codex")) == "busy"
        assert await refused(lone.create()) == "busy"
        assert (await lone("get_review_status", review_id=review_id))["version"] == 1
    assert (await lone("claim_review", review_id=review_id, reviewer_id="codex"))["version"] == 2
    assert await last_event(lone) == 2


async def test_what_is_not_committed_yet_is_not_read(lone: LocalBroker) -> None:
    """Between commits, short reads use the writer's connection."""
    review_id = (await lone.create())["review_id"]
    held = Held(lone)
    claiming = asyncio.create_task(lone("claim_review", review_id=review_id, reviewer_id="codex"))
    assert await asyncio.to_thread(held.reached.wait, DEADLINE)
    assert (await lone("get_review_status", review_id=review_id))["status"] == "pending"
    held.go_on()
    await claiming
    assert (await lone("get_review_status", review_id=review_id))["status"] == "claimed"


# Batches.


class OwnError(Exception):
    pass


def half_done(broker: LocalBroker) -> Callable[[Any], None]:
    """A command that fails after it has changed something."""

    def half(_tx: Any) -> None:
        writer_of(broker).execute("UPDATE reviews SET status = 'approved'")
        raise OwnError

    return half


async def test_a_command_that_fails_is_undone_alone(lone: LocalBroker) -> None:
    raw = writer_of(lone)

    def half(_tx: Any) -> None:
        raw.execute("UPDATE reviews SET status = 'approved'")
        raw.execute("DELETE FROM events")
        raise OwnError

    review_id = (await lone.create())["review_id"]
    async with busy_writer(lone) as held:
        racing = asyncio.gather(
            lone.create(),
            lone.store.write(half),
            lone("claim_review", review_id=review_id, reviewer_id="codex"),
            lone.store.write(half),
            lone.create(),
            return_exceptions=True,
        )
        await eventually(lambda: queued(lone) == 5)
    answers = await racing
    assert [type(said) for said in answers] == [dict, OwnError, dict, OwnError, dict]
    # The batch is taken back once and run again, with a savepoint for each command.
    assert [held.seen.count(words) for words in ("BEGIN IMMEDIATE", "SAVEPOINT command", "COMMIT")] == [2, 5, 1]
    assert await last_event(lone) == 4
    assert (await lone("get_review_status", review_id=review_id))["status"] == "claimed"


async def test_a_command_that_is_refused_before_it_changes_anything_costs_the_others_nothing(lone: LocalBroker) -> None:
    def refuse(_tx: Any) -> None:
        raise OwnError

    async with busy_writer(lone) as held:
        racing = asyncio.gather(lone.create(), lone.store.write(refuse), lone.create(), return_exceptions=True)
        await eventually(lambda: queued(lone) == 3)
    assert [type(said) for said in await racing] == [dict, OwnError, dict]
    assert [held.seen.count(words) for words in ("BEGIN IMMEDIATE", "SAVEPOINT command", "COMMIT")] == [1, 0, 1]
    assert await last_event(lone) == 2


async def test_a_refused_call_gives_its_key_back_and_the_others_are_stored_once(lone: LocalBroker) -> None:
    """It took the key before it was refused, so the batch is run again."""
    closed = (await lone.create())["review_id"]
    await lone("close_review", review_id=closed)
    again = {"review_id": closed, "idempotency_key": "k"}
    async with busy_writer(lone) as held:
        racing = asyncio.gather(lone.create(), lone("close_review", **again), lone.create(), return_exceptions=True)
        await eventually(lambda: queued(lone) == 3)
    assert [type(said) for said in await racing] == [dict, ToolError, dict]
    assert [held.seen.count(words) for words in ("BEGIN IMMEDIATE", "SAVEPOINT command", "COMMIT")] == [2, 3, 1]
    assert await last_event(lone) == 4
    assert await refused(lone("close_review", **again)) == "invalid_transition"
    assert problems(lone.database) == []


@contextlib.contextmanager
def taken_between_two_runs(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> Generator[sqlite3.Connection]:
    """Another process takes the lock as soon as a batch is taken back."""
    take_back = Writer._rolled_back
    other = sqlite3.connect(broker.database, isolation_level=None, check_same_thread=False)

    def taken_back(writer: Writer, error: Exception) -> BaseException:
        result = take_back(writer, error)
        if not other.in_transaction:
            other.execute("BEGIN IMMEDIATE")
        return result

    with contextlib.closing(other), monkeypatch.context() as patched:
        patched.setattr(Writer, "_rolled_back", taken_back)
        yield other


async def test_a_batch_that_is_run_again_waits_for_the_lock(lone: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    half = half_done(lone)
    with taken_between_two_runs(lone, monkeypatch) as other:
        racing = asyncio.gather(lone.create(), lone.store.write(half), lone.create(), return_exceptions=True)
        await eventually(lambda: other.in_transaction and lone.store.writer.is_away)
        other.execute("ROLLBACK")
        answers = await racing
    assert [type(said) for said in answers] == [dict, OwnError, dict]
    assert await last_event(lone) == 2


async def test_a_batch_that_cannot_be_run_again_is_refused_and_leaves_nothing(
    lone: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = half_done(lone)
    review_id = (await lone.create())["review_id"]
    lone.store.writer.patience_milliseconds = 50
    with taken_between_two_runs(lone, monkeypatch) as other:
        with pytest.raises(BrokerError) as busy:
            await lone.store.write(half)
        other.execute("ROLLBACK")
    assert busy.value.code is Code.BUSY
    assert (await lone("get_review_status", review_id=review_id))["status"] == "pending"
    assert (await lone.create())["version"] == 1
    assert await last_event(lone) == 2


async def test_a_command_that_fails_in_a_batch_of_one_leaves_nothing(lone: LocalBroker) -> None:
    half = half_done(lone)
    review_id = (await lone.create())["review_id"]
    with pytest.raises(OwnError):
        await lone.store.write(half)
    assert (await lone("get_review_status", review_id=review_id))["status"] == "pending"
    assert (await lone.create())["version"] == 1
    assert await last_event(lone) == 2


def orphan(connection: sqlite3.Connection) -> None:
    """A row that does not belong to a review: SQLite refuses it, and only at the commit."""
    connection.execute("PRAGMA defer_foreign_keys=ON")
    connection.execute(
        "INSERT INTO revisions (review_id, number, intent, skip_diff_validation, affected_files, author, "
        "written_by, created_at) VALUES ('nobody', 1, '', 0, '[]', '', '', 0)"
    )


async def test_a_commit_that_fails_alone_leaves_nothing(lone: LocalBroker) -> None:
    for number in range(3):
        await lone.create()
        with pytest.raises(sqlite3.IntegrityError):
            await lone.store.write(lambda _tx: orphan(writer_of(lone)))
        assert await last_event(lone) == number + 1


async def test_a_commit_that_fails_acknowledges_nothing_and_wakes_nobody(lone: LocalBroker) -> None:
    review_id = (await lone.create())["review_id"]
    with lone.application.wakeups.listening(review_topic(ReviewId(review_id))) as woken:
        async with busy_writer(lone):
            racing = asyncio.gather(
                lone("claim_review", review_id=review_id, reviewer_id="codex"),
                lone.store.write(lambda _tx: orphan(writer_of(lone))),
                lone.create(),
                return_exceptions=True,
            )
            await eventually(lambda: queued(lone) == 3)
        answers = await asyncio.wait_for(racing, DEADLINE)
        assert all(isinstance(said, Exception) for said in answers), answers
        assert not woken.is_set()
        assert (await lone("get_review_status", review_id=review_id))["version"] == 1
        assert await last_event(lone) == 1
        assert (await lone("claim_review", review_id=review_id, reviewer_id="codex"))["version"] == 2
        assert woken.is_set()
    assert await last_event(lone) == 2


async def test_writes_that_come_together_share_their_commits(lone: LocalBroker) -> None:
    seen: list[str] = []
    writer_of(lone).set_trace_callback(seen.append)
    created = await asyncio.gather(*(lone.create(intent=f"intent {number}") for number in range(200)))
    assert len({one["review_id"] for one in created}) == 200
    assert await last_event(lone) == 200
    assert 1 <= seen.count("COMMIT") <= 50


async def test_the_log_of_writes_does_not_grow_for_ever(lone: LocalBroker) -> None:
    for _ in range(20):
        await asyncio.gather(*(lone.create(description=LARGE[:10_000]) for _ in range(30)))
    await lone.create()
    written = lone.database.stat().st_size
    log_size = lone.database.with_name(lone.database.name + "-wal").stat().st_size
    assert written > 6_000_000
    # SQLite's own measure is 4 MB; one batch more may stand before somebody looks.
    assert log_size < 12_000_000


async def test_reads_go_on_while_the_writer_is_stuck(lone: LocalBroker) -> None:
    review_id = (await lone.create())["review_id"]
    async with busy_writer(lone):
        claiming = asyncio.create_task(lone("claim_review", review_id=review_id, reviewer_id="codex"))
        async with asyncio.timeout(DEADLINE):
            assert (await lone("get_review_status", review_id=review_id))["status"] == "pending"
            assert [row["id"] for row in (await lone("list_reviews"))["reviews"]] == [review_id]
            assert len((await lone("get_audit_log"))["events"]) == 1
        assert not claiming.done()
    assert (await claiming)["status"] == "claimed"


# Callers that go away.


async def test_a_caller_that_goes_away_while_its_write_is_queued_leaves_it_whole_or_absent(lone: LocalBroker) -> None:
    async with busy_writer(lone):
        creating = asyncio.create_task(lone.create())
        await eventually(lambda: queued(lone) == 1)
        creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    await lone.create()
    assert len((await lone("list_reviews"))["reviews"]) == await last_event(lone)


async def test_a_caller_that_goes_away_during_its_commit_leaves_it_whole(lone: LocalBroker) -> None:
    held = Held(lone)
    creating = [asyncio.create_task(lone.create()) for _ in range(2)]
    assert await asyncio.to_thread(held.reached.wait, DEADLINE)
    creating[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating[0]
    held.go_on()
    await creating[1]
    await lone.create()
    assert len((await lone("list_reviews"))["reviews"]) == await last_event(lone) == 3


async def test_a_caller_that_goes_away_after_the_commit_leaves_it_whole(lone: LocalBroker) -> None:
    held = Held(lone)
    creating = [asyncio.create_task(lone.create()) for _ in range(2)]
    assert await asyncio.to_thread(held.reached.wait, DEADLINE)
    end = time.monotonic() + DEADLINE
    with contextlib.closing(sqlite3.connect(f"{lone.database.as_uri()}?mode=ro", uri=True)) as another:
        # From here on the event loop stands still: nothing is acknowledged before the caller has gone.
        held.go_on()
        while _count(another) == 0:
            assert time.monotonic() < end
    creating[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating[0]
    assert (await creating[1])["status"] == "pending"
    assert [row["status"] for row in (await lone("list_reviews"))["reviews"]] == ["pending"] * 2


async def test_a_caller_that_goes_away_while_another_process_holds_the_lock_leaves_it_whole(lone: LocalBroker) -> None:
    await lone.create()
    with held_by_another_process(lone.database):
        creating = asyncio.create_task(lone.create())
        done, _ = await asyncio.wait([creating], timeout=0.1)
        assert not done
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
    await lone.create()
    assert len((await lone("list_reviews"))["reviews"]) == await last_event(lone) == 3


def _count(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT count(*) FROM events").fetchone()[0]


async def test_callers_that_go_away_at_any_moment_tear_nothing(lone: LocalBroker) -> None:
    review_id = (await lone.create())["review_id"]
    await lone("claim_review", review_id=review_id, reviewer_id="codex")
    calls: list[Callable[[], Any]] = [
        lone.create,
        lambda: lone("add_message", review_id=review_id, sender_role="proposer", body="so?"),
        lambda: lone("submit_verdict", review_id=review_id, verdict="comment", reason="hm", claim_generation=1),
    ]
    acknowledged = 0
    for turns, call in itertools.product(range(25), calls):
        task = asyncio.create_task(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
            acknowledged += 1
    await lone.create()
    assert await last_event(lone) >= acknowledged + 3


# Files.


async def test_a_hot_backup_restores_whole(tmp_path: Path) -> None:
    (tmp_path / "restored").mkdir()
    async with local_broker(tmp_path) as broker:
        review_id = (await broker.create())["review_id"]
        stop = asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                await broker.create(description=LARGE[:5_000])

        loading = [asyncio.create_task(load()) for _ in range(8)]
        await eventually(lambda: _count_of(broker.database) > 50)
        copy = await asyncio.to_thread(_backed_up, broker.database)
        stop.set()
        await asyncio.gather(*loading)
    assert problems(copy) == []
    copied = [event.hash for event in events_of(copy)]
    assert len(copied) > 50
    assert copied == [event.hash for event in events_of(broker.database)][: len(copied)]
    copy.rename(tmp_path / "restored" / "broker.sqlite3")
    async with local_broker(tmp_path / "restored") as restored:
        assert (await restored("claim_review", review_id=review_id, reviewer_id="codex"))["version"] == 2
    assert problems(restored.database) == []


def _backed_up(database: Path) -> Path:
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as source:
        return migrations.back_up(source, database, "hot")


def _count_of(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT count(*) FROM events").fetchone()[0]


def _garbled(content: bytes) -> bytes:
    return b"this was a database once" + content[24:]


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize("damage", [_garbled, _cut], ids=["garbled", "cut"])
@pytest.mark.slow
def test_a_damaged_database_is_refused_and_kept(
    repository: Path, own_home: Path, damage: Callable[[bytes], bytes]
) -> None:
    with BrokerProcess(repository, home=own_home) as process:
        client = process.client()
        for _ in range(20):
            client("create_review", **PROPOSAL, description=LARGE)
        client.close()
        process.stop()
    damaged = damage(process.database.read_bytes())
    process.database.write_bytes(damaged)
    refusal = run_broker(repository, own_home, "--port", "0")
    assert refusal.returncode == 3
    assert "damaged" in refusal.stderr
    assert "backup" in refusal.stderr
    assert "Traceback" not in refusal.stderr
    assert process.database.read_bytes() == damaged


@pytest.mark.slow
def test_a_second_broker_on_one_database_exits_at_once_and_names_the_first(
    process: BrokerProcess, own_home: Path
) -> None:
    assert process.process is not None
    refusal = run_broker(process.folder, own_home, "--port", "0")
    assert refusal.returncode == 3
    assert str(process.process.pid) in refusal.stderr


# The checks themselves.

_ORPHAN = """INSERT INTO messages (review_id, round, sender_role, sender, body, created_at)
             VALUES ('nobody', 1, 'proposer', 'x', 'y', 0)"""
TAMPERED = {
    "UPDATE events SET actor = 'mallory' WHERE id = 2": "was altered",
    "DELETE FROM events WHERE id = 2": "gap",
    "DELETE FROM events WHERE id = (SELECT max(id) FROM events)": "gap",
    "UPDATE reviews SET status = 'approved'": "status is stored as",
    "UPDATE reviews SET claim_generation = 7": "claim_generation is stored as",
    "UPDATE reviews SET claim_expires_at = NULL": "a live claim has",
    "UPDATE reviews SET claimed_by = NULL": "claimed_by is stored as",
    "DELETE FROM revisions": "revisions are numbered",
    "UPDATE revisions SET intent = 'another'": "newest revision's",
    "UPDATE findings SET disposition = 'fixed'": "open_finding_count",
    "UPDATE reviews SET counter_patch_status = 'pending'": "counter_patch_status",
    "DELETE FROM messages": "each message",
    _ORPHAN: "foreign key",
}


@pytest.mark.parametrize("tampering", TAMPERED, ids=lambda said: said[:50])
async def test_the_invariants_notice(tmp_path: Path, tampering: str) -> None:
    async with local_broker(tmp_path) as broker:
        review_id = (await broker.create())["review_id"]
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
        await broker("add_message", review_id=review_id, sender_role="reviewer", body="why?")
        finding = {"title": "off by one", "body": "look", "severity": "low"}
        comment = {"verdict": "comment", "reason": "hm", "claim_generation": 1, "findings": [finding]}
        await broker("submit_verdict", review_id=review_id, **comment)
    assert problems(broker.database) == []
    with contextlib.closing(sqlite3.connect(broker.database)) as connection, connection:
        connection.execute(tampering)
    assert any(TAMPERED[tampering] in found for found in problems(broker.database)), problems(broker.database)


async def test_an_unexpected_error_in_a_command_reaches_its_caller_as_it_is(lone: LocalBroker) -> None:
    def refuse(_tx: Any) -> None:
        raise BrokerError(Code.CONFLICT, "no", "Call again.")

    with pytest.raises(BrokerError) as refusal:
        await lone.store.write(refuse)
    assert refusal.value.code is Code.CONFLICT
    assert (await lone.create())["version"] == 1
