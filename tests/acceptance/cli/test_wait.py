"""Waiting: as soon as there is something to tell, over restarts, and with hardly a word."""

import argparse
import json
import select
import signal
import subprocess
import time
from collections.abc import Generator
from typing import Any

import pytest

from gsd_review_broker.cli.broker.watching import follow
from gsd_review_broker.cli.context import Context
from gsd_review_broker.client.connection import Json
from tests.support.local import PROPOSAL
from tests.support.mcp import Mcp
from tests.support.processes import BrokerProcess
from tests.support.tandem import Tandem, broker_of_module
from tests.support.waiting import PATIENCE, until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    yield from broker_of_module(tmp_path_factory)


@pytest.fixture
def mcp(request: pytest.FixtureRequest) -> Mcp:
    """Of the broker that a test has for itself, because it ends it, or of the one that all others share."""
    own = "process" in request.fixturenames
    return request.getfixturevalue("process" if own else "shared").client()


@pytest.fixture
def tandem(request: pytest.FixtureRequest) -> Tandem:
    process = request.getfixturevalue("process" if "process" in request.fixturenames else "shared")
    return Tandem(process.folder, process.home)


def created(mcp: Mcp) -> str:
    return mcp("create_review", **PROPOSAL)["review_id"]


def until_somebody_waits(mcp: Mcp) -> None:
    """Asked again and again, with a deadline: waiting itself is what is looked for."""
    until(lambda: mcp("broker_status")["waiting"])


def judged(mcp: Mcp, review_id: str, verdict: str, **more: Any) -> None:
    claim = mcp("claim_review", review_id=review_id, reviewer_id="codex")
    mcp("submit_verdict", review_id=review_id, verdict=verdict, claim_generation=claim["claim_generation"], **more)


