"""One phase of GSD with its real tools, as a script: a plan, three tasks in a worktree, the verification.

No model runs: the script does what the skill tells an agent to do."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.accounts import put
from tests.support.processes import git
from tests.support.real_gsd import ALL, Machine, Package
from tests.support.tandem import Tandem

pytestmark = pytest.mark.gsd

PHASE = ".planning/phases/01-greet"
PLAN = f"{PHASE}/01-01-PLAN.md"
REPORT = f"{PHASE}/01-VERIFICATION.md"
EXECUTOR = ("--agent-type", "gsd-executor", "--phase", "01", "--plan", "01-01", "--category", "code_change")


def propose(tandem: Tandem, *words: str) -> str:
    return tandem("propose", *words)["review_id"]


@pytest.fixture
def ready(request: pytest.FixtureRequest, machine: Machine, tandem: Tandem) -> Package:
    package: Package = request.param
    machine.prepare(package)
    tandem("install", "gsd")
    tandem("gate", "install", "--mode", "block")
    assert tandem("gsd", "session-start")["broker"]
    return package


@pytest.mark.parametrize("ready", ALL, ids=lambda package: package.name, indirect=True)
def test_a_phase_from_the_plan_to_the_verification(machine: Machine, tandem: Tandem, ready: Package) -> None:
    _plan(machine, tandem, ready)
    worktree = machine.project.with_name("worktree")
    git(machine.project, "worktree", "add", "-q", str(worktree), "-b", "worktree-agent-1")
    reviews = _tasks(Tandem(worktree, machine.home), worktree)
    git(machine.project, "merge", "-q", "--no-ff", "-m", "Merge the plan's work", "worktree-agent-1")
    _verification(machine, tandem, ready)

    # Everything is on record, by phase and plan.
    assert tandem("gate", "status")["commits"] == []
    assert tandem("gsd", "check")["refused"] == []
    rows: list[dict[str, Any]] = tandem("list")["reviews"]
    assert [row for row in rows if row["phase"] != "01"] == []
    tasks = sorted((row["task"], row["category"]) for row in rows if row["plan"] == "01-01" and row["task"])
    assert tasks == [("1", "code_change"), ("2", "code_change"), ("3", "code_change")]
    events = [event["event_type"] for event in tandem("log", reviews[1])["events"]]
    assert {"counter_patch_offered", "counter_patch_accepted", "commit_landed", "review_closed"} <= set(events)


@pytest.mark.parametrize("ready", ALL, ids=lambda package: package.name, indirect=True)
def test_code_waits_for_the_plan_of_the_phase_that_gsd_has_begun(
    machine: Machine, tandem: Tandem, ready: Package
) -> None:
    put(machine.project / ".planning" / "ROADMAP.md", "# Roadmap\n\n### Phase 1: Greet\n\n### Phase 2: Leave\n")
    put(machine.project / ".planning" / "STATE.md", "# State\n\n## Current Position\n\nPhase: 1 of 2 (Greet)\n")
    settings = machine.project / ".planning" / "review-broker.json"
    settings.write_text(json.dumps({"gate": {"mode": "block", "plan_first": True}}))
    plan = ".planning/phases/02-leave/02-01-PLAN.md"
    put(machine.project / plan, "# Say goodbye\n")
    put(machine.project / "leave.py", "print('goodbye')\n")
    git(machine.project, "add", "leave.py")
    tandem("approve", propose(tandem, "--staged", *EXECUTOR, "-m", "Say goodbye"), "--as", "codex")

    # The executor of phase 2 starts, by GSD's own tool, before anybody approved its plan.
    words = ("state", "begin-phase", "--phase", "2", "--name", "Leave", "--plans", "1")
    machine.tools(ready, "claude", "local", *words)
    refused = machine.commit(ready, "feat(02-01): say goodbye", "--files", "leave.py")
    assert (refused["committed"], plan in refused["error"]) == (False, True)
    assert "code waits until its plan is approved" in refused["error"]
    review = propose(tandem, "--path", plan, "-m", "Plan", "--agent-type", "gsd-planner", "--category", "plan_review")
    tandem("approve", review, "--as", "codex")
    assert machine.commit(ready, "feat(02-01): say goodbye", "--files", "leave.py")["committed"] is True


def _plan(machine: Machine, tandem: Tandem, package: Package) -> None:
    """Sent back once; then GSD's own commit wrapper may record it."""
    put(machine.project / PLAN, "# Greet\n\nSay hello.\n")
    words = ("--path", PLAN, "--agent-type", "gsd-planner", "--phase", "01", "--plan", "01-01")
    review = propose(tandem, *words, "-m", "Plan the greeting", "--category", "plan_review")
    tandem("request-changes", review, "-m", "In which language?", "--as", "codex")
    assert machine.commit(package, "docs(01): plan", "--files", PLAN)["committed"] is False
    put(machine.project / PLAN, "# Greet\n\nSay hello in French.\n")
    propose(tandem, *words, "-m", "Plan the greeting", "--category", "plan_review", "--review", review)
    tandem("approve", review, "--as", "codex")
    assert tandem("gate", "check", "--plan", PLAN)["reviews"] == [review]
    assert machine.commit(package, "docs(01): plan", "--files", PLAN)["committed"] is True
    tandem("close", review)


def _tasks(executor: Tandem, worktree: Path) -> list[str]:
    reviews: list[str] = []
    for number in (1, 2, 3):
        name = f"greet{number}.py"
        put(worktree / name, f"print('hello {number}')\n")
        git(worktree, "add", name)
        words = ("--staged", *EXECUTOR, "--task", str(number))
        review = propose(executor, *words, "-m", f"Task {number}")
        refused = subprocess.run(
            ["git", "commit", "-qm", f"feat(01-01): task {number}"],
            cwd=worktree, env=executor.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (refused.returncode != 0, "tandem gate: refused" in refused.stderr) == (True, True)
        if number == 2:
            _improved(executor, worktree, review, name)
        executor("approve", review, "--as", "codex")
        if number == 2:
            git(worktree, "rm", "-qf", name)
            executor("apply", review, "--index")
        git(worktree, "commit", "-qm", f"feat(01-01): task {number}")
        executor("close", review)
        reviews.append(review)
    assert (worktree / "greet2.py").read_text() == "print('bonjour 2')\n"
    return reviews


def _improved(executor: Tandem, worktree: Path, review: str, name: str) -> None:
    """The reviewer has a better patch, and the executor takes it."""
    better = executor.run("diff", review, "--raw").out.replace("hello 2", "bonjour 2")
    lines = [line for line in better.splitlines(keepends=True) if not line.startswith("index ")]
    patch = put(worktree.parent / f"{name}.patch", "".join(lines))
    offered = executor.run("counter", review, "-F", str(patch), "-m", "In French", "--as", "codex", "--json")
    assert offered.code == 0, offered
    executor("accept", review, "--as", "gsd-executor")


def _verification(machine: Machine, tandem: Tandem, package: Package) -> None:
    """GSD's reports below .planning are exempt from the gate; their review is the skill's, and on record."""
    put(machine.project / REPORT, "# Verified\n\nAll three greet.\n")
    words = ("--path", REPORT, "--agent-type", "gsd-verifier", "--phase", "01", "--category", "verification")
    review = propose(tandem, *words, "-m", "The phase does what it promised")
    tandem("approve", review, "--as", "codex")
    assert machine.commit(package, "docs(01): verification", "--files", REPORT)["committed"] is True
    tandem("close", review)
