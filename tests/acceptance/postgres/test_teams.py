"""Several real brokers on one real PostgreSQL, many clients, and what may break: nothing lost, nothing doubled.

`make test-teams` runs it all; a small part is in `make test`. `TEAMS_SEED` repeats a run."""

import asyncio
import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store.postgres import copying
from tests.acceptance.broker.test_races import a_script, answer, recorded
from tests.acceptance.pool.test_killed import HOLDS
from tests.support import postgres
from tests.support.cutting import CuttingProxy
from tests.support.invariants import events_of, problems
from tests.support.load import Load, lost
from tests.support.local import PROPOSAL
from tests.support.mcp import AsyncMcp
from tests.support.model_machine import Modelled, explained
from tests.support.pool import pool_of, script, user_file
from tests.support.postgres import OwnServer, broker_on
from tests.support.processes import BrokerProcess, make_repository
from tests.support.waiting import PATIENCE, until

SEED = int(os.environ.get("TEAMS_SEED") or random.SystemRandom().randrange(2**32))
MANY = pytest.mark.torture
NOT_OURS = pytest.mark.skipif(postgres.OTHER_SERVER in os.environ, reason="that server is not ours to stop")


def note(**figures: Any) -> None:
    """Shown when a test fails, and by `make test-teams`."""
    print(json.dumps({"TEAMS_SEED": SEED, **figures}))  # noqa: T201


