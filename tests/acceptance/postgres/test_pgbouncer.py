"""Two real brokers behind a real pgbouncer in transaction mode; only LISTEN goes to the server itself."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gsd_review_broker import maintenance
from gsd_review_broker.settings.locations import APPLICATION
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store.postgres.engine import APPLICATION_NAME
from tests.support import postgres
from tests.support.local import PROPOSAL
from tests.support.mcp import AsyncMcp, ToolError
from tests.support.postgres import broker_on
from tests.support.processes import BrokerProcess, make_repository
from tests.support.waiting import until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = [
    pytest.mark.postgres,
    # `make test-postgres` runs it; not every machine has the program.
    pytest.mark.torture,
    pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed (Debian: apt-get install pgbouncer)"),
    pytest.mark.skipif(postgres.OTHER_SERVER in os.environ, reason="pgbouncer is set up for the suite's own server"),
]

# Fewer than one broker alone would open.
CONNECTIONS = 3
PORT = 6432
CONFIGURATION = """
[databases]
* = host={server} user=postgres
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
"""


@contextlib.contextmanager
def pgbouncer(server: Path) -> Generator[Path]:
    """The folder of its socket."""
    assert PROGRAM is not None
    folder = Path(tempfile.mkdtemp(prefix="tandem-pgbouncer-"))
    folder.chmod(0o777)
    settings = folder / "pgbouncer.ini"
    settings.write_text(CONFIGURATION.format(server=server, folder=folder, port=PORT, connections=CONNECTIONS))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, settings], stdout=log, stderr=log, cwd="/", **postgres.as_user())
    try:
        until((folder / f".s.PGSQL.{PORT}").exists)
        yield folder
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


Behind = tuple[tuple[BrokerProcess, BrokerProcess], str, str]


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Generator[Behind]:
    """Both brokers, their database's address at pgbouncer, and the server's own."""
    folder = tmp_path_factory.mktemp("behind")
    repository = make_repository(folder / "repository")
    with contextlib.ExitStack() as stack:
        direct = stack.enter_context(postgres.own_database("bounced", empty=True))
        pooler = stack.enter_context(pgbouncer(Path(os.environ[postgres.FOLDER])))
        url = f"{direct.partition('?')[0]}?host={pooler}&port={PORT}"
        brokers = []
        for name in ("one", "two"):
            settings = folder / name / "config" / APPLICATION / "config.json"
            settings.parent.mkdir(parents=True)
            settings.write_text(json.dumps({"db_listen": direct}))
            brokers.append(stack.enter_context(broker_on(url, repository, folder / name)))
        yield (brokers[0], brokers[1]), url, direct


async def sessions(direct: str) -> int:
    import asyncpg

    connection = await asyncpg.connect(direct)
    try:
        question = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
        return await connection.fetchval(question, APPLICATION_NAME)
    finally:
        await connection.close()


async def whole_life(proposer: AsyncMcp, reviewer: AsyncMcp) -> Any:
    """Each on its own broker; the proposer waits for the verdict."""
    created = await proposer("create_review", **PROPOSAL, idempotency_key="k")
    assert await proposer("create_review", **PROPOSAL, idempotency_key="k") == created
    review_id = created["review_id"]
    claim = await reviewer("claim_next", reviewer_id="codex", wait=True, wait_seconds=200)
    await reviewer("add_message", review_id=review_id, sender_role="reviewer", body="why?")
    version = (await proposer("get_review_status", review_id=review_id))["version"]
    waiting = asyncio.create_task(
        proposer("get_review_status", review_id=review_id, wait=True, wait_seconds=200, since=version)
    )
    verdict = {"verdict": "approved", "claim_generation": claim["claim_generation"]}
    await reviewer("submit_verdict", review_id=review_id, **verdict)
    assert (await waiting)["status"] == "approved"
    for tool in ("list_reviews", "get_activity_feed", "get_review_stats", "get_audit_log", "broker_status"):
        assert await proposer(tool)
    return await proposer("close_review", review_id=review_id)


async def test_a_review_lives_its_whole_life_behind_a_pooler(behind: Behind) -> None:
    (one, two), url, _ = behind
    async with aiohttp.ClientSession() as session:
        closed = await whole_life(AsyncMcp(session, one.port), AsyncMcp(session, two.port))
    assert closed["status"] == "closed"
    report = await asyncio.to_thread(maintenance.verify, Database(Path("unused"), url))
    assert report.problems == []


async def test_of_many_claims_behind_a_pooler_one_wins_and_few_connections_do(behind: Behind) -> None:
    brokers, url, direct = behind
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        calls = [AsyncMcp(session, broker.port) for broker in brokers]
        for _ in range(5):
            review_id = (await calls[0]("create_review", **PROPOSAL))["review_id"]
            claims = [calls[n % 2]("claim_review", review_id=review_id, reviewer_id=f"r{n}") for n in range(32)]
            answers = await asyncio.gather(*claims, return_exceptions=True)
            lost = [answer.code for answer in answers if isinstance(answer, ToolError)]
            assert lost == ["already_claimed"] * 31
    # All calls share pgbouncer's connections; each broker has one more, for LISTEN.
    assert await sessions(direct) <= CONNECTIONS + len(brokers)
    report = await asyncio.to_thread(maintenance.verify, Database(Path("unused"), url))
    assert report.problems == []
