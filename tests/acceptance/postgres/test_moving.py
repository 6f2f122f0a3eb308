"""`tandem db migrate-to` as people run it: with their broker running, there and back."""

import threading
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.local import PROPOSAL
from tests.support.postgres import broker_on
from tests.support.processes import BrokerProcess
from tests.support.tandem import Tandem

pytestmark = pytest.mark.postgres


def test_a_database_moves_away_from_under_a_running_broker_and_back(
    own_home: Path, repository: Path, process: BrokerProcess
) -> None:
    tandem = Tandem(repository, own_home)
    client = process.client()
    acknowledged = [client("create_review", **PROPOSAL)["review_id"]]
    stopped = threading.Event()

    def propose_on() -> None:
        """Until the broker is gone. What it has acknowledged must be in the copy."""
        while not stopped.is_set():
            try:
                acknowledged.append(client("create_review", **PROPOSAL)["review_id"])
            except Exception:  # noqa: BLE001 - a call that was not answered is not acknowledged
                return

    proposing = threading.Thread(target=propose_on)
    proposing.start()
    try:
        with postgres.own_database("walk", empty=True) as url:
            moved = tandem.run("db", "migrate-to", url, "--json")
            assert moved.code == 0, moved.err
            proposing.join()
            assert moved.json["reviews"] >= len(acknowledged) > 1
            assert moved.json["to"] == url
            # The broker was stopped, and the next one goes on with the other database.
            assert tandem.run("status").code == 3
            with broker_on(url, repository, own_home) as broker:
                for review_id in (acknowledged[0], acknowledged[-1]):
                    assert broker.client()("get_review_status", review_id=review_id)["status"] == "pending"
            back = tandem.run("db", "migrate-to", "sqlite:///back.sqlite3", "--db", url, "--json")
            assert back.code == 0, back.err
            assert back.json["reviews"] == moved.json["reviews"]
            verified = tandem.run("audit", "verify", "--db", "back.sqlite3", "--json")
            assert (verified.code, verified.json["whole"]) == (0, True)
    finally:
        stopped.set()
        proposing.join()
