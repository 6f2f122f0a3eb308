"""The broker ends, one way or another, while its reviewers run: nothing of them is left (I8)."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.rules.pool import Reviewer
from gsd_review_broker.domain.words import ReviewerState
from gsd_review_broker.pool import tree
from gsd_review_broker.pool.launcher import host_name
from gsd_review_broker.processes import start_of
from gsd_review_broker.settings.state_files import Database
from tests.support import invariants
from tests.support.local import PROPOSAL, local_broker
from tests.support.pool import alive, pool_of, script, user_file
from tests.support.processes import DATABASE, BrokerProcess
from tests.support.waiting import PATIENCE, until

HOLDS = """
import client, os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    os._exit(0)
os.wait()
client.claim()
time.sleep(600)
"""


def start_holding(home: Path, repository: Path) -> tuple[BrokerProcess, str, dict[str, Any]]:
    """A broker whose one reviewer holds a review, a child and a daemon, and does not listen to TERM."""
    user_file(home, **pool_of(script(home, HOLDS), max_pool_size=1))
    broker = BrokerProcess(repository, home=home).start()
    client = broker.client()
    review_id = client("create_review", **PROPOSAL)["review_id"]
    until(lambda: client("get_review_status", review_id=review_id)["status"] == "claimed")
    (reviewer,) = client("list_reviewers")["reviewers"]
    assert len(alive("BROKER_REVIEWER_ID", reviewer["id"])) == 3
    return broker, review_id, reviewer


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who left its group")
@pytest.mark.parametrize("pool_stays_on", [True, pytest.param(False, marks=pytest.mark.torture)])
def test_after_kill_9_the_next_start_leaves_no_reviewer_and_gives_back_what_they_held(
    own_home: Path, repository: Path, pool_stays_on: bool
) -> None:
    broker, review_id, reviewer = start_holding(own_home, repository)
    broker.stop(signal.SIGKILL)
    for client in broker._clients:
        client.close()
    assert len(alive("BROKER_REVIEWER_ID", reviewer["id"])) == 3
    if not pool_stays_on:
        user_file(own_home, enabled=False)
    with contextlib.ExitStack() as stack:
        again = stack.enter_context(BrokerProcess(repository, home=own_home))
        client = again.client()
        assert alive("BROKER_REVIEWER_ID", reviewer["id"]) == []
        (old,) = [one for one in client("list_reviewers")["reviewers"] if one["id"] == reviewer["id"]]
        assert (old["state"], old["end_reason"], old["exit_code"]) == ("terminated", "broker_died", None)
        events = client("get_audit_log", review_id=review_id)["events"]
        assert [event["event_type"] for event in events][:3] == ["review_created", "review_claimed", "review_reclaimed"]
        assert events[2]["metadata"]["old_claimant"] == reviewer["id"]
        again.stop()
    assert invariants.problems(repository / DATABASE) == []
    assert alive("BROKER_POOL", Database(repository / DATABASE).key) == []


@pytest.mark.parametrize(
    "kinds",
    [[signal.SIGTERM], pytest.param([signal.SIGINT], marks=pytest.mark.torture), [signal.SIGINT, signal.SIGINT]],
)
def test_a_broker_that_is_told_to_end_leaves_nothing(
    own_home: Path, repository: Path, kinds: list[signal.Signals]
) -> None:
    broker, review_id, reviewer = start_holding(own_home, repository)
    with broker.log:
        assert broker.process is not None
        for kind in kinds:
            broker.process.send_signal(kind)
        code = broker.process.wait(timeout=PATIENCE)
    until(lambda: alive("BROKER_REVIEWER_ID", reviewer["id"]) == [])
    for client in broker._clients:
        client.close()
    assert code == (130 if signal.SIGINT in kinds else 0)
    assert review_id


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
async def test_a_number_that_was_used_again_is_never_signalled(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    """A row says that a reviewer runs as this process; but it is another's, which began at another time."""
    innocent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        flags = {"db": str(repository / DATABASE)}
        async with local_broker(tmp_path, root=repository, **flags) as local:
            for name, start in (("codex-r1-00000001", "another boot:1"), ("codex-r2-00000002", None)):
                reviewer = Reviewer(
                    id=Identity(name),
                    display_name=name[:8],
                    agent="codex",
                    model=None,
                    project=None,
                    state=ReviewerState.ACTIVE,
                    host=host_name(),
                    pid=innocent.pid,
                    process_start=start,
                    started_at=Milliseconds(1),
                )
                await local.application.broker.pool.records.begun(reviewer)
        with BrokerProcess(repository, home=own_home) as broker:
            listed = broker.client()("list_reviewers")["reviewers"]
            assert {one["end_reason"] for one in listed} == {"broker_died"}
            assert len(listed) == 2
        assert innocent.poll() is None
        # With its own start it would have been.
        assert tree.look(innocent.pid, start_of(innocent.pid)) is not None
        assert tree.look(innocent.pid, "another boot:1") is None
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_a_signal_goes_to_the_process_that_was_meant_or_to_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        found = tree.look(process.pid, start_of(process.pid))
        assert found is not None
        stranger = tree.ProcessFound(found.pid, found.parent, found.group, found.session, found.state, "another boot:1")
        tree.tell(stranger, signal.SIGKILL)
        assert process.poll() is None
        tree.tell(found, signal.SIGKILL)
        assert process.wait(timeout=PATIENCE) == -9
        tree.tell(found, signal.SIGKILL)
        assert os.getpid() != found.pid
    finally:
        process.kill()
        process.wait()