def ended(waiting: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    out, err = waiting.communicate(timeout=PATIENCE)
    return waiting.returncode, out.decode(), err.decode()


def test_each_verdict_ends_the_wait_with_its_exit_code(tandem: Tandem, mcp: Mcp) -> None:
    approved, refused = created(mcp), created(mcp)
    with tandem.start("wait", approved) as waiting:
        until_somebody_waits(mcp)
        judged(mcp, approved, "approved")
        assert ended(waiting) == (0, f"{approved} approved\n", "")
    with tandem.start("wait", refused) as waiting:
        until_somebody_waits(mcp)
        judged(mcp, refused, "changes_requested", reason="No.\nReally not.")
        assert ended(waiting) == (5, f"{refused} changes_requested: No.\n", "")
    mcp("close_review", review_id=refused)
    assert tandem.run("wait", refused).code == 5
    mcp("close_review", review_id=approved)
    assert tandem.run("wait", approved).code == 0


def test_when_the_time_is_over_nothing_has_changed(tandem: Tandem, mcp: Mcp) -> None:
    review_id = created(mcp)
    said = tandem.run("wait", review_id, "--timeout", "0.2", "--json")
    assert (said.code, said.json["changed"], said.json["status"]) == (8, False, "pending")
    said = tandem.run("propose", "-m", "x", "--no-diff", "--wait", "0.2", "--json")
    assert (said.code, said.json["waited"]["changed"]) == (8, False)
    judged(mcp, review_id, "approved")
    assert tandem("wait", review_id)["changed"] is True


def test_an_open_counter_patch_ends_the_wait_for_it_needs_an_answer(tandem: Tandem, mcp: Mcp) -> None:
    diff = "--- a/hello.txt\n+++ b/hello.txt\n@@ -1,3 +1,3 @@\n-one\n+un\n two\n three\n"
    review_id = mcp("create_review", **PROPOSAL, diff=diff)["review_id"]
    judged(mcp, review_id, "comment", reason="Or so?", counter_patch=diff.replace("+un", "+eins"))
    said = tandem.run("wait", review_id)
    assert said.code == 8
    assert said.out == f"{review_id} claimed by codex, a counter-patch is offered: Or so?\n"


def test_the_time_that_is_over_is_an_answer(tandem: Tandem, mcp: Mcp) -> None:
    review_id = created(mcp)
    said = tandem.run("wait", review_id, "--timeout", "0.2")
    assert (said.code, said.out, said.err) == (8, f"{review_id} pending\n", "")
    assert tandem.run("wait", review_id, "--timeout", "0.1", "--json").json["status"] == "pending"


def test_a_wait_of_many_slices_prints_less_than_200_bytes(tandem: Tandem, mcp: Mcp) -> None:
    """As many slices as ten minutes have, and as much going on as there may be."""
    review_id = created(mcp)
    with tandem.start("wait", review_id, "--timeout", "60", TANDEM_WAIT_SLICE_SECONDS="0.05") as waiting:
        until_somebody_waits(mcp)
        claim = mcp("claim_review", review_id=review_id, reviewer_id="codex")
        for number in range(30):
            mcp("add_message", review_id=review_id, sender_role="reviewer", body=f"{number}: " + "long words " * 50)
        mcp(
            "submit_verdict",
            review_id=review_id,
            verdict="changes_requested",
            reason="A long reason. " * 100,
            claim_generation=claim["claim_generation"],
            findings=[{"title": "x" * 200, "body": "y" * 2_000, "severity": "high"}],
        )
        code, out, err = ended(waiting)
    assert code == 5
    assert len((out + err).encode()) < 200


def test_who_asks_for_more_is_told_each_step(tandem: Tandem, mcp: Mcp) -> None:
    review_id = created(mcp)
    with tandem.start("wait", review_id, "-v") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == f"{review_id} pending\n".encode()
        mcp("claim_review", review_id=review_id, reviewer_id="codex")
        assert waiting.stdout.readline() == f"{review_id} claimed by codex\n".encode()
        mcp("submit_verdict", review_id=review_id, verdict="approved", reviewer_id="codex")
        assert waiting.stdout.readline() == f"{review_id} approved\n".encode()
        assert waiting.wait(20) == 0


def test_a_wait_goes_on_over_a_restart_of_the_broker_on_another_port(
    process: BrokerProcess, tandem: Tandem, mcp: Mcp
) -> None:
    review_id = created(mcp)
    with tandem.start("wait", review_id, "--timeout", "60") as waiting:
        until_somebody_waits(mcp)
        mcp.close()
        process.stop(signal.SIGKILL)
        process.runtime_file.unlink()
        process.start()
        again = process.client()
        until_somebody_waits(again)
        judged(again, review_id, "approved")
        assert ended(waiting) == (0, f"{review_id} approved\n", "")


def test_a_broker_that_does_not_come_back_ends_the_wait_with_3(
    process: BrokerProcess, tandem: Tandem, mcp: Mcp
) -> None:
    review_id = created(mcp)
    with tandem.start("wait", review_id, "--timeout", "2") as waiting:
        until_somebody_waits(mcp)
        mcp.close()
        process.stop()
        code, out, err = ended(waiting)
    assert (code, out) == (3, "")
    assert "no broker is running" in err


def test_an_interrupted_wait_exits_130_and_changes_nothing(tandem: Tandem, mcp: Mcp) -> None:
    review_id = created(mcp)
    with tandem.start("wait", review_id) as waiting:
        until_somebody_waits(mcp)
        waiting.send_signal(signal.SIGINT)
        assert ended(waiting) == (130, "", "")
    assert mcp("get_review_status", review_id=review_id)["status"] == "pending"


def test_propose_with_wait_is_the_proposal_and_then_the_verdict(tandem: Tandem, mcp: Mcp) -> None:
    (tandem.folder / "hello.txt").write_text("changed\n")
    with tandem.start("propose", "-m", "x", "--worktree", "--wait") as waiting:
        assert waiting.stdout is not None
        review_id = waiting.stdout.readline().decode().split()[0]
        until_somebody_waits(mcp)
        judged(mcp, review_id, "changes_requested", reason="No.")
        assert ended(waiting) == (5, f"{review_id} changes_requested: No.\n", "")
    said = tandem.run("propose", "-m", "x", "--worktree", "--wait", "0.1", "--json")
    assert said.code == 8
    assert (said.json["revision"], said.json["waited"]["status"]) == (1, "pending")


def test_watch_of_one_review_tells_its_story_and_ends_with_it(tandem: Tandem, mcp: Mcp) -> None:
    review_id = created(mcp)
    with tandem.start("watch", review_id[:8], "--json") as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert (first["event_type"], first["review_id"]) == ("review_created", review_id)
        judged(mcp, review_id, "approved")
        mcp("close_review", review_id=review_id)
        rest = [json.loads(line)["event_type"] for line in watching.stdout]
        assert rest == ["review_claimed", "verdict_submitted", "review_closed"]
        assert watching.wait(20) == 0
    assert len(tandem.run("watch", review_id).out.splitlines()) == 4


def test_watch_of_everything_tells_what_happens_from_now_on(process: BrokerProcess, tandem: Tandem, mcp: Mcp) -> None:
    for _ in range(5):
        created(mcp)
    with tandem.start("watch", "--json") as watching:
        assert watching.stdout is not None
        # Proposed until one of them is seen: it is watching then.
        while not select.select([watching.stdout], [], [], 0.2)[0]:
            created(mcp)
        seen = json.loads(watching.stdout.readline())
        known = mcp("get_audit_log", limit=500)["events"]
        assert seen in known
        assert seen["id"] > known[4]["id"]
        mcp.close()
        process.stop()
        assert watching.stderr is not None
        assert watching.stderr.readline() == b"The broker does not answer; waiting for it.\n"
        process.start()
        late = created(process.client())
        assert any(json.loads(line)["review_id"] == late for line in watching.stdout)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 130


def test_watch_ends_by_itself_after_the_time_that_was_asked_for(tandem: Tandem, mcp: Mcp) -> None:
    review_id = created(mcp)
    assert tandem.run("watch", "--for", "0.3").code == 0
    said = tandem.run("watch", "--after", "0", "--for", "0.3")
    assert f"{review_id[:8]}  review_created by gsd-executor: Say hello in French" in said.out
    assert tandem.run("watch", review_id, "--for", "0.3").out.count("\n") == 1


class CountingContext(Context):
    """Counts what is asked of the broker."""

    asked = 0

    def ask(self, tool: str, **arguments: Any) -> Json:
        self.asked += 1
        return super().ask(tool, **arguments)


def test_whoever_watches_asks_the_broker_only_when_something_happened(
    shared: BrokerProcess, mcp: Mcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(mcp)
    monkeypatch.chdir(shared.folder)
    where = {"url": None, "db": None, "config": None, "user": False}
    context = CountingContext(argparse.Namespace(**where))
    following = follow(context, review_id=None, after=None, until=time.monotonic() + 60)
    # The stream begins, and tells where the audit ends: nothing is looked for.
    assert next(following) == []
    assert next(following) == []
    assert context.asked == 0
    review_id = created(mcp)
    news = next(events for events in following if events)
    assert [event["review_id"] for event in news] == [review_id]
    assert next(following) == []
    assert context.asked == 1
    following.close()
    context.forget_broker()


def test_a_closed_review_is_told_to_its_end_and_not_waited_for(tandem: Tandem, mcp: Mcp) -> None:
    review_id = created(mcp)
    mcp("close_review", review_id=review_id)
    last = mcp("get_audit_log", review_id=review_id)["events"][-1]["id"]
    assert tandem.run("watch", review_id, "--after", str(last)).out == ""
    assert len(tandem.run("watch", review_id, "--after", str(last - 1)).out.splitlines()) == 1
