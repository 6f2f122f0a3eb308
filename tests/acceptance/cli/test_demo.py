"""`tandem demo`: the whole loop, real in all but the agents, and nothing left of it."""

import signal
from pathlib import Path

import psutil
import pytest

from tests.support.tandem import Tandem
from tests.support.waiting import PATIENCE

EVENTS = [
    "review_created", "review_claimed", "verdict_submitted", "finding_resolved", "finding_resolved", "message_sent",
    "review_revised", "review_claimed", "verdict_submitted", "counter_patch_offered", "counter_patch_accepted",
    "review_claimed", "verdict_submitted", "gate_refused", "review_closed",
]  # fmt: skip


@pytest.fixture
def tandem(tmp_path: Path, own_home: Path) -> Tandem:
    """Outside any repository, with scratch folders of its own."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "elsewhere").mkdir()
    return Tandem(tmp_path / "elsewhere", own_home, TMPDIR=str(tmp_path / "scratch"))


def scratch(tandem: Tandem) -> list[str]:
    return [path.name for path in Path(tandem.environment["TMPDIR"]).iterdir()]


def test_three_rounds_findings_a_counter_patch_an_approval_and_a_gated_commit(
    tandem: Tandem,
) -> None:
    told = tandem("demo", "--fast", timeout=2 * PATIENCE)
    # The hook reports what landed after git has finished.
    assert [event for event in told["events"] if event != "commit_landed"] == EVENTS
    said = [detail for step in told["steps"] for detail in step["details"]]
    assert [line for line in said if line.startswith("the gate")] == [
        "the gate's answer: refused",
        "the gate's answer: lets it in",
    ]
    digests = [line for line in said if line.startswith(("approved ", "staged ", "commit "))]
    approved, staged, again, committed = digests[-4:]
    assert approved.split()[1] == again.split()[1] == committed.split()[1]
    assert staged.split()[1] != approved.split()[1]
    assert "tandem gate: refused: 1 commit without an approved review." in said
    assert "    without approval: greet.py" in said
    assert scratch(tandem) == []


def test_it_is_told_step_by_step_to_the_end(tandem: Tandem) -> None:
    said = tandem.run("demo", "--fast")
    assert (said.code, said.err) == (0, "")
    for expected in (
        "Round 3",
        "http://127.0.0.1:",
        "high    greet.py:7",
        "the real git hook's",
        " events are on record",
    ):
        assert expected in said.out


def test_nothing_of_the_persons_own_settings_counts(tandem: Tandem, own_home: Path) -> None:
    """A pool that is switched on there would start real reviewers."""
    config = own_home / "config" / "gsd-review-broker" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"port": "broken"}')
    assert tandem.run("demo", "--fast", BROKER_PORT="broken", BROKER_DB="/nowhere").code == 0


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_takes_everything_down(tandem: Tandem, kind: signal.Signals) -> None:
    with tandem.start("demo") as running:
        assert running.stdout is not None
        assert b"Watch it live" in running.stdout.readline()
        running.stdout.readline()
        children = psutil.Process(running.pid).children(recursive=True)
        assert children
        running.send_signal(kind)
        assert running.wait(PATIENCE) == 130
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert scratch(tandem) == []
