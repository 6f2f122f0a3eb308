"""A database moves away from under a running broker: its writes are held for a moment, and nothing of them is lost."""

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gsd_review_broker import maintenance, moving
from gsd_review_broker.domain.tokens import SignInLink
from gsd_review_broker.errors import StartError
from gsd_review_broker.pool.neighbours import Neighbours
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.settings.database import Database
from gsd_review_broker.settings.state_files import draft_path, moved_path
from gsd_review_broker.store import changes
from gsd_review_broker.store.sqlite import moved as mark
from gsd_review_broker.store.sqlite import moving as sqlite_moving
from gsd_review_broker.store.tables import audit_head, metadata
from gsd_review_broker.store.writes import MOVED_HEAD, MovedAwayError, lock_head
from tests.integration.store.test_lock_order import reviewer, use_pool, use_tools
from tests.support import postgres
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.waiting import PATIENCE

WAYS = (
    "sqlite",
    pytest.param("postgres_from_sqlite", marks=pytest.mark.postgres),
    pytest.param("postgres_to_sqlite", marks=pytest.mark.postgres),
)
# Where the two ways between SQLite and PostgreSQL share all that is tested.
SOME_WAYS = pytest.mark.parametrize("ends", WAYS[:2], indirect=True)


@dataclass
class Ends:
    folder: Path
    source: Database
    target: Database

    @contextlib.asynccontextmanager
    async def broker(self) -> AsyncGenerator[LocalBroker]:
        async with local_broker(self.folder, db=self.source.url or str(self.source.path)) as broker:
            yield broker

    @contextlib.asynccontextmanager
    async def broker_there(self) -> AsyncGenerator[LocalBroker]:
        async with local_broker(self.folder / "there", db=self.target.url or str(self.target.path)) as broker:
            yield broker

    async def move(self) -> moving.Moved:
        return await asyncio.to_thread(moving.move, self.source, self.target)

    async def rows(self) -> dict[str, Any]:
        return await asyncio.to_thread(rows_of, self.source)

    async def rows_there(self) -> dict[str, Any]:
        return await asyncio.to_thread(rows_of, self.target)


@pytest.fixture(params=WAYS)
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Ends]:
    source, target = Database(tmp_path / "broker.sqlite3"), Database(tmp_path / "new" / "moved.sqlite3")
    with contextlib.ExitStack() as stack:
        if request.param == "postgres_from_sqlite":
            url = stack.enter_context(postgres.own_database("target", empty=True))
            target = Database(tmp_path / "state" / "target", url)
        if request.param == "postgres_to_sqlite":
            url = stack.enter_context(postgres.own_database("source"))
            source = Database(tmp_path / "state" / "source", url)
        yield Ends(tmp_path, source, target)


def rows_of(database: Database) -> dict[str, Any]:
    """Of every table; and the last numbers. The head of a database that was moved away has another number."""
    with maintenance.as_file(database) as path, contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TEMP VIEW head AS SELECT sequence, hash FROM audit_head")
        names = {table.name for table in metadata.sorted_tables} - {"audit_head"} | {"head", "sqlite_sequence"}
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}


def wait_for_the_lock(broker: LocalBroker, seconds: float) -> None:
    if broker.store.is_shared:
        broker.store.patience_seconds = seconds
    else:
        broker.store.writer.patience_milliseconds = round(seconds * 1000)


async def at_the_database(broker: LocalBroker) -> None:
    """Until as many commands as may are on their way to the server."""
    async with asyncio.timeout(PATIENCE):
        while broker.store.is_shared and broker.store._in_use < 7:
            await asyncio.sleep(0.001)


async def test_writes_wait_for_the_end_of_the_hold_and_reads_go_on(ends: Ends) -> None:
    async with ends.broker() as broker:
        review_id = (await broker.create())["review_id"]
        wait_for_the_lock(broker, PATIENCE)
        async with moving._source_of(ends.source).held():
            # More than there are connections.
            writing = [asyncio.create_task(broker.create(intent=f"number {number}")) for number in range(15)]
            await at_the_database(broker)
            for _ in range(20):
                assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"
                assert len((await broker("list_reviews"))["reviews"]) == 1
            assert not any(task.done() for task in writing)
        assert len({(await task)["review_id"] for task in writing}) == 15


