"""A database moves to another place while no broker uses it: nothing of it changes, and one of the two is used."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gsd_review_broker import maintenance
from gsd_review_broker.errors import StartError
from gsd_review_broker.pool.supervisor import Neighbours
from gsd_review_broker.settings.locations import COMMAND_LINE, chosen_database
from gsd_review_broker.settings.state_files import Database, moved_path
from gsd_review_broker.store import lock, verification
from gsd_review_broker.store.postgres import copying
from gsd_review_broker.store.tables import audit_head
from gsd_review_broker.store.writes import MOVED_HEAD
from tests.integration.store.test_lock_order import reviewer
from tests.support import postgres
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.waiting import PATIENCE

WAYS = (
    "sqlite",
    pytest.param("postgres_from_sqlite", marks=pytest.mark.postgres),
    pytest.param("postgres_to_sqlite", marks=pytest.mark.postgres),
)


@dataclass
class Ends:
    folder: Path
    source: Database
    target: Database

    @contextlib.asynccontextmanager
    async def broker(self, **settings: Any) -> AsyncGenerator[LocalBroker]:
        async with local_broker(self.folder, db=self.source.url or str(self.source.path), **settings) as broker:
            yield broker

    @contextlib.asynccontextmanager
    async def broker_there(self) -> AsyncGenerator[LocalBroker]:
        async with local_broker(self.folder / "there", db=self.target.url or str(self.target.path)) as broker:
            yield broker

    async def live(self) -> str:
        """A broker that has stopped again. Returns the review that it has stored."""
        async with self.broker() as broker:
            return (await broker.create())["review_id"]

    async def move(self) -> maintenance.MoveReport:
        return await asyncio.to_thread(maintenance.move, self.source, self.target)

    async def require_usable(self) -> None:
        """Nothing has happened to the source."""
        async with self.broker() as broker:
            await broker.create()

    async def require_unfinished(self) -> None:
        with pytest.raises(StartError, match=r"was not finished; run `tandem db migrate-to` again: it starts over"):
            async with self.broker_there():
                pass


@pytest.fixture(params=WAYS)
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Ends]:
    source, target = Database(tmp_path / "broker.sqlite3"), Database(tmp_path / "new" / "moved.sqlite3")
    with contextlib.ExitStack() as stack:
        if request.param == "postgres_from_sqlite":
            url = stack.enter_context(postgres.own_database("target", empty=True))
            target = chosen_database(url, COMMAND_LINE, None)
        if request.param == "postgres_to_sqlite":
            url = stack.enter_context(postgres.own_database("source"))
            source = chosen_database(url, COMMAND_LINE, None)
        yield Ends(tmp_path, source, target)


async def test_a_database_that_a_broker_uses_is_not_moved(ends: Ends) -> None:
    async with ends.broker() as broker:
        await broker.create()
        expected = rf"in use by .*\(pid {os.getpid()}\); stop it with `tandem down`, and run this again"
        with pytest.raises(StartError, match=expected):
            await ends.move()
        await broker.create()
    assert (await ends.move()).reviews == 2


async def test_after_the_move_a_broker_starts_on_the_new_database_alone(ends: Ends) -> None:
    review_id = await ends.live()
    assert (await ends.move()).reviews == 1
    with pytest.raises(StartError, match=r"was moved to .*; use that one .* run `tandem db reopen`") as refusal:
        await ends.live()
    assert str(ends.target) in str(refusal.value)
    with pytest.raises(StartError, match=r"was moved to .* already; move that one, or open this one again"):
        await ends.move()
    async with ends.broker_there() as there:
        assert (await there("get_review_status", review_id=review_id))["status"] == "pending"
        await there.create()
    assert (await asyncio.to_thread(maintenance.verify, ends.target)).problems == []


async def test_a_database_that_was_moved_can_be_opened_again(ends: Ends) -> None:
    await ends.live()
    await ends.move()
    for expected in (str(ends.target), None):
        assert await asyncio.to_thread(maintenance.reopen, ends.source) == expected
        await ends.require_usable()
    assert (await asyncio.to_thread(maintenance.verify, ends.source)).problems == []


def at_the_verification(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """The copy is there, and the source is not marked yet."""
    verify = verification.verify

    def verified(database: Path) -> verification.VerificationReport:
        monkeypatch.setattr(verification, "verify", verify)
        do()
        return verify(database)

    monkeypatch.setattr(verification, "verify", verified)


async def test_while_a_database_is_copied_no_broker_starts_on_it(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent may start one at any moment."""
    await ends.live()
    refusals: list[StartError] = []

    def start() -> None:
        for broker in (ends.broker(), ends.broker_there()):
            with ThreadPoolExecutor(1) as thread, pytest.raises(StartError) as refusal:
                thread.submit(asyncio.run, entered(broker)).result()
            refusals.append(refusal.value)

    at_the_verification(monkeypatch, start)
    assert (await ends.move()).reviews == 1
    assert "or by `tandem db migrate-to` (pid" in str(refusals[0])


async def entered(broker: contextlib.AbstractAsyncContextManager[LocalBroker]) -> None:
    async with broker:
        pass


async def test_a_broker_that_waits_for_the_lock_finds_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends(tmp_path, Database(tmp_path / "broker.sqlite3"), Database(tmp_path / "moved.sqlite3"))
    await ends.live()
    acquire = lock.acquire_lock

    def after_the_move(path: Path) -> int | None:
        lock.mark_moved(ends.source, "elsewhere")
        return acquire(path)

    monkeypatch.setattr(lock, "acquire_lock", after_the_move)
    with pytest.raises(StartError, match="was moved to elsewhere"):
        await ends.live()


