"""What only the store on PostgreSQL does: its schema, its clock, lost connections, and commands that are cancelled."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from structlog.testing import capture_logs

from gsd_review_broker import maintenance
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.observe.telemetry import Meters
from gsd_review_broker.ports.store import Transaction
from gsd_review_broker.ports.world import Clock, Wakeups
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store.postgres import store as postgres_store
from gsd_review_broker.store.postgres.engine import DatabaseClock
from gsd_review_broker.store.postgres.statements import Outage, PostgresStatements, translate
from gsd_review_broker.store.postgres.store import PostgresStore
from gsd_review_broker.store.schema import HEAD
from tests.support import postgres
from tests.support.local import LocalBroker, MovableClock, local_broker
from tests.support.mcp import ToolError

pytestmark = pytest.mark.postgres


@pytest.fixture
async def url(postgres_database: str) -> str:
    await postgres.emptied(postgres_database)
    return postgres_database


@pytest.fixture
def empty_url() -> Generator[str]:
    with postgres.own_database("empty", empty=True) as url:
        yield url


@pytest.fixture
async def broker(url: str, tmp_path: Path, repository: Path) -> AsyncGenerator[LocalBroker]:
    async with local_broker(tmp_path, root=repository, db=url) as running:
        yield running


def store_at(url: str, folder: Path, clock: Clock | None = None, name: str = "x") -> PostgresStore:
    return PostgresStore(
        Database(folder / name, url), clock=clock or MovableClock(), wakeups=Wakeups(), meters=Meters()
    )


async def asked(url: str, question: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def cut_connections(url: str) -> None:
    """The server ends every connection to this database but the one that says so."""
    await asked(
        url,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid != pg_backend_pid()",
    )


# The schema.


async def test_brokers_that_start_at_once_make_one_schema(empty_url: str, tmp_path: Path) -> None:
    stores = [store_at(empty_url, tmp_path, name=str(number)) for number in range(3)]
    await asyncio.gather(*(asyncio.to_thread(store.open) for store in stores))
    assert await asked(empty_url, "SELECT string_agg(version_num, ',') FROM alembic_version") == HEAD
    assert await asked(empty_url, "SELECT count(*) FROM audit_head") == 1
    await asyncio.gather(*(store.close() for store in stores))


async def test_settings_with_which_the_server_loses_commits_are_reported(url: str, tmp_path: Path) -> None:
    database = await asked(url, "SELECT current_database()")
    for value, expected in (("off", True), ("on", False)):
        await asked(url, f"ALTER DATABASE {database} SET synchronous_commit = {value}")
        store = store_at(url, tmp_path)
        with capture_logs() as logs:
            store.open()
        await store.close()
        reported = [entry["switched_off"] for entry in logs if entry["event"] == "server_may_lose_commits"]
        assert ("synchronous_commit" in reported) == expected
    await asked(url, f"ALTER DATABASE {database} RESET synchronous_commit")


async def test_another_programs_tables_are_left_alone(empty_url: str, tmp_path: Path) -> None:
    await asked(empty_url, "CREATE TABLE precious (x int)")
    with pytest.raises(StartError, match="holds tables of another program"):
        store_at(empty_url, tmp_path).open()
    assert await asked(empty_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 1


async def test_a_newer_schema_is_refused(empty_url: str, tmp_path: Path) -> None:
    store = store_at(empty_url, tmp_path)
    store.open()
    await store.close()
    await asked(empty_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StartError, match="has schema 9999, which this version does not know"):
        store_at(empty_url, tmp_path).open()
    with pytest.raises(StartError, match="has schema 9999, which this version does not know"):
        await asyncio.to_thread(maintenance.verify, Database(tmp_path / "x", empty_url))


@pytest.mark.parametrize(
    "address", ["postgresql://nobody@127.0.0.1:1/x", "postgresql:///x?host=/nowhere", "postgresql://a:b:c/x"]
)
def test_a_server_that_does_not_answer_is_told_in_a_sentence(address: str, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(StartError, match="cannot be opened: "):
            store_at(address, tmp_path).open()
    with pytest.raises(StartError, match="cannot be read: "):
        maintenance.verify(Database(tmp_path / "x", address))


def test_a_second_broker_of_the_same_name_is_refused(postgres_database: str, tmp_path: Path) -> None:
    first, second = store_at(postgres_database, tmp_path), store_at(postgres_database, tmp_path)
    first.open()
    with pytest.raises(StartError, match="in use by another broker"):
        second.open()
    asyncio.run(first.close())
    asyncio.run(first.close())


async def test_a_mistake_of_ours_at_the_start_is_not_dressed_up(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(postgres_store, "prepare", broken)
    with pytest.raises(ZeroDivisionError):
        store_at(url, tmp_path).open()


# Time.


async def test_the_time_is_the_databases(url: str, tmp_path: Path) -> None:
    clock = DatabaseClock()
    clock._ahead = Milliseconds(0)
    store = store_at(url, tmp_path, clock)
    store.open()

    def twice(tx: Transaction) -> tuple[int, int]:
        return tx.now, tx.now

    first, again = await store.write(twice)
    assert first == again
    server = await asked(url, "SELECT extract(epoch FROM clock_timestamp()) * 1000")
    assert abs(int(server) - first) < 60_000
    assert abs(clock.now() - first) < 60_000
    await store.close()


# Commands.


async def test_a_caller_that_goes_away_does_not_undo_its_command(broker: LocalBroker) -> None:
    entered = asyncio.Event()
    creating = broker.store._committed

    async def noticed(command: Any) -> Any:
        entered.set()
        return await creating(command)

    broker.store._committed = noticed
    calling = asyncio.create_task(broker.create())
    await entered.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    while broker.store.pending_writes:
        await asyncio.sleep(0)
    assert len((await broker("list_reviews"))["reviews"]) == 1


async def test_an_error_of_a_command_nobody_waits_for_is_not_reported_as_lost(broker: LocalBroker) -> None:
    def refused(_tx: Transaction) -> None:
        raise BrokerError(Code.CONFLICT, "no", "")

    calling = asyncio.create_task(broker.store.write(refused))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    while broker.store.pending_writes:
        await asyncio.sleep(0)


async def test_a_refused_command_leaves_nothing(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]

    def half(tx: Transaction) -> None:
        review = tx.lock_review(review_id)
        assert review is not None
        tx.extend_claim(replace(review, claim_expires_at=tx.now))
        raise BrokerError(Code.CONFLICT, "no", "")

    with pytest.raises(BrokerError, match="no"):
        await broker.store.write(half)
    review = await broker.store.read(lambda reader: reader.review(review_id))
    assert review.claim_expires_at is None


async def test_our_own_mistakes_are_not_translated(broker: LocalBroker) -> None:
    with pytest.raises(sa.exc.DBAPIError):
        await broker.store.read(lambda reader: reader.statements.rows(sa.text("SELECT nonsense"), {}))


async def test_of_two_calls_with_one_key_the_second_waits_and_gets_the_first_ones_answer(broker: LocalBroker) -> None:
    answers = await asyncio.gather(*(broker.create(idempotency_key="k") for _ in range(8)))
    assert len({answer["review_id"] for answer in answers}) == 1


async def test_sixteen_reviewers_claim_one_review_and_one_gets_it(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    claims = [broker("claim_review", review_id=review_id, reviewer_id=f"r{number}") for number in range(16)]
    answers = await asyncio.gather(*claims, return_exceptions=True)
    lost = [answer for answer in answers if isinstance(answer, ToolError)]
    assert (len(answers) - len(lost), {error.code for error in lost}) == (1, {"already_claimed"})
    assert maintenance.verification.verify(broker.database).problems == []


async def test_closing_waits_for_what_was_asked_before_and_refuses_what_comes_after(broker: LocalBroker) -> None:
    creating = [asyncio.create_task(broker.create()) for _ in range(20)]
    while not broker.store.pending_writes:
        await asyncio.sleep(0)
    await broker.store.close()
    answers = await asyncio.gather(*creating, return_exceptions=True)
    stored = [answer for answer in answers if not isinstance(answer, ToolError)]
    assert stored
    with pytest.raises(ToolError) as refused:
        await broker.create()
    assert refused.value.code == "unavailable"
    assert maintenance.verification.verify(broker.database).reviews == len(stored)


def test_a_broker_has_the_same_id_after_a_restart_and_another_one_has_another(tmp_path: Path) -> None:
    ids = [store_at("postgresql://x/x", tmp_path, name=name).broker_id for name in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]


# Lost connections.


async def test_if_the_next_connection_is_dead_too_the_call_is_refused(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object) -> None:
        raise ConnectionResetError("cut")

    monkeypatch.setattr(PostgresStatements, "rows", dead)
    with pytest.raises(BrokerError, match="cannot be reached: cut"):
        await broker.store.read(lambda reader: reader.review("x"))


async def test_if_every_connection_is_in_use_for_long_the_call_is_refused(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_engine: object) -> None:
        raise sa.exc.TimeoutError

    monkeypatch.setattr(AsyncEngine, "connect", full)
    with pytest.raises(ToolError) as refused:
        await broker.create()
    assert refused.value.code == "busy"


async def test_an_idle_connection_that_was_cut_is_replaced_unnoticed(broker: LocalBroker, url: str) -> None:
    await broker.create()
    await cut_connections(url)
    await broker.create()
    await cut_connections(url)
    assert len((await broker("list_reviews"))["reviews"]) == 2


async def test_a_connection_that_is_cut_in_a_command_means_that_nothing_was_stored(
    broker: LocalBroker, url: str
) -> None:
    review_id = (await broker.create())["review_id"]

    def cut(tx: Transaction) -> None:
        tx.lock_review(review_id)
        tx.statements.rows(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"), {})

    with pytest.raises(BrokerError, match="the database cannot be reached") as refused:
        await broker.store.write(cut)
    assert refused.value.code is Code.UNAVAILABLE
    assert "Nothing was stored" in refused.value.hint
    await broker("claim_review", review_id=review_id, reviewer_id="codex")


class _CutCommit:
    """The next commit's connection is lost: before the server has committed, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, committed: bool) -> None:
        self.cuts = 1
        commit = AsyncConnection.commit

        async def cut(connection: AsyncConnection) -> None:
            if not self.cuts:
                return await commit(connection)
            self.cuts -= 1
            if committed:
                await commit(connection)
            raise ConnectionResetError("cut")

        monkeypatch.setattr(AsyncConnection, "commit", cut)


