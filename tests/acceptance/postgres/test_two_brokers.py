"""Two real brokers on one real PostgreSQL: one winner, wake-ups, a broker that is killed, a server that is away."""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gsd_review_broker import maintenance
from gsd_review_broker.settings.state_files import Database
from tests.support import postgres
from tests.support.local import PROPOSAL
from tests.support.mcp import AsyncMcp, Mcp, ToolError
from tests.support.postgres import OwnServer, broker_on
from tests.support.processes import BrokerProcess, make_repository
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

Pair = tuple[BrokerProcess, BrokerProcess]


def _homes(folder: Path) -> tuple[Path, Path]:
    """Two users on one machine."""
    homes = folder / "one", folder / "two"
    for home in homes:
        home.mkdir()
    return homes


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Pair, str]]:
    folder = tmp_path_factory.mktemp("two-brokers")
    repository = make_repository(folder / "repository")
    one, two = _homes(folder)
    with (
        postgres.own_database("pair", empty=True) as url,
        broker_on(url, repository, one) as first,
        broker_on(url, repository, two) as second,
    ):
        yield (first, second), url


def problems(url: str) -> list[str]:
    return maintenance.verify(Database(Path("unused"), url)).problems


async def test_of_many_claims_on_both_brokers_one_wins(pair: tuple[Pair, str]) -> None:
    brokers, url = pair
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        calls = [AsyncMcp(session, broker.port) for broker in brokers]
        for _ in range(5):
            review_id = (await calls[0]("create_review", **PROPOSAL))["review_id"]
            claims = [calls[n % 2]("claim_review", review_id=review_id, reviewer_id=f"r{n}") for n in range(32)]
            answers = await asyncio.gather(*claims, return_exceptions=True)
            refused = [answer for answer in answers if isinstance(answer, BaseException)]
            assert len(refused) == 31
            assert {answer.code for answer in refused if isinstance(answer, ToolError)} <= {"already_claimed", "busy"}
            assert all(isinstance(answer, ToolError) for answer in refused)
    assert await asyncio.to_thread(problems, url) == []


async def test_what_happens_on_one_broker_wakes_who_waits_on_the_other(pair: tuple[Pair, str]) -> None:
    brokers, _ = pair
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        one, two = (AsyncMcp(session, broker.port) for broker in brokers)
        waiting = asyncio.create_task(two("claim_next", reviewer_id="codex", project="p", wait=True, wait_seconds=200))
        review_id = (await one("create_review", **PROPOSAL, project="p"))["review_id"]
        claim = await waiting
        assert claim["review_id"] == review_id
        judged = asyncio.create_task(one("get_review_status", review_id=review_id, wait=True, wait_seconds=200))
        verdict = {"verdict": "approved", "reason": "good", "claim_generation": claim["claim_generation"]}
        await two("submit_verdict", review_id=review_id, **verdict)
        assert (await judged)["status"] == "approved"


def test_when_a_broker_is_killed_its_clients_go_on_with_the_other(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    one, two = _homes(tmp_path)
    with postgres.own_database("killed", empty=True) as url, broker_on(url, repository, two) as survivor:
        with broker_on(url, repository, one) as killed:
            client = killed.client()
            review_id = client("create_review", **PROPOSAL)["review_id"]
            claim = client("claim_review", review_id=review_id, reviewer_id="codex")
            killed.stop(signal.SIGKILL)
        call = survivor.client()
        verdict = {"verdict": "approved", "reason": "good", "claim_generation": claim["claim_generation"]}
        assert call("submit_verdict", review_id=review_id, **verdict)["status"] == "approved"
        assert problems(url) == []


def _code_of(call: Mcp, tool: str, **arguments: Any) -> str:
    try:
        call(tool, **arguments)
    except ToolError as refused:
        return refused.code
    return "ok"


@pytest.mark.skipif(postgres.OTHER_SERVER in os.environ, reason="that server is not ours to stop")
def test_while_the_server_is_down_calls_are_unavailable_and_then_nothing_is_lost(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    home, _ = _homes(tmp_path)
    with contextlib.ExitStack() as stack:
        # A socket's path must be short.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True)))
        server = stack.enter_context(OwnServer(folder))
        broker = stack.enter_context(broker_on(server.url(), repository, home))
        call = broker.client()
        review_id = call("create_review", **PROPOSAL, idempotency_key="before")["review_id"]
        server.control("stop", "-m", "immediate")
        claim = {"review_id": review_id, "reviewer_id": "codex"}
        assert _code_of(call, "claim_review", **claim) == "unavailable"
        assert _code_of(call, "get_review_status", review_id=review_id) == "unavailable"
        server.control("start")
        until(lambda: _code_of(call, "claim_review", **claim) == "ok")
        assert call("get_review_status", review_id=review_id)["status"] == "claimed"
        assert call("create_review", **PROPOSAL, idempotency_key="before")["review_id"] == review_id
        assert problems(server.url()) == []
        assert "Traceback" not in broker.output()
