"""`gate.plan_first`: code waits until the plans of the current phase are approved as they are."""

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.accounts import put
from tests.support.gated import Gated, gated
from tests.support.gsd import gsd_project

PHASE = ".planning/phases/03-parse"
PLAN, OTHER = f"{PHASE}/03-01-PLAN.md", f"{PHASE}/03-02-PLAN.md"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gated]:
    """git ignores `.planning` there, as with GSD's `commit_docs: false`."""
    with gated(tmp_path_factory.mktemp("plans")) as running:
        gsd_project(running.folder)
        put(running.folder / ".planning" / "STATE.md", "## Current Position\n\nPhase: 3 of 5 (Parse)\n")
        running.first = running.head()
        yield running


@pytest.fixture(autouse=True)
def clean(here: Gated) -> Generator[None]:
    policy(here)
    yield
    policy(here, plan_first=False)
    # A test commits a plan; git would then take it along in the next test.
    here.must("reset", "-q", "--hard", here.first)
    for path in (here.folder / PHASE).glob("*"):
        path.unlink()


def policy(here: Gated, *, plan_first: bool = True) -> None:
    """Written a while ago: a ticket counts only if it is newer."""
    text = json.dumps({"gate": {"mode": "block", "plan_first": plan_first}})
    path = put(here.folder / ".planning" / "review-broker.json", text)
    os.utime(path, (path.stat().st_mtime - 3600,) * 2)


def approve_plan(here: Gated, name: str, text: str) -> str:
    put(here.folder / name, text)
    words = ("--path", name, "-m", "Plan", "--agent-type", "gsd-planner", "--category", "plan_review")
    review: str = here.tandem("propose", *words)["review_id"]
    here.tandem("approve", review, "--as", "codex-1")
    return review


def test_approved_code_lands_only_after_its_plan_and_only_as_long_as_the_plan_stays(here: Gated) -> None:
    put(here.folder / PLAN, "# Parse\n")
    here.stage(hello_txt="one\n")
    here.approve()
    refused = here.git("commit", "--no-verify", "-m", "feat(03-01): parse")
    assert refused.code != 0
    assert "tandem gate: refused: code waits until its plan is approved (gate.plan_first)." in refused.err
    assert f"not approved as it is: {PLAN}" in refused.err
    assert f"The plan in {here.folder} applies; run the command there" in refused.err
    assert f"Next: tandem propose --path {PLAN} " in refused.err
    assert here.events("gate_refused")[-1]["metadata"]["plans"] == [PLAN]

    approve_plan(here, PLAN, "# Parse\n")
    put(here.folder / PLAN, "# Parse everything\n")
    assert here.git("commit", "-m", "feat(03-01): parse").code != 0
    put(here.folder / PLAN, "# Parse\n")
    here.must("commit", "-m", "feat(03-01): parse")


def test_every_unfinished_plan_of_the_phase_counts_and_no_other(here: Gated) -> None:
    approve_plan(here, PLAN, "# First\n")
    put(here.folder / OTHER, "# Second\n")
    put(here.folder / ".planning/phases/04-print/04-01-PLAN.md", "# Of the next phase\n")
    here.stage(hello_txt="two\n")
    here.approve()
    refused = here.git("commit", "-m", "feat(03-01): more")
    assert (refused.code != 0, OTHER in refused.err, PLAN in refused.err, "04-01" in refused.err) == (
        True, True, False, False,
    )  # fmt: skip
    # It is done: what was planned there has happened.
    put(here.folder / OTHER.replace("PLAN", "SUMMARY"), "Done.\n")
    here.must("commit", "-m", "feat(03-01): more")


def test_a_worktree_looks_at_the_plan_of_the_main_tree(here: Gated, tmp_path: Path) -> None:
    put(here.folder / PLAN, "# In a worktree\n")
    folder = tmp_path / "worktree"
    here.must("worktree", "add", "-q", str(folder), "-b", "worktree-agent-1")
    executor = here.elsewhere(folder)
    executor.stage(other_txt="in a worktree\n")
    executor.approve()
    assert "code waits until its plan is approved" in executor.git("commit", "-m", "feat(03-01): there").err
    approve_plan(here, PLAN, "# In a worktree\n")
    executor.must("commit", "-m", "feat(03-01): there")
    here.must("worktree", "remove", str(folder))


def test_it_is_off_by_default_and_a_plan_may_land_before_another_is_approved(here: Gated) -> None:
    put(here.folder / OTHER, "# Not approved\n")
    review = approve_plan(here, PLAN, "# To be committed\n")
    here.must("add", "-f", PLAN)
    here.must("commit", "-m", "docs(03): plan")
    assert here.tandem("gate", "check", "HEAD~1..HEAD")["commits"][0]["reviews"] == [review]
    here.stage(hello_txt="three\n")
    here.approve()
    assert here.git("commit", "-m", "feat(03-01): held").code != 0
    policy(here, plan_first=False)
    here.must("commit", "-m", "feat(03-01): free")


def test_without_a_broker_its_database_says_whether_the_plan_is_approved(here: Gated) -> None:
    approve_plan(here, PLAN, "# Without a broker\n")
    here.stage(hello_txt="four\n")
    here.approve()
    with here.without_broker():
        put(here.folder / PLAN, "# Another\n")
        assert "code waits until its plan is approved" in here.git("commit", "-m", "feat(03-01): alone").err
        put(here.folder / PLAN, "# Without a broker\n")
        here.must("commit", "-m", "feat(03-01): alone")
        assert here.tandem.run("gate", "check", "--plan", PLAN).code == 0
