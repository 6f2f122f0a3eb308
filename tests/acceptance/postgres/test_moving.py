"""`tandem db migrate-to` as people run it: with their broker running, there and back."""

import threading
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.local import PROPOSAL
from tests.support.mcp import ToolError
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
    proposing.start()
    try:
        with postgres.own_database("walk", empty=True) as url:
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
        proposing.join()