async def test_a_write_that_waits_too_long_is_refused_and_its_repetition_is_done_once(ends: Ends) -> None:
    async with ends.broker() as broker:
        async with moving._source_of(ends.source).held():
            wait_for_the_lock(broker, 0.1)
            for _ in range(2):
                with pytest.raises(ToolError, match=r"tandem db migrate-to` (does|holds its writes)") as refused:
                    await broker.create(idempotency_key="once")
                assert refused.value.code == "busy"
                assert refused.value.hint == "Nothing was stored; call again in a moment."
            assert (await broker("list_reviews"))["reviews"] == []
        wait_for_the_lock(broker, PATIENCE)
        created = [(await broker.create(idempotency_key="once"))["review_id"] for _ in range(2)]
        assert [row["id"] for row in (await broker("list_reviews"))["reviews"]] == created[:1]


async def test_a_command_without_an_event_waits_too(ends: Ends) -> None:
    """A move must have its rows as well."""
    async with ends.broker() as broker:
        async with moving._source_of(ends.source).held():
            wait_for_the_lock(broker, 0.1)
            with pytest.raises(Exception, match="busy"):
                await broker.application.broker.pool.records.beat()
        wait_for_the_lock(broker, PATIENCE)
        await broker.application.broker.pool.records.beat()