@pytest.mark.parametrize("committed", [True, False])
async def test_after_a_cut_commit_the_answer_is_what_the_server_did(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    _CutCommit(monkeypatch, committed=committed)
    if committed:
        assert (await broker.create())["status"] == "pending"
    else:
        with pytest.raises(ToolError) as refused:
            await broker.create()
        assert refused.value.code == "unavailable"
    assert len((await broker("list_reviews"))["reviews"]) == int(committed)


async def test_what_cannot_be_found_out_is_said(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_store, "_QUESTIONS", 2)
    monkeypatch.setattr(postgres_store, "_BETWEEN_QUESTIONS_SECONDS", 0)

    async def unreachable(_event: object) -> bool:
        raise ConnectionRefusedError

    _CutCommit(monkeypatch, committed=True)
    monkeypatch.setattr(broker.store, "_is_stored", unreachable)
    with pytest.raises(ToolError) as refused:
        await broker.create(idempotency_key="k")
    assert refused.value.code == "unavailable"
    assert "not known" in refused.value.message
    # The key tells.
    answer = await broker.create(idempotency_key="k")
    assert [review["id"] for review in (await broker("list_reviews"))["reviews"]] == [answer["review_id"]]


async def test_a_commit_that_the_server_refuses_is_our_mistake(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_connection: AsyncConnection) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AsyncConnection, "commit", refuse)
    with pytest.raises(ZeroDivisionError):
        await broker.create()