@contextlib.contextmanager
def brokers_on(url: str, folder: Path, count: int) -> Generator[list[BrokerProcess]]:
    """Each as if on a machine of its own, with a clone of its own."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(broker_of(url, folder, number)) for number in range(count)]


def broker_of(url: str, folder: Path, number: int) -> BrokerProcess:
    home = folder / f"home-{number}"
    home.mkdir()
    return broker_on(url, make_repository(folder / f"repository-{number}"), home)


def copy_of(url: str, folder: Path) -> Path:
    copy = folder / "copy.sqlite3"
    copy.unlink(missing_ok=True)
    asyncio.run(copying.snapshot(Database(folder / "unused", url), copy))
    return copy


def require_whole(url: str, folder: Path, load: Load) -> None:
    """I1 to I7."""
    assert load.failures == [], f"TEAMS_SEED={SEED}"
    copy = copy_of(url, folder)
    assert problems(copy) == [], f"TEAMS_SEED={SEED}"
    assert lost(load, events_of(copy)) == [], f"TEAMS_SEED={SEED}"


class Spread:
    """One client after the other asks another broker."""

    def __init__(self, calls: Sequence[AsyncMcp]) -> None:
        self._calls = calls
        self._count = 0

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self._count += 1
        return await self._calls[self._count % len(self._calls)](tool, **arguments)


@contextlib.asynccontextmanager
async def spread_over(brokers: Sequence[BrokerProcess]) -> AsyncGenerator[Spread]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Spread([AsyncMcp(session, broker.port) for broker in brokers])


async def one_winner(call: Spread, *, clients: int, rounds: int) -> None:
    for _ in range(rounds):
        review_id = (await call("create_review", **PROPOSAL))["review_id"]
        claims = [answer(call("claim_review", review_id=review_id, reviewer_id=f"r{n}")) for n in range(clients)]
        answers = await asyncio.gather(*claims)
        assert sum("code" not in said for said in answers) == 1
        assert {said["code"] for said in answers if "code" in said} == {"already_claimed"}


async def linearizable(call: Spread, *, at_once: int, rounds: int) -> None:
    """Four clients a review, and so many reviews at once; each client asks one broker after the other."""
    chance = random.Random(SEED)
    for _ in range(rounds):
        made = await asyncio.gather(*(call("create_review", **PROPOSAL) for _ in range(at_once)))
        scripts = [[a_script(chance, name) for name in ("codex", "claude", "gemini", "opencode")] for _ in made]
        histories = await asyncio.gather(
            *(
                recorded(call, review["review_id"], script, reads=lambda: 0)
                for review, script in zip(made, scripts, strict=True)
            )
        )
        for history in histories:
            assert explained(history, Modelled()) is not None, "\n".join(map(str, history))


@pytest.mark.parametrize(
    ("count", "clients", "writes"),
    [(2, 8, 75), pytest.param(2, 64, 1_000, marks=MANY), pytest.param(4, 64, 1_000, marks=MANY)],
)
def test_many_clients_on_several_brokers_keep_every_invariant(
    tmp_path: Path, count: int, clients: int, writes: int
) -> None:
    with postgres.own_database("teams", empty=True) as url, brokers_on(url, tmp_path, count) as brokers:

        async def races() -> None:
            async with spread_over(brokers) as call:
                await one_winner(call, clients=clients, rounds=writes // 75)
                await linearizable(call, at_once=clients // 4, rounds=writes // 75)

        asyncio.run(races())
        with Load([broker.port for broker in brokers], SEED, clients=clients) as load:
            load.wait_for(writes, deadline=PATIENCE * 10)
        note(brokers=count, clients=clients, acknowledged=len(load.acknowledged))
        assert [broker.stop() for broker in brokers] == [0] * count
        require_whole(url, tmp_path, load)
        assert not any("Traceback" in broker.output() for broker in brokers)


@MANY
@NOT_OURS
def test_postgresql_killed_and_started_again_under_load_loses_nothing(tmp_path: Path) -> None:
    chance, pauses = random.Random(SEED), []
    with contextlib.ExitStack() as stack:
        # A socket's path must be short.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True)))
        server = stack.enter_context(OwnServer(folder))
        brokers = stack.enter_context(brokers_on(server.url(), tmp_path, 2))
        load = Load([broker.port for broker in brokers], SEED, clients=16, may_be_unavailable=True)
        with load:
            for _ in range(10):
                load.wait_for(chance.randrange(5, 60))
                server.kill()
                server.control("start")
                began = time.monotonic()
                load.wait_for(1)
                pauses.append(round(time.monotonic() - began, 2))
            load.wait_for(50)
        note(server_accepts_to_first_write_seconds=pauses, acknowledged=len(load.acknowledged))
        assert any(told.repeated for told in load.acknowledged)
        assert [broker.stop() for broker in brokers] == [0, 0]
        require_whole(server.url(), tmp_path, load)


@MANY
@NOT_OURS
def test_connections_cut_in_mid_commit_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True)))
        server = stack.enter_context(OwnServer(folder))
        proxy = stack.enter_context(CuttingProxy(folder / ".s.PGSQL.5432", SEED))
        brokers = stack.enter_context(brokers_on(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", tmp_path, 2))
        load = Load([broker.port for broker in brokers], SEED, clients=16, may_be_unavailable=True)
        with load:
            load.wait_for(20)
            proxy.chance = 0.05
            while proxy.cuts < 200:
                load.wait_for(20)
            proxy.chance = 0.0
            load.wait_for(20)
        note(commits_cut=proxy.cuts, acknowledged=len(load.acknowledged))
        assert [broker.stop() for broker in brokers] == [0, 0]
        require_whole(server.url(), tmp_path, load)


@MANY
def test_brokers_killed_under_load_lose_nothing(tmp_path: Path) -> None:
    chance, pauses = random.Random(SEED), []
    with postgres.own_database("killed_teams", empty=True) as url, brokers_on(url, tmp_path, 3) as brokers:
        ports = [broker.port for broker in brokers]
        with Load(ports, SEED, clients=16) as load:
            for _ in range(15):
                load.wait_for(chance.randrange(5, 60))
                killed = chance.choice(brokers)
                killed.stop(signal.SIGKILL)
                began = time.monotonic()
                load.wait_for(1)
                pauses.append(round(time.monotonic() - began, 3))
                killed.start(port=killed.port)
            load.wait_for(50)
        note(kill_to_next_write_elsewhere_seconds=pauses, acknowledged=len(load.acknowledged))
        assert [broker.stop() for broker in brokers] == [0] * 3
        require_whole(url, tmp_path, load)


@MANY
def test_what_a_killed_brokers_reviewer_held_is_judged_by_the_other_brokers(tmp_path: Path) -> None:
    """The reviewer's process goes on, and its claim does not: whoever claims next has a later generation."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(postgres.own_database("held", empty=True))
        survivor = stack.enter_context(broker_of(url, tmp_path, 0))
        doomed = broker_of(url, tmp_path, 1)
        user_file(doomed.home, **pool_of(script(doomed.home, HOLDS), max_pool_size=1))
        stack.enter_context(doomed)
        call = survivor.client()
        by_hand = call("create_review", **PROPOSAL, project="by-hand")["review_id"]
        claim = doomed.client()("claim_review", review_id=by_hand, reviewer_id="codex-of-somebody")
        review_id = call("create_review", **PROPOSAL)["review_id"]
        until(lambda: call("get_review_status", review_id=review_id)["claimed_by"])
        holder = call("get_review_status", review_id=review_id)["claimed_by"]
        doomed.stop(signal.SIGKILL)
        began = time.monotonic()
        until(lambda: call("get_review_status", review_id=review_id)["status"] == "pending", PATIENCE * 2)
        note(kill_to_reclaim_seconds=round(time.monotonic() - began, 1))
        taken = call("claim_review", review_id=review_id, reviewer_id="gemini")
        assert taken["claim_generation"] == 3
        verdict = {"verdict": "approved", "reason": "good"}
        call("submit_verdict", review_id=review_id, claim_generation=3, **verdict)
        # A claim that is nobody's process stays until its deadline: its holder goes on by another broker.
        assert call("get_review_status", review_id=by_hand)["claimed_by"] == "codex-of-somebody"
        call("submit_verdict", review_id=by_hand, claim_generation=claim["claim_generation"], **verdict)
        told = [event["event_type"] for event in call("get_audit_log", review_id=review_id)["events"]]
        assert told.count("review_reclaimed") == 1
        assert holder not in {event["actor"] for event in call("get_audit_log", review_id=by_hand)["events"]}
        # Its machine is up again: what was left running there is stopped.
        doomed.start()
        (old,) = [one for one in call("list_reviewers")["reviewers"] if one["id"] == holder]
        assert old["state"] == "terminated"
        doomed.stop()
        survivor.stop()
        assert problems(copy_of(url, tmp_path)) == []
