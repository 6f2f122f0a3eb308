"""Several brokers on one PostgreSQL database, in this process: wake-ups, sweeps, and what a dead broker leaves."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from gsd_review_broker import maintenance
from gsd_review_broker.errors import BrokerError, StartError
from gsd_review_broker.pool import supervisor
from gsd_review_broker.pool.supervisor import Neighbours
from gsd_review_broker.ports.world import QUEUE, Wakeups
from gsd_review_broker.service import pool_records
from gsd_review_broker.settings.locations import COMMAND_LINE, chosen_database
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store import archive, verification
from gsd_review_broker.store.postgres import copying, engine
from gsd_review_broker.store.postgres.engine import CONNECTIONS
from gsd_review_broker.store.postgres.statements import PostgresStatements, unavailable
from tests.integration.store.test_lock_order import reviewer
from tests.integration.store.test_postgres import asked, cut_connections
from tests.support import postgres
from tests.support.local import LocalBroker, MovableClock, local_broker
from tests.support.mcp import ToolError
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.postgres


@pytest.fixture
async def url(postgres_database: str) -> str:
    await postgres.emptied(postgres_database)
    return postgres_database


@pytest.fixture
async def pair(
    url: str, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[LocalBroker, LocalBroker]]:
    """Both listen. The slow re-read would come too late for any test."""
    monkeypatch.setattr(engine, "REREAD_SECONDS", 3_600)
    clock = MovableClock()
    async with (
        local_broker(tmp_path, root=repository, clock=clock, db=url) as one,
        local_broker(tmp_path, root=repository, clock=clock, db=url, instance="two") as other,
    ):
        for broker in (one, other):
            await broker.store.start()
            await broker.store.listener.is_listening.wait()
        yield one, other


def neighbours_of(broker: LocalBroker) -> Neighbours:
    application = broker.application
    return Neighbours(application.store, application.broker.pool.records, application.pool.roster)


async def test_a_verdict_on_one_broker_wakes_a_waiter_on_the_other(pair: tuple[LocalBroker, LocalBroker]) -> None:
    one, other = pair
    review_id = (await one.create())["review_id"]
    claim = await one("claim_review", review_id=review_id, reviewer_id="codex")
    waiting = asyncio.create_task(other("get_review_status", review_id=review_id, wait=True, wait_seconds=200))
    while not other.application.wakeups.waiting:
        await asyncio.sleep(0)
    await one(
        "submit_verdict",
        review_id=review_id,
        verdict="approved",
        reason="good",
        claim_generation=claim["claim_generation"],
    )
    assert (await waiting)["status"] == "approved"
    assert verification.verify(one.database).problems == []


async def test_a_reviewer_that_waits_on_one_broker_gets_what_is_proposed_on_the_other(
    pair: tuple[LocalBroker, LocalBroker],
) -> None:
    one, other = pair
    waiting = asyncio.create_task(other("claim_next", reviewer_id="codex", wait=True, wait_seconds=200))
    while not other.application.wakeups.waiting:
        await asyncio.sleep(0)
    review_id = (await one.create())["review_id"]
    assert (await waiting)["review_id"] == review_id


async def test_two_brokers_claim_one_review_and_one_gets_it(pair: tuple[LocalBroker, LocalBroker]) -> None:
    review_ids = [(await pair[0].create())["review_id"] for _ in range(4)]
    for review_id in review_ids:
        claims = [pair[n % 2]("claim_review", review_id=review_id, reviewer_id=f"r{n}") for n in range(8)]
        answers = await asyncio.gather(*claims, return_exceptions=True)
        assert sum(not isinstance(answer, Exception) for answer in answers) == 1
    assert verification.verify(pair[1].database).problems == []


async def test_a_listener_whose_connection_is_cut_connects_again_and_wakes_everybody(
    pair: tuple[LocalBroker, LocalBroker], url: str
) -> None:
    one, other = pair
    with other.application.wakeups.listening("review:x") as woken, capture_logs() as logs:
        woken.clear()
        await cut_connections(url)
        await woken.wait()
        await other.store.listener.is_listening.wait()
    assert "not_listening" in [entry["event"] for entry in logs]
    with other.application.wakeups.listening(QUEUE) as woken:
        woken.clear()
        await one.create()
        await woken.wait()


async def test_while_the_server_cannot_be_reached_the_listener_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_FIRST_PAUSE_SECONDS", 0)
    listener = engine.Listener("postgresql://nobody@127.0.0.1:1/x", Wakeups())
    with capture_logs() as logs:
        listener.start()
        while len(logs) < 3:
            await asyncio.sleep(0)
    await listener.close()
    assert {entry["event"] for entry in logs} == {"not_listening"}


def test_too_many_topics_are_all_topics() -> None:
    class Heard(Wakeups):
        everybody = 0

        def publish_all(self) -> None:
            self.everybody += 1

    class Sent:
        def __init__(self) -> None:
            self.payloads: list[str] = []

        def rows(self, _statement: Any, parameters: Any) -> list[Any]:
            self.payloads.append(parameters["payload"])
            return []

    wakeups, sent = Heard(), Sent()
    sender, receiver = (engine.Listener("postgresql://x/x", wakeups) for _ in range(2))
    sender.notify(sent, ())  # pyright: ignore[reportArgumentType]
    sender.notify(sent, [f"review:{number:016}" for number in range(1_000)])  # pyright: ignore[reportArgumentType]
    assert [json.loads(payload)[1:] for payload in sent.payloads] == [["*"]]
    for listener in (sender, receiver):
        listener._heard(None, 1, engine.CHANNEL, sent.payloads[0])
    assert wakeups.everybody == 1


async def test_what_a_notification_did_not_tell_is_read_again_after_a_while(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "REREAD_SECONDS", 0.01)
    async with local_broker(tmp_path, db=url) as broker:
        await broker.store.start()
        with broker.application.wakeups.listening("review:x") as woken:
            for _ in range(3):
                await woken.wait()
                woken.clear()


async def test_one_broker_at_a_time_sweeps(pair: tuple[LocalBroker, LocalBroker]) -> None:
    one, other = pair
    async with one.store.alone() as first, other.store.alone() as second:
        assert (first, second) == (True, False)
        assert await other.sweep() == []
    async with other.store.alone() as first:
        assert first


async def test_a_sweep_without_a_connection_is_refused(
    pair: tuple[LocalBroker, LocalBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object) -> None:
        raise ConnectionResetError("cut")

    monkeypatch.setattr(PostgresStatements, "row", dead)
    with pytest.raises(BrokerError, match="cannot be reached: cut"):
        async with pair[0].store.alone():
            pass


async def test_an_expired_claim_of_one_broker_is_taken_back_by_the_other(
    pair: tuple[LocalBroker, LocalBroker],
) -> None:
    one, other = pair
    review_id = (await one.create())["review_id"]
    await one("claim_review", review_id=review_id, reviewer_id="codex")
    one.clock.pass_time(1_300)
    assert await other.sweep() == [review_id]
    assert (await one("get_review_status", review_id=review_id))["status"] == "pending"


async def test_the_reviewers_of_a_dead_broker_are_stopped_by_another_and_their_claims_are_free(
    pair: tuple[LocalBroker, LocalBroker],
) -> None:
    one, other = pair
    review_id = (await one.create())["review_id"]
    mine = reviewer("codex").id
    for broker in pair:
        await neighbours_of(broker).once()
    await one.application.broker.pool.records.begun(reviewer("codex"))
    await one("claim_review", review_id=review_id, reviewer_id=mine)
    # Both are alive: nothing is taken away.
    one.clock.pass_time(20)
    for broker in pair:
        await neighbours_of(broker).once()
    assert (await other("get_review_status", review_id=review_id))["status"] == "claimed"
    # Nobody else acts by the claim, on either broker.
    for broker in pair:
        with pytest.raises(ToolError) as refused:
            await broker("release_claim", review_id=review_id, claim_generation=1)
        assert refused.value.code == "forbidden"
    # `one` is not heard of any more.
    one.clock.pass_time(pool_records.SILENCE_MILLISECONDS / 1_000 + 1)
    with capture_logs() as logs:
        await neighbours_of(other).once()
    assert [entry["reviewer"] for entry in logs if entry["event"] == "broker_is_silent"] == [mine]
    assert (await other("get_review_status", review_id=review_id))["status"] == "pending"
    ended = await other.store.read(lambda reader: reader.reviewer(mine))
    assert (ended.state, ended.end_reason) == ("terminated", "broker_died")
    # It is done once.
    with capture_logs() as logs:
        await neighbours_of(other).once()
    assert logs == []


async def test_a_heartbeat_that_fails_is_tried_again(
    pair: tuple[LocalBroker, LocalBroker], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "BEAT_SECONDS", 0)
    neighbour = neighbours_of(pair[0])
    beat, failures = neighbour._records.beat, [ZeroDivisionError(), unavailable("it is away")]
    beaten = asyncio.Event()

    async def fails_at_first() -> None:
        if failures:
            raise failures.pop()
        await beat()
        beaten.set()

    monkeypatch.setattr(neighbour._records, "beat", fails_at_first)
    with capture_logs() as logs:
        running = asyncio.create_task(neighbour.run())
        await beaten.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [entry["log_level"] for entry in logs if entry["event"] == "heartbeat_failed"] == ["debug", "error"]
    assert await asked(url, "SELECT count(*) FROM brokers") == 1


async def test_a_broker_on_sqlite_has_no_neighbours(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        await broker.store.start()
        await neighbours_of(broker).run()
        assert await broker.store.read(lambda reader: reader.reviewers_of_silent_brokers(1 << 60)) == []


async def test_of_two_brokers_that_prune_into_one_archive_the_slow_one_loses_nothing(
    pair: tuple[LocalBroker, LocalBroker], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one has read a review and not written it yet. Then the review changes, and the other prunes too."""
    one, other = pair
    review_id = (await one.create())["review_id"]
    await one("claim_review", review_id=review_id, reviewer_id="codex")
    await one("close_review", review_id=review_id)
    one.clock.pass_time(10)
    closed_before = "2027-01-15T08:00:05Z"
    has_read, go_on = threading.Event(), threading.Event()
    writing = archive.write

    def slowly(*arguments: Any) -> None:
        has_read.set()
        assert go_on.wait(PATIENCE)
        writing(*arguments)

    monkeypatch.setattr(archive, "write", slowly)
    slow = asyncio.create_task(one.application.broker.retention.prune(closed_before))
    assert await asyncio.to_thread(has_read.wait, PATIENCE)
    monkeypatch.setattr(archive, "write", writing)
    with pytest.raises(ToolError, match="stale_claim"):
        await one("submit_verdict", review_id=review_id, verdict="approved", claim_generation=0, reviewer_id="late")
    quick = asyncio.create_task(other.application.broker.retention.prune(closed_before))
    # The quick one waits its turn. Without that it would be done before the slow one goes on.
    while not quick.done() and not await asked(url, "SELECT count(*) FROM pg_locks WHERE NOT granted"):
        await asyncio.sleep(0)
    go_on.set()
    assert sorted([(await slow)["reviews"], (await quick)["reviews"]]) == [0, 1]
    assert one.archives == other.archives
    assert verification.verify(one.database, one.archives).problems == []