async def test_while_the_server_is_away_calls_are_refused_and_then_it_is_found_again(
    broker: LocalBroker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    review_id = (await broker.create())["review_id"]
    database = await asked(url, "SELECT current_database()")
    server = postgres.server_url()
    await asked(server, f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
    try:
        await cut_connections_of(server, database)
        with capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(ToolError) as refused:
                    await broker("claim_review", review_id=review_id, reviewer_id="codex")
                assert refused.value.code == "unavailable"
        assert [entry["event"] for entry in logs].count("database_unavailable") == 1
        assert not await broker.store.is_ready()
        assert '"ready":false' in await broker.page("/healthz?ready", status=503)
    finally:
        await asked(server, f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
    with capture_logs() as logs:
        while not await broker.store.is_ready():
            await asyncio.sleep(0.05)
    assert [entry["event"] for entry in logs] == ["database_available"]
    assert '"ready":true' in await broker.page("/healthz?ready")
    await broker("claim_review", review_id=review_id, reviewer_id="codex")


async def cut_connections_of(server: str, database: str) -> None:
    await asked(server, f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'")


def test_pauses_grow_and_several_calls_notice_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gsd_review_broker.store.postgres.statements.time.monotonic", lambda: now)
    outage, pauses = Outage(), []
    for _ in range(8):
        for _ in range(3):
            outage.begin(OSError("gone"))
        with pytest.raises(BrokerError, match="cannot be reached: gone"):
            outage.refuse()
        pauses.append(round(outage._until - now, 3))
        now = outage._until
        outage.refuse()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    outage.end()
    assert outage.is_over
    outage.begin(OSError())
    assert not outage.is_over


def test_too_many_commands_and_deadlocks_are_busy() -> None:
    for error in (sa.exc.TimeoutError("no connection is free"), sa.exc.DBAPIError("x", None, _state("40P01"))):
        translated = translate(error)
        assert isinstance(translated, BrokerError)
        assert translated.code is Code.BUSY


def _state(state: str) -> Exception:
    error = Exception(state)
    error.sqlstate = state
    return error


# The whole database.


async def test_closed_reviews_move_into_an_archive_and_the_audit_is_whole(broker: LocalBroker, url: str) -> None:
    kept = (await broker.create())["review_id"]
    for number in range(3):
        review_id = (await broker.create(project=f"p{number}"))["review_id"]
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
        await broker("add_message", review_id=review_id, sender_id="gsd-executor", sender_role="proposer", body="wait")
        await broker("close_review", review_id=review_id)
    broker.clock.pass_time(10)
    closed_before = "2027-01-15T08:00:05Z"
    broker.clock.pass_time(10)
    turn = await broker.application.broker.retention.prune(closed_before)
    assert (turn["reviews"], turn["more"]) == (3, False)
    archive = broker.store._archives / turn["archive"]
    assert archive.stat().st_mode & 0o777 == 0o600
    database = Database(archive.parent, url)
    report = await asyncio.to_thread(maintenance.verify, database, [archive])
    assert (report.problems, report.reviews, report.statistics_checked) == ([], 4, True)
    assert (await asyncio.to_thread(maintenance.verify, database)).problems == []
    assert [review["id"] for review in (await broker("list_reviews"))["reviews"]] == [kept]
    exported = await asyncio.to_thread(lambda: list(maintenance.export(database)))
    assert exported[-1]["event_type"] == "audit_checkpoint"
    # A message's number is not used again, neither here nor in a copy.
    await broker("claim_review", review_id=kept, reviewer_id="codex")
    sent = await broker("add_message", review_id=kept, sender_id="gsd-executor", sender_role="proposer", body="and now")
    assert sent["message_id"] == 4


async def test_an_archive_that_cannot_be_written_moves_nothing(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("close_review", review_id=review_id)
    broker.clock.pass_time(10)
    broker.store._archives.parent.mkdir(parents=True, exist_ok=True)
    broker.store._archives.write_text("in the way")
    with pytest.raises(BrokerError) as refused:
        await broker.application.broker.retention.prune("2027-01-15T08:00:05Z")
    assert refused.value.code is Code.UNAVAILABLE
    assert (await broker("get_review_status", review_id=review_id))["status"] == "closed"
