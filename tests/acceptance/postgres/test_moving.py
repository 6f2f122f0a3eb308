"""`tandem db migrate-to` as people run it: with their broker running, there and back."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gsd_review_broker import maintenance, moving
from gsd_review_broker.settings.state_files import Database
from tests.support import postgres
from tests.support.invariants import events_of, problems
from tests.support.load import Load, lost
from tests.support.local import PROPOSAL
from tests.support.mcp import ToolError
from tests.support.postgres import broker_on
from tests.support.processes import DATABASE, BrokerProcess, run_broker
from tests.support.tandem import Tandem
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.postgres
SEED = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(2**32))


def test_a_database_moves_away_from_under_a_running_broker_and_back(
    own_home: Path, repository: Path, process: BrokerProcess
) -> None:
    tandem = Tandem(repository, own_home)
    client = process.client()
    acknowledged = [client("create_review", **PROPOSAL)["review_id"]]
    stopped = threading.Event()
    refusals: list[ToolError] = []

    def propose_on() -> None:
        """Until the broker refuses. What it has acknowledged must be in the copy."""
        while not stopped.wait(0.02):
            try:
                acknowledged.append(client("create_review", **PROPOSAL)["review_id"])
            except ToolError as refusal:
                # On a slow machine the hold may last longer than a call waits; then it is called again.
                if refusal.code != "busy":
                    refusals.append(refusal)
                    return

    proposing = threading.Thread(target=propose_on)
    try:
        # The first test that needs a server starts it, and every review that is made meanwhile would have to be moved.
        with postgres.own_database("walk", empty=True) as url:
            proposing.start()
            moved = tandem.run("db", "migrate-to", url, "--json")
            assert moved.code == 0, moved.err
            proposing.join()
            assert [(refusal.code, refusal.message) for refusal in refusals] == [
                ("unavailable", f"this broker's database was moved to {url}")
            ]
            assert moved.json["reviews"] == len(acknowledged) > 1
            assert moved.json["to"] == url
            # The old broker runs, reads, and says what to do.
            assert process.client()("get_review_status", review_id=acknowledged[-1])["status"] == "pending"
            (problem,) = tandem.run("status", "--json").json["problems"]
            assert (problem["feature"], url in problem["message"]) == ("db", True)
            with broker_on(url, repository, own_home) as broker:
                for review_id in (acknowledged[0], acknowledged[-1]):
                    assert broker.client()("get_review_status", review_id=review_id)["status"] == "pending"
                back = tandem.run("db", "migrate-to", "sqlite:///back.sqlite3", "--db", url, "--json")
                assert back.code == 0, back.err
                assert back.json["reviews"] == moved.json["reviews"]
                with pytest.raises(ToolError, match=r"was moved to .*back\.sqlite3"):
                    broker.client()("create_review", **PROPOSAL)
            verified = tandem.run("audit", "verify", "--db", "back.sqlite3", "--json")
            assert (verified.code, verified.json["whole"]) == (0, True)
    finally:
        stopped.set()
        if proposing.ident is not None:
            proposing.join()


@dataclass
class Place:
    """A database that reviews are in, or move to; and the broker that serves it."""

    database: Database
    broker: BrokerProcess

    @property
    def db(self) -> str:
        return self.database.url or str(self.database.path)

    @property
    def address(self) -> str:
        return self.database.url or f"sqlite:///{self.database.path}"

    def is_moved(self) -> bool:
        return asyncio.run(moving._source_of(self.database).moved_to()) is not None

    def is_unfinished(self) -> bool:
        return asyncio.run(moving._target_of(self.database).is_unfinished())

    def require_whole(self, load: Load) -> None:
        """I1 to I7: of everything that was acknowledged, on whichever database."""
        with maintenance.as_file(self.database) as file:
            assert problems(file) == [], f"KILL_SEED={SEED}"
            assert lost(load, events_of(file)) == [], f"KILL_SEED={SEED}"


class Journey:
    """A mover that is killed again and again on its way from one place to the next, under load."""

    def __init__(self, tandem: Tandem, load: Load, chance: random.Random) -> None:
        self._tandem, self._load, self._chance = tandem, load, chance
        # How long the last move took. Before the first one, kills come later and later.
        self._seconds = 2.0
        self.kills = 0
        self.killed_in_between = 0

    def go(self, here: Place, there: Place, *, most_kills: int) -> None:
        for _ in range(most_kills):
            if self._survives(here, there):
                return
            self.kills += 1
            if here.is_moved():
                # Killed between the mark and the end: the next run does it again.
                assert there.is_unfinished(), f"KILL_SEED={SEED}"
                self.killed_in_between += 1
                break
            # The old broker goes on as if nothing had been, and no broker starts on half a copy.
            self._load.wait_for(self._chance.randrange(1, 20))
            if there.is_unfinished():
                refused = run_broker(self._tandem.folder, self._tandem.home, "--port", "0", "--db", there.db)
                assert (refused.returncode, "was not finished" in refused.stderr) == (3, True), refused.stderr
        moved = self._tandem.run("db", "migrate-to", there.address, "--db", here.db)
        assert moved.code == 0, f"{moved.err}, KILL_SEED={SEED}"

    def _survives(self, here: Place, there: Place) -> bool:
        began = time.monotonic()
        with self._tandem.start("db", "migrate-to", there.address, "--db", here.db) as mover:
            try:
                _, errors = mover.communicate(timeout=self._chance.uniform(0.3, 1.05) * self._seconds)
            except subprocess.TimeoutExpired:
                mover.send_signal(signal.SIGKILL)
                _, errors = mover.communicate()
            if mover.returncode == 0:
                self._seconds = time.monotonic() - began
                return True
            assert mover.returncode == -signal.SIGKILL, f"{errors.decode()}, KILL_SEED={SEED}"
        self._seconds *= 1.05
        # It may have been killed while it verified the target once more.
        return here.is_moved() and not there.is_unfinished()


@pytest.mark.torture
def test_a_move_that_is_killed_at_any_moment_under_load_loses_nothing(own_home: Path, repository: Path) -> None:
    print(f"KILL_SEED={SEED}")  # noqa: T201 - shown when it fails, and in make torture
    chance = random.Random(SEED)
    tandem = Tandem(repository, own_home)
    with contextlib.ExitStack() as stack:
        here = Place(Database(repository / DATABASE), stack.enter_context(BrokerProcess(repository, home=own_home)))
        port = here.broker.port
        load = stack.enter_context(Load([port], SEED, clients=3, may_be_unavailable=True))
        journey = Journey(tandem, load, chance)
        for leg in range(6):
            load.wait_for(20)
            there = place_on_postgres(stack, tandem, leg) if leg % 2 == 0 else place_in_file(tandem, leg)
            journey.go(here, there, most_kills=12)
            assert here.is_moved()
            here.broker.stop()
            there.require_whole(load)
            stack.enter_context(contextlib.closing(_Started(there.broker, port)))
            here = there
        load.wait_for(20)
        load.stopping.set()
        for thread in load.threads:
            thread.join(PATIENCE)
        assert load.failures == []
        here.broker.stop()
        here.require_whole(load)
    print(f"{journey.kills} kills, {journey.killed_in_between} between mark and end")  # noqa: T201 - as above
    assert journey.kills > 12


class _Started:
    """On the port where its clients look for it."""

    def __init__(self, broker: BrokerProcess, port: int) -> None:
        self._broker = broker
        broker.start(port=port)

    def close(self) -> None:
        self._broker.__exit__()


def place_on_postgres(stack: contextlib.ExitStack, tandem: Tandem, leg: int) -> Place:
    url = stack.enter_context(postgres.own_database(f"leg{leg}", empty=True))
    return Place(Database(tandem.home / f"leg-{leg}", url), broker_on(url, tandem.folder, tandem.home))


def place_in_file(tandem: Tandem, leg: int) -> Place:
    path = tandem.home / f"leg-{leg}.sqlite3"
    broker = BrokerProcess(tandem.folder, home=tandem.home, arguments=("--db", str(path)), database=str(path))
    return Place(Database(path), broker)