# A move, and any other holder of the lock that all writers wait for.


@pytest.fixture
def own_url() -> Generator[str]:
    with postgres.own_database("to_move") as url:
        yield url


async def test_a_database_that_a_broker_elsewhere_uses_is_not_moved(own_url: str, tmp_path: Path) -> None:
    source, target = chosen_database(own_url, COMMAND_LINE, None), Database(tmp_path / "moved.sqlite3")
    async with local_broker(tmp_path, db=own_url, instance="elsewhere") as broker:
        await broker.application.broker.pool.records.beat()
        expected = (
            rf"other brokers use the database .*, on {socket.gethostname()}; stop each of them with `tandem down`"
        )
        with pytest.raises(StartError, match=expected):
            await asyncio.to_thread(maintenance.move, source, target)
        await broker.create()
    # It has been silent for long.
    await postgres.execute(own_url, "UPDATE brokers SET heartbeat_at = 0")
    assert (await asyncio.to_thread(maintenance.move, source, target)).reviews == 1


async def test_a_broker_that_could_not_say_that_it_runs_stores_nothing_during_a_move_nor_after_it(
    own_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = chosen_database(own_url, COMMAND_LINE, None), Database(tmp_path / "moved.sqlite3")
    verify = verification.verify
    async with local_broker(tmp_path, db=own_url, instance="silent") as broker:
        await broker.create()
        loop = asyncio.get_running_loop()
        waiting: list[Future[Any]] = []

        def verified(copy: Path) -> verification.VerificationReport:
            """The copy is there. A call comes, and waits for the end of the move."""
            waiting.append(asyncio.run_coroutine_threadsafe(broker.create(), loop))
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while not asyncio.run_coroutine_threadsafe(asked(own_url, waits), loop).result(PATIENCE):
                assert not waiting[0].done()
            return verify(copy)

        monkeypatch.setattr(verification, "verify", verified)
        assert (await asyncio.to_thread(maintenance.move, source, target)).reviews == 1
        for call in (asyncio.wrap_future(waiting[0]), broker.create()):
            with pytest.raises(ToolError, match="unavailable: the reviews of this database were moved"):
                await call
        assert len((await broker("list_reviews"))["reviews"]) == 1


async def test_reads_go_on_while_all_commands_wait(pair: tuple[LocalBroker, LocalBroker], url: str) -> None:
    broker, _ = pair
    review_id = (await broker.create())["review_id"]
    connection = await asyncpg.connect(url)
    try:
        holding = connection.transaction()
        await holding.start()
        await connection.execute("SELECT 1 FROM audit_head FOR UPDATE")
        # More than there are connections.
        writing = [asyncio.create_task(broker.create(intent=f"number {number}")) for number in range(15)]
        async with asyncio.timeout(PATIENCE):
            while broker.store._in_use < CONNECTIONS - 3:
                await asyncio.sleep(0)
        for _ in range(20):
            assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"
            assert len((await broker("list_reviews"))["reviews"]) == 1
        assert not any(task.done() for task in writing)
        await holding.rollback()
    finally:
        await connection.close()
    assert len({(await task)["review_id"] for task in writing}) == 15


async def test_a_command_that_waits_too_long_is_refused_and_its_repetition_is_done_once(
    pair: tuple[LocalBroker, LocalBroker], url: str
) -> None:
    broker, _ = pair
    connection = await asyncpg.connect(url)
    try:
        holding = connection.transaction()
        await holding.start()
        await connection.execute("SELECT 1 FROM audit_head FOR UPDATE")
        broker.store.patience_seconds = 0.1
        for _ in range(2):
            with pytest.raises(ToolError) as refused:
                await broker.create(idempotency_key="once")
            assert (refused.value.code, refused.value.hint) == ("busy", "Nothing was stored; call again in a moment.")
        await holding.rollback()
    finally:
        await connection.close()
    broker.store.patience_seconds = PATIENCE
    created = [(await broker.create(idempotency_key="once"))["review_id"] for _ in range(2)]
    assert [row["id"] for row in (await broker("list_reviews"))["reviews"]] == created[:1]


@pytest.fixture
def empty_url() -> Generator[str]:
    with postgres.own_database("target", empty=True) as url:
        yield url


async def test_two_moves_into_one_database_do_not_mix(own_url: str, empty_url: str, tmp_path: Path) -> None:
    first, second = (copying.PostgresTarget(Database(tmp_path / "x", empty_url)) for _ in range(2))
    source = tmp_path / "source.sqlite3"
    await copying.snapshot(Database(tmp_path / "y", own_url), source)
    await first.load(source)
    await second.load(source)
    with pytest.raises(StartError, match="another `tandem db migrate-to` copies to the database"):
        await first.finish()
    await second.finish()