async def test_reviewers_of_the_old_broker_are_not_waited_for_in_the_new_database(ends: Ends) -> None:
    """A broker that was killed left them."""
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
from gsd_review_broker import maintenance
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store import verification

def paused(_):
    print("copied", flush=True)
    time.sleep(600)

verification.verify = paused
source, target = [Database(Path(path), url or None) for path, url in zip(sys.argv[1::2], sys.argv[2::2])]
maintenance.move(source, target)
"""


async def test_a_move_that_is_killed_changes_nothing_and_is_done_again(ends: Ends) -> None:
    """At its last moment: the target has every row, and is not finished."""
    await ends.live()
    names = [text for end in (ends.source, ends.target) for text in (str(end.path), end.url or "")]
    mover = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PAUSED, *names, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert mover.stdout is not None
    said = await asyncio.wait_for(mover.stdout.readline(), PATIENCE)
    if said != b"copied\n":
        pytest.fail((await mover.communicate())[1].decode())
    mover.kill()
    await mover.communicate()
    await ends.require_usable()
    await ends.require_unfinished()
    assert (await ends.move()).reviews == 2


async def test_a_move_that_died_before_its_target_was_finished_is_done_again(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(_target: object) -> None:
        raise OSError("the power is gone")

    await ends.live()
    with monkeypatch.context() as patched:
        for target in (maintenance._FileTarget, copying.PostgresTarget):
            patched.setattr(target, "finish", die)
        with pytest.raises(StartError, match="the power is gone"):
            await ends.move()
    # The mark decides: no broker opens the old database, nor half of the new one.
    with pytest.raises(StartError, match="was moved to"):
        await ends.live()
    await ends.require_unfinished()
    assert (await ends.move()).reviews == 1
    async with ends.broker_there() as there:
        await there.create()


async def test_a_database_that_is_not_whole_is_not_moved(ends: Ends) -> None:
    await ends.live()
    statement = "UPDATE reviews SET intent = 'altered'"
    if ends.source.url is None:
        alter(ends.source.path, statement)
    else:
        await postgres.execute(ends.source.url, statement)
    with pytest.raises(StartError, match=r"is not whole .* nothing was moved"):
        await ends.move()
    await ends.require_usable()


def alter(path: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


async def test_a_row_that_was_not_stored_is_noticed_before_the_source_is_marked(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ends.live()
    with monkeypatch.context() as patched:
        for target in (maintenance._FileTarget, copying.PostgresTarget):
            patched.setattr(target, "copied", _without_reviews(target.copied))
        with pytest.raises(StartError, match=r"the copy .* differs in reviews; run this again"):
            await ends.move()
    await ends.require_usable()
    assert (await ends.move()).reviews == 2


def _without_reviews(copied: Any) -> Any:
    async def fewer(target: object, folder: Path) -> Path:
        copy = await copied(target, folder)
        alter(copy, "DELETE FROM reviews")
        return copy

    return fewer


def test_a_database_that_is_not_there_is_not_moved(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"there is no database .*nothing"):
        maintenance.move(Database(tmp_path / "nothing"), Database(tmp_path / "moved.sqlite3"))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_mark_that_cannot_be_read_forbids_writing_and_shows_nothing_strange(tmp_path: Path) -> None:
    database = Database(tmp_path / "broker.sqlite3")
    assert lock.moved_to(database) is None
    lock.mark_moved(database, "sqlite\x1b[2J")
    assert lock.moved_to(database) == "sqlite?[2J"
    assert moved_path(database).stat().st_mode & 0o777 == 0o600
    for content in (b"", b"[]", b"{}", b"\xff", b"x" * 5_000):
        moved_path(database).write_bytes(content)
        assert lock.moved_to(database) == "an unknown place (broker.sqlite3.moved cannot be read)"
    lock.reopen(database)
    lock.reopen(database)
    assert lock.moved_to(database) is None


async def test_a_database_can_move_back_to_where_it_was(tmp_path: Path) -> None:
    here, there = Database(tmp_path / "broker.sqlite3"), Database(tmp_path / "there.sqlite3")
    async with local_broker(tmp_path) as broker:
        await broker.create()
    await asyncio.to_thread(maintenance.move, here, there)
    with pytest.raises(StartError, match="exists already; give a new file's path"):
        await asyncio.to_thread(maintenance.move, there, here)
    here.path.rename(tmp_path / "old.sqlite3")
    with pytest.raises(StartError, match="was moved to"):
        async with local_broker(tmp_path, db=str(here)):
            pass
    await asyncio.to_thread(maintenance.move, there, here)
    async with local_broker(tmp_path) as broker:
        await broker.create()
    assert not moved_path(here).exists()


async def test_a_head_that_is_not_found_stops_every_command(tmp_path: Path) -> None:
    """On PostgreSQL: a broker on another machine that could not say that it runs writes nothing after the move."""
    async with local_broker(tmp_path) as broker:
        await broker.store.write(lambda tx: tx.statements.run(sa.update(audit_head).values(id=MOVED_HEAD), {}))
        with pytest.raises(ToolError, match="unavailable: the reviews of this database were moved"):
            await broker.create()
        assert (await broker("list_reviews"))["reviews"] == []
