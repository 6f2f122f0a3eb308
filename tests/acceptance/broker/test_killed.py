"""kill -9 at any moment, under load: what was acknowledged is there, and what is there is whole (I1 to I7)."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gsd_review_broker.domain.model import Event, Identity, Milliseconds, ReviewId
from gsd_review_broker.domain.words import EventType
from tests.support.invariants import events_of, problems
from tests.support.load import Acknowledged, Load, lost
from tests.support.processes import BrokerProcess, free_environment
from tests.support.waiting import PATIENCE

SEED = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(2**32))


def kill(broker: BrokerProcess) -> None:
    assert broker.process is not None
    assert broker.stop(signal.SIGKILL) == -signal.SIGKILL


def kill_while_starting(broker: BrokerProcess, after: float) -> None:
    """Somebody is impatient: another kill before the restarted broker is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gsd_review_broker", "--port", str(broker.port)],
        cwd=broker.folder, env=free_environment(broker.home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        process.wait(timeout=after)
    except subprocess.TimeoutExpired:
        process.kill()
    assert process.wait() == -signal.SIGKILL


def survive(repository: Path, home: Path, *, kills: int, check_each: bool) -> Load:
    print(f"KILL_SEED={SEED}")  # noqa: T201 - shown when it fails, and in make torture
    chance = random.Random(SEED)
    with BrokerProcess(repository, home=home) as broker, Load([broker.port], SEED) as load:
        port = broker.port
        for number in range(kills):
            load.wait_for(chance.randrange(1, 40))
            # Anywhere within a commit, and not always right after an answer.
            time.sleep(chance.random() * 0.01)
            kill(broker)
            if check_each:
                assert problems(broker.database) == [], f"after kill {number + 1}, KILL_SEED={SEED}"
            if number % 8 == 5:
                kill_while_starting(broker, chance.uniform(0.1, 0.8))
            broker.start(port=port)
        load.wait_for(20)
        load.stopping.set()
        for thread in load.threads:
            thread.join(PATIENCE)
        assert load.failures == []
        kill(broker)
    assert problems(broker.database) == [], f"KILL_SEED={SEED}"
    assert lost(load, events_of(broker.database)) == [], f"KILL_SEED={SEED}"
    return load


def test_four_kills_under_load_lose_nothing_that_was_acknowledged(repository: Path, own_home: Path) -> None:
    load = survive(repository, own_home, kills=4, check_each=True)
    kinds = {told.event_type for told in load.acknowledged}
    assert {"review_created", "review_claimed", "message_sent", "verdict_submitted"} <= kinds
    assert any(told.repeated for told in load.acknowledged)


def test_a_write_that_was_lost_or_done_twice_is_noticed() -> None:
    def message(number: int, body: str) -> Event:
        return Event(
            id=number,
            event_type=EventType.MESSAGE_SENT,
            actor=Identity("codex"),
            review_id=ReviewId("a"),
            old_status=None,
            new_status=None,
            timestamp=Milliseconds(0),
            metadata={"body_preview": body},
            previous_hash="",
            hash="",
        )

    load = Load(ports=[0], seed=0)
    load.asked.update(["one", "two"])
    load.acknowledged.append(Acknowledged("message_sent", "a", {"body_preview": "one"}, repeated=False))
    assert lost(load, [message(1, "one"), message(2, "two")]) == []
    assert [found.split(":")[0] for found in lost(load, [message(1, "two")])] == ["lost"]
    assert lost(load, [message(1, "one"), message(2, "one")]) == ["2 times: one"]


@pytest.mark.torture
def test_hundreds_of_kills_under_load_lose_nothing_that_was_acknowledged(repository: Path, own_home: Path) -> None:
    survive(repository, own_home, kills=300, check_each=False)