async def test_what_is_stored_while_the_copy_is_made_is_in_the_target(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New, changed and deleted rows of every kind: after the copy, and again after the target has followed."""
    link = SignInLink(hash="h", sealed_token="t", page="/", expires_at=0)  # pyright: ignore[reportArgumentType]
    async with ends.broker() as broker:
        loop, prepare = asyncio.get_running_loop(), moving._Move._prepare
        target = moving._target_of(ends.target)
        load = type(target).load

        async def first() -> None:
            await use_pool(broker)
            await broker.store.write(lambda tx: tx.take_sign_in_link("h"))
            await broker.application.broker.tokens.revoke("ada")
            await broker.application.broker.tokens.new(None, "human", name="ada", project=None, expires="1d")

        async def second() -> None:
            await use_tools(broker)
            broker.clock.pass_time(3_600)
            pruned = await broker.application.broker.retention.prune(iso(broker.clock.now()))
            assert pruned["reviews"] > 0

        def now(work: Any) -> None:
            asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)

        async def loaded(self: Any, base: Path) -> None:
            await load(self, base)
            now(first())

        async def prepared(move: Any) -> None:
            await prepare(move)
            now(second())

        await broker.create(idempotency_key="before")
        await broker.store.write(lambda tx: tx.save_sign_in_link(link, tx.now))
        await broker.application.broker.tokens.new(None, "human", name="ada", project=None, expires="1d")
        closed = (await broker.create())["review_id"]
        await broker("close_review", review_id=closed)
        monkeypatch.setattr(type(target), "load", loaded)
        monkeypatch.setattr(moving._Move, "_prepare", prepared)
        moved = await ends.move()
    there = await ends.rows_there()
    assert there == await ends.rows()
    assert moved.reviews == len(there["reviews"]) > 3
    assert closed not in str(there["reviews"])
    assert there["sign_in_links"] == []


async def test_after_the_move_the_old_broker_refuses_to_write_and_says_where_to_go(ends: Ends) -> None:
    async with ends.broker() as broker:
        review_id = (await broker.create())["review_id"]
        await ends.move()
        for _ in range(2):
            with pytest.raises(ToolError) as refused:
                await broker.create()
            assert refused.value.code == "unavailable"
            assert refused.value.message == f"this broker's database was moved to {ends.target}"
            assert "Restart the broker with that database" in refused.value.hint
            assert "`tandem db reopen`" in refused.value.hint
        assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"
        assert (await broker.page("/")).count("nothing is stored here") == 1
        async with ends.broker_there() as there:
            assert (await there("get_review_status", review_id=review_id))["status"] == "pending"
            await there.create()
    with pytest.raises(StartError, match=r"was moved to .*; use that one .* run `tandem db reopen`"):
        async with ends.broker():
            pass
    with pytest.raises(StartError, match=r"was moved to .* already; move that one, or open this one again"):
        await ends.move()


async def test_who_wants_the_old_database_again_opens_it_again(ends: Ends) -> None:
    async with ends.broker() as broker:
        await ends.move()
        with pytest.raises(ToolError, match="was moved"):
            await broker.create()
        assert await asyncio.to_thread(moving.reopen, ends.source) == str(ends.target)
        await broker.create()
        assert broker.store.moved_to is None
        assert await asyncio.to_thread(moving.reopen, ends.source) is None
        await broker.create()
    async with ends.broker() as broker:
        assert len((await broker("list_reviews"))["reviews"]) == 2
    assert (await asyncio.to_thread(maintenance.verify, ends.source)).problems == []


async def test_reviewers_of_the_old_broker_are_not_waited_for_in_the_new_database(ends: Ends) -> None:
    """They run on, and ask the old broker, which stores nothing any more."""
    async with ends.broker() as broker:
        one = replace(reviewer("codex"), broker_id=broker.store.broker_id)
        await broker.application.broker.pool.records.begun(one)
        review_id = (await broker.create())["review_id"]
        await broker("claim_review", review_id=review_id, reviewer_id=one.id)
        await ends.move()
    async with ends.broker_there() as there:
        if there.store.is_shared:
            application = there.application
            await Neighbours(there.store, application.broker.pool.records, application.pool.roster).once()
        else:
            await there.application.pool.start()
        assert (await there("get_review_status", review_id=review_id))["status"] == "pending"


PAUSED = """
import sys, time
from pathlib import Path
from gsd_review_broker import moving
from gsd_review_broker.pool.neighbours import Neighbours
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.settings.database import Database

follow, turns = moving._Move._follow, []

async def paused(move):
    turns.append(await follow(move))
    if len(turns) == 2:
        print("held", flush=True)
        time.sleep(600)
    return turns[-1]

moving._Move._follow = paused
source, target = [Database(Path(path), url or None) for path, url in zip(sys.argv[1::2], sys.argv[2::2])]
moving.move(source, target)
"""


async def test_the_hold_ends_when_its_process_is_killed(ends: Ends) -> None:
    """At its last moment: the target has every row, and is not finished."""
    async with ends.broker() as broker:
        await broker.create()
        names = [text for end in (ends.source, ends.target) for text in (str(end.path), end.url or "")]
        mover = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PAUSED, *names, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert mover.stdout is not None
        said = await asyncio.wait_for(mover.stdout.readline(), PATIENCE)
        if said != b"held\n":
            pytest.fail((await mover.communicate())[1].decode())
        writing = asyncio.create_task(broker.create())
        assert len((await broker("list_reviews"))["reviews"]) == 1
        assert not writing.done()
        mover.send_signal(signal.SIGKILL)
        await mover.communicate()
        await asyncio.wait_for(writing, PATIENCE)
        with pytest.raises(StartError, match=r"was not finished; run `tandem db migrate-to` again: it starts over"):
            async with ends.broker_there():
                pass
        assert (await ends.move()).reviews == 2
    assert await ends.rows_there() == await ends.rows()


async def test_a_move_that_died_before_its_target_was_finished_is_done_again(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(_target: object) -> None:
        raise OSError("the power is gone")

    async with ends.broker() as broker:
        await broker.create()
        with monkeypatch.context() as patched:
            patched.setattr(type(moving._target_of(ends.target)), "finish", die)
            with pytest.raises(StartError, match="the power is gone"):
                await ends.move()
        # The mark decides: nothing is stored in the old database any more.
        with pytest.raises(ToolError, match="was moved"):
            await broker.create()
        with pytest.raises(StartError, match="was not finished"):
            async with ends.broker_there():
                pass
        assert (await ends.move()).reviews == 1
        with pytest.raises(ToolError, match="was moved"):
            await broker.create()
    async with ends.broker_there() as there:
        await there.create()


@SOME_WAYS
async def test_of_two_moves_one_is_done(ends: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each has copied everything; the second to hold the writes finds the other's mark."""
    prepare = moving._Move._prepare
    other = Database(tmp_path / "other.sqlite3")

    async def prepared(move: Any) -> None:
        await prepare(move)
        monkeypatch.setattr(moving._Move, "_prepare", prepare)
        await asyncio.to_thread(moving.move, ends.source, other)

    async with ends.broker():
        monkeypatch.setattr(moving._Move, "_prepare", prepared)
        with pytest.raises(StartError, match="was moved meanwhile; nothing was moved"):
            await ends.move()
    assert moving._source_of(ends.source) is not None
    assert maintenance.verify(other).problems == []


@SOME_WAYS
async def test_two_moves_into_one_database_do_not_mix(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepare = moving._Move._prepare

    async def prepared(move: Any) -> None:
        await prepare(move)
        monkeypatch.setattr(moving._Move, "_prepare", prepare)
        await asyncio.to_thread(moving.move, ends.source, ends.target)

    async with ends.broker():
        monkeypatch.setattr(moving._Move, "_prepare", prepared)
        with pytest.raises(StartError, match=r"in use by another broker|was moved meanwhile"):
            await ends.move()


@SOME_WAYS
async def test_a_cut_over_that_takes_too_long_ends_the_hold(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_source: object, _to: str) -> None:
        await asyncio.Event().wait()

    async with ends.broker() as broker:
        with monkeypatch.context() as patched:
            patched.setattr(moving, "LONGEST_HOLD_SECONDS", 0.5)
            patched.setattr(type(moving._source_of(ends.source)), "mark_moved", never)
            with pytest.raises(StartError, match=r"the cut-over took longer than 0\.5 s; nothing was moved"):
                await ends.move()
        await broker.create()
        assert (await ends.move()).reviews == 1


@SOME_WAYS
async def test_a_row_that_was_not_stored_is_noticed_before_the_source_is_marked(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = moving._Move._prepare
    async with ends.broker() as broker:
        loop = asyncio.get_running_loop()

        async def prepared(move: Any) -> None:
            await prepare(move)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(broker.create(), loop))

        with monkeypatch.context() as patched:
            patched.setattr(moving._Move, "_prepare", prepared)
            patched.setattr(changes, "_STORE", {table: _storing_nothing(table) for table in metadata.sorted_tables})
            with pytest.raises(StartError, match=r"the copy .* differs in \w+; copy again"):
                await ends.move()
        await broker.create()
        assert (await ends.move()).reviews == 2


def _storing_nothing(table: sa.Table) -> sa.Delete:
    return sa.delete(table).where(sa.false())


def test_a_mark_that_nobody_can_read_counts_and_shows_nothing_strange(tmp_path: Path) -> None:
    database = Database(tmp_path / "broker.sqlite3")
    assert mark.moved_to(database) is None
    mark.mark(database, "sqlite\x1b[2J")
    assert mark.moved_to(database) == "sqlite?[2J"
    assert moved_path(database).stat().st_mode & 0o777 == 0o600
    for content in (b"", b"[]", b"{}", b"\xff", b"x" * 5_000):
        moved_path(database).write_bytes(content)
        assert mark.moved_to(database) == "a place that broker.sqlite3.moved does not name"
    mark.clear(database)
    mark.clear(database)
    assert mark.moved_to(database) is None


async def test_a_database_that_cannot_be_locked_is_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = Database(tmp_path / "broker.sqlite3"), Database(tmp_path / "moved.sqlite3")
    async with local_broker(tmp_path) as broker:
        await broker.create()
        monkeypatch.setattr(sqlite_moving, "_PATIENCE_SECONDS", 0.05)
        with contextlib.closing(sqlite3.connect(source.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StartError, match="cannot be held: database is locked"):
                await asyncio.to_thread(moving.move, source, target)
        # To begin with an empty one after all, one deletes the half copy.
        assert draft_path(target).exists()
        assert not target.path.exists()


async def test_a_database_can_move_back_to_where_it_was(tmp_path: Path) -> None:
    here, there = Database(tmp_path / "broker.sqlite3"), Database(tmp_path / "there.sqlite3")
    async with local_broker(tmp_path) as broker:
        await broker.create()
    await asyncio.to_thread(moving.move, here, there)
    with pytest.raises(StartError, match="exists already; give a new file's path"):
        await asyncio.to_thread(moving.move, there, here)
    here.path.rename(tmp_path / "old.sqlite3")
    with pytest.raises(StartError, match="was moved to"):
        async with local_broker(tmp_path, db=str(here)):
            pass
    await asyncio.to_thread(moving.move, there, here)
    async with local_broker(tmp_path) as broker:
        await broker.create()
    assert not moved_path(here).exists()


async def test_a_head_that_is_not_found_stops_every_command(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        await broker.store.write(lambda tx: tx.statements.run(sa.update(audit_head).values(id=MOVED_HEAD), {}))
        with pytest.raises(MovedAwayError):
            await broker.store.write(lambda tx: lock_head(tx.statements))
        assert await broker.store.glance(lambda reader: reader.last_event_id()) == 0
