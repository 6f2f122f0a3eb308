"""`tandem db migrate-to` as people run it: the broker is stopped, and starts on the new database; there and back."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gsd_review_broker import maintenance
from gsd_review_broker.settings.state_files import Database
from tests.support import postgres
from tests.support.invariants import events_of, problems
from tests.support.load import Load, lost
from tests.support.local import PROPOSAL
from tests.support.postgres import broker_on
from tests.support.processes import DATABASE, BrokerProcess, run_broker
from tests.support.tandem import Tandem
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.postgres
SEED = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(2**32))


def test_a_database_moves_away_while_its_broker_is_stopped_and_back(
    own_home: Path, repository: Path, process: BrokerProcess
) -> None:
    tandem = Tandem(repository, own_home)
    review_id = process.client()("create_review", **PROPOSAL)["review_id"]
    with postgres.own_database("walk", empty=True) as url:
        assert process.process is not None
        refused = tandem.run("db", "migrate-to", url)
        assert refused.code != 0
        assert f"(pid {process.process.pid}); stop it with `tandem down`" in refused.err
        process.stop()
        moved = tandem.run("db", "migrate-to", url, "--json")
        assert moved.code == 0, moved.err
        assert (moved.json["reviews"], moved.json["to"]) == (1, url)
        started = run_broker(repository, own_home, "--port", "0")
        assert (started.returncode, f"was moved to {url}; use that one" in started.stderr) == (3, True)
        with broker_on(url, repository, own_home) as broker:
            assert broker.client()("get_review_status", review_id=review_id)["status"] == "pending"
        back = tandem.run("db", "migrate-to", "sqlite:///back.sqlite3", "--db", url, "--json")
        assert back.code == 0, back.err
        assert back.json["events"] == moved.json["events"]
    verified = tandem.run("audit", "verify", "--db", "back.sqlite3", "--json")
    assert (verified.code, verified.json["whole"]) == (0, True)


@dataclass
class Place:
    """A database that reviews are in, or move to; and the broker that serves it."""

    database: Database
    broker: BrokerProcess
    tandem: Tandem

    @property
    def db(self) -> str:
        return self.database.url or str(self.database.path)

    @property
    def address(self) -> str:
        return self.database.url or f"sqlite:///{self.database.path}"

    def refusal(self) -> str:
        """What a start on it says; it must not succeed."""
        refused = run_broker(self.tandem.folder, self.tandem.home, "--port", "0", "--db", self.db)
        assert refused.returncode == 3, refused.stderr
        return refused.stderr

    def require_whole(self, load: Load) -> None:
        """I1 to I7: of everything that was acknowledged, on whichever database."""
        with maintenance.as_file(self.database) as file:
            assert problems(file) == [], f"KILL_SEED={SEED}"
            assert lost(load, events_of(file)) == [], f"KILL_SEED={SEED}"


class Journey:
    """A mover that is killed again and again on its way from one place to the next. Clients call all the time."""

    def __init__(self, tandem: Tandem, load: Load, chance: random.Random, port: int) -> None:
        self._tandem, self._load, self._chance, self._port = tandem, load, chance, port
        # How long the last move took. Before the first one, kills come later and later.
        self._seconds = 2.0
        self.kills = 0

    def go(self, here: Place, there: Place, *, most_kills: int) -> None:
        for _ in range(most_kills):
            here.broker.stop(self._chance.choice((signal.SIGTERM, signal.SIGKILL)))
            if self._survives(here, there):
                return
            self.kills += 1
            if asyncio.run(maintenance._moved_to(here.database)) is not None:
                break
            # The old broker goes on as if the move had not begun.
            here.broker.start(port=self._port)
            self._load.wait_for(self._chance.randrange(1, 20))
        else:
            here.broker.stop()
        moved = self._tandem.run("db", "migrate-to", there.address, "--db", here.db)
        # It may have been killed when everything was done.
        assert moved.code == 0 or "already" in moved.err, f"{moved.err}, KILL_SEED={SEED}"

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
        return False


@pytest.mark.torture
def test_a_move_that_is_killed_at_any_moment_loses_nothing(own_home: Path, repository: Path) -> None:
    print(f"KILL_SEED={SEED}")  # noqa: T201 - shown when it fails, and in make torture
    chance = random.Random(SEED)
    tandem = Tandem(repository, own_home)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(repository, home=own_home))
        here = Place(Database(repository / DATABASE), broker, tandem)
        load = stack.enter_context(Load([broker.port], SEED, clients=3, may_be_unavailable=True))
        journey = Journey(tandem, load, chance, broker.port)
        for leg in range(4):
            load.wait_for(20)
            there = place_on_postgres(stack, tandem, leg) if leg % 2 == 0 else place_in_file(tandem, leg)
            journey.go(here, there, most_kills=5)
            assert "was moved to" in here.refusal()
            there.require_whole(load)
            if there.database.url is not None:
                # The broker of an earlier leg has been heard of within 30 s.
                postgres.run(postgres.execute(there.database.url, "UPDATE brokers SET heartbeat_at = 0"))
            stack.enter_context(contextlib.closing(_Started(there.broker, broker.port)))
            here = there
        load.wait_for(20)
        load.stopping.set()
        for thread in load.threads:
            thread.join(PATIENCE)
        assert load.failures == []
        here.broker.stop()
        here.require_whole(load)
    print(f"{journey.kills} kills")  # noqa: T201 - as above
    assert journey.kills > 3


class _Started:
    """On the port where its clients look for it."""

    def __init__(self, broker: BrokerProcess, port: int) -> None:
        self._broker = broker
        broker.start(port=port)

    def close(self) -> None:
        self._broker.__exit__()


def place_on_postgres(stack: contextlib.ExitStack, tandem: Tandem, leg: int) -> Place:
    url = stack.enter_context(postgres.own_database(f"leg{leg}", empty=True))
    return Place(Database(tandem.home / f"leg-{leg}", url), broker_on(url, tandem.folder, tandem.home), tandem)


def place_in_file(tandem: Tandem, leg: int) -> Place:
    path = tandem.home / f"leg-{leg}.sqlite3"
    broker = BrokerProcess(tandem.folder, home=tandem.home, arguments=("--db", str(path)), database=str(path))
    return Place(Database(path), broker, tandem)
