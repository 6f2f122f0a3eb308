"""Several brokers on one PostgreSQL database, in this process: wake-ups, sweeps, and what a dead broker leaves."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gsd_review_broker.errors import BrokerError
from gsd_review_broker.pool import neighbours
from gsd_review_broker.pool.neighbours import Neighbours
from gsd_review_broker.ports.world import QUEUE
from gsd_review_broker.service.pool import records
from gsd_review_broker.store.postgres import archiving, listening
from gsd_review_broker.store.postgres.errors import unavailable
from gsd_review_broker.store.postgres.statements import PostgresStatements
from gsd_review_broker.store.sqlite import verification
from gsd_review_broker.wakeups import LocalWakeups
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
    monkeypatch.setattr(listening, "REREAD_SECONDS", 3_600)
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
    monkeypatch.setattr(listening, "_FIRST_PAUSE_SECONDS", 0)
    listener = listening.Listener("postgresql://nobody@127.0.0.1:1/x", LocalWakeups())
    with capture_logs() as logs:
        listener.start()
        while len(logs) < 3:
            await asyncio.sleep(0)
    await listener.close()
    assert {entry["event"] for entry in logs} == {"not_listening"}


def test_too_many_topics_are_all_topics() -> None:
    class Heard(LocalWakeups):
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
    sender, receiver = (listening.Listener("postgresql://x/x", wakeups) for _ in range(2))
    sender.notify(sent, ())  # pyright: ignore[reportArgumentType]
    sender.notify(sent, [f"review:{number:016}" for number in range(1_000)])  # pyright: ignore[reportArgumentType]
    assert [json.loads(payload)[1:] for payload in sent.payloads] == [["*"]]
    for listener in (sender, receiver):
        listener._heard(None, 1, listening.CHANNEL, sent.payloads[0])
    assert wakeups.everybody == 1


async def test_what_a_notification_did_not_tell_is_read_again_after_a_while(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "REREAD_SECONDS", 0.01)
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
    one.clock.pass_time(records.SILENCE_MILLISECONDS / 1_000 + 1)
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
    monkeypatch.setattr(neighbours, "BEAT_SECONDS", 0)
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
    writing = archiving.write

    def slowly(*arguments: Any) -> None:
        has_read.set()
        assert go_on.wait(PATIENCE)
        writing(*arguments)

    monkeypatch.setattr(archiving, "write", slowly)
    slow = asyncio.create_task(one.application.broker.retention.prune(closed_before))
    assert await asyncio.to_thread(has_read.wait, PATIENCE)
    monkeypatch.setattr(archiving, "write", writing)
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
