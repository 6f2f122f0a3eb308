"""The capability with the real gsd-core: its own tools evaluate our gates, render our texts and run our lane."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.accounts import put
from tests.support.processes import free_environment, git
from tests.support.real_gsd import CORE, PACKAGES, Machine
from tests.support.tandem import Tandem
from tests.support.waiting import until

pytestmark = pytest.mark.gsd

PHASE = ".planning/phases/01-greet"
PLAN = f"{PHASE}/01-01-PLAN.md"
NAMES = ("tandem", "tandem-reviewer")
PATH = os.pathsep.join(
    filter(None, [str(Path(sys.executable).parent), os.environ.get("TANDEM_CLIENTS"), os.environ["PATH"]])
)


@pytest.fixture(params=["claude", "codex"])
def runtime(request: pytest.FixtureRequest, machine: Machine, tandem: Tandem) -> str:
    machine.prepare(CORE, request.param)
    put(machine.project / ".planning" / "STATE.md", "# State\n\n## Current Position\n\nPhase: 1 of 2 (Greet)\n")
    tandem("install", "gsd")
    return request.param


class Gsd:
    """Its tools, in the words of its workflows."""

    def __init__(self, machine: Machine, runtime: str) -> None:
        self._machine = machine
        self._runtime = runtime

    def __call__(self, *words: str) -> str:
        return self._machine.tools(CORE, self._runtime, "local", *words)

    def ours(self, point: str) -> list[dict[str, Any]]:
        hooks = json.loads(self("loop", "render-hooks", point, "--raw"))["activeHooks"]
        return [hook for hook in hooks if hook["capId"] == "tandem"]

    def evaluated(self, point: str, *words: str) -> dict[str, Any]:
        """As the workflow at this point does it; GSD decides whether it blocks."""
        (gate,) = (hook for hook in self.ours(point) if hook["kind"] == "gate")
        assert (gate["blocking"], gate["onError"]) == (True, "halt")
        predicate = json.dumps(gate["check"]["predicate"])
        assert "'" not in predicate
        return json.loads(self("check", "predicate", "--predicate", predicate, *words, "--raw"))


def test_what_we_write_is_what_gsds_own_command_writes(machine: Machine, tandem: Tandem, runtime: str) -> None:
    ours = written(machine)
    kept = machine.home / "kept"
    shutil.copytree(machine.project / ".gsd" / "capabilities", kept)
    tandem("uninstall", "gsd")
    assert not (machine.project / ".gsd").exists()
    for name in NAMES:
        machine.tools(CORE, runtime, "local", "capability", "install", str(kept / name), "--scope", "project", "--yes")
    assert written(machine) == ours


def written(machine: Machine) -> dict[str, Any]:
    """Without the times, and where it came from."""
    ledger = json.loads((machine.project / ".gsd-capabilities.json").read_text())["entries"]
    records = json.loads((machine.home / ".gsd" / "consent.json").read_text())["records"]
    return {
        "entries": {name: entry | {"source": ""} for name, entry in ledger.items()},
        "records": {key: record | {"consentedAt": ""} for key, record in records.items()},
    }


def test_gsd_lists_it_as_active_and_can_switch_it_off(machine: Machine, runtime: str) -> None:
    gsd = Gsd(machine, runtime)
    rows = {row["id"]: row["status"] for row in json.loads(gsd("capability", "list", "--json"))}
    assert [rows.get(name) for name in NAMES] == ["active", "active"]
    texts = {hook["into"]: hook["fragment"]["inline"] for point in ("plan:pre", "execute:wave:pre", "verify:pre")
             for hook in gsd.ours(point) if hook["kind"] == "contribution"}  # fmt: skip
    assert texts.keys() == {"planner", "checker", "executor", "orchestrator"}
    assert f".{runtime}/skills/tandem-review/SKILL.md" in texts["executor"]
    # What is written there is bound to the user's consent: after a change, GSD ignores it.
    manifest = machine.project / ".gsd" / "capabilities" / "tandem" / "capability.json"
    manifest.write_text(manifest.read_text().replace("gsd checkpoint", "gsd  checkpoint"))
    assert gsd.ours("plan:post") == []


def test_the_gates_block_until_plans_and_commits_are_approved(machine: Machine, tandem: Tandem, runtime: str) -> None:
    gsd = Gsd(machine, runtime)
    tandem("gate", "install", "--mode", "warn")
    put(machine.project / PLAN, "# Greet\n")
    # Without a broker nothing can be known, so the phase stops.
    stopped = gsd.evaluated("plan:post", "--phase-dir", PHASE)
    assert (stopped["block"], "tandem up" in stopped["message"]) == (True, True)

    tandem("up")
    blocked = gsd.evaluated("plan:post", "--phase-dir", PHASE)
    assert blocked["block"] is True
    assert f"{PLAN} is not approved as it is" in blocked["message"]
    assert f"Next: tandem propose --path {PLAN}" in blocked["message"]
    words = ("--path", PLAN, "-m", "Plan", "--agent-type", "gsd-planner", "--category", "plan_review")
    tandem("approve", tandem("propose", *words)["review_id"], "--as", "codex")
    assert gsd.evaluated("plan:post", "--phase-dir", PHASE)["block"] is False

    # The gate of git only warns here, so the commit lands; the loop stops all the same.
    put(machine.project / "greet.py", "print('hello')\n")
    git(machine.project, "add", "greet.py")
    git(machine.project, "commit", "-qm", "feat(01-01): greet")
    for point in ("execute:wave:post", "verify:pre", "ship:pre"):
        blocked = gsd.evaluated(point, "--phase-number", "1")
        assert (blocked["block"], "has no approval: feat(01-01): greet" in blocked["message"]) == (True, True), point
    late = ("--range", "HEAD~1..HEAD", "--skip-diff-validation", "-m", "Greet", "--agent-type", "gsd-executor")
    tandem("approve", tandem("propose", *late)["review_id"], "--as", "codex")
    for point in ("execute:wave:post", "verify:pre", "ship:pre"):
        assert gsd.evaluated(point, "--phase-number", "1")["block"] is False, point

    settings = machine.project / ".planning" / "review-broker.json"
    settings.write_text(json.dumps({"review": {"required_gates": {"plan": False}}}))
    put(machine.project / PLAN, "# Something else\n")
    assert gsd.evaluated("plan:post", "--phase-dir", PHASE)["block"] is False


def test_gsds_review_uses_our_reviewers(machine: Machine, tandem: Tandem, runtime: str, tmp_path: Path) -> None:
    gsd = Gsd(machine, runtime)
    assert "--tandem" in gsd("review-lane", "flags").split()
    assert gsd("review-lane", "sections", "--selected", "tandem").split() == ["tandem", "Tandem"]
    tandem("up")
    prompt = "# Cross-AI Plan Review\n\nPlan 01-01: say hello.\n"
    put(tmp_path / "run" / "gsd-review-prompt.md", prompt)
    reviewer = threading.Thread(target=answer, args=(tandem,))
    reviewer.start()
    run = ("--run-dir", str(tmp_path / "run"), "--repo-root", str(machine.project), "--json")
    result = json.loads(gsd("query", "review-lane", "invoke", "--slug", "tandem", "--explicit", *run))
    reviewer.join()
    assert (result["ok"], result["stubbed"]) == (True, False)
    review = (tmp_path / "run" / "gsd-review-tandem.md").read_text()
    assert "**Verdict:** changes requested, by codex" in review
    assert "In which language? See hello.txt:1." in review
    (row,) = tandem("list", "--status", "closed")["reviews"]
    assert (row["agent_type"], row["category"]) == ("gsd-review", "plan_review")
    assert tandem("show", row["id"])["proposal"]["description"] == prompt


def answer(tandem: Tandem) -> None:
    def claimed() -> str | None:
        result = tandem.run("claim", "--as", "codex", "--json")
        return result.json["review_id"] if result.code == 0 else None

    review = until(claimed, 150)
    tandem("request-changes", review, "-m", "In which language? See hello.txt:1.", "--as", "codex")


def test_the_real_claude_codes_plugin_is_found_and_served(machine: Machine, tandem: Tandem) -> None:
    program = shutil.which("claude", path=PATH)
    if program is None:
        pytest.skip("claude was not found on the PATH or in $TANDEM_CLIENTS")
    for words in (("marketplace", "add", str(PACKAGES / CORE.name)), ("install", "gsd-core", "--scope", "user")):
        subprocess.run(
            [program, "plugin", *words], cwd=machine.project, env=free_environment(machine.home), check=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
        )  # fmt: skip
    put(machine.project / ".planning" / "config.json", "{}\n")
    (one,) = tandem("gsd", "status")["installed"]
    assert (one["line"], one["version"], one["plugin"]) == ("@opengsd/gsd-core", "1.14.0", True)
    tandem("install", "gsd")
    tools = str(Path(one["folder"]) / "gsd-core" / "bin" / "gsd-tools.cjs")
    hooks = json.loads(machine.node(CORE, tools, "loop", "render-hooks", "plan:post", "--raw"))["activeHooks"]
    assert hooks[-1]["capId"] == "tandem"
    assert "tandem-review" in machine.node(CORE, tools, "agent-skills", "gsd-executor")
    tandem("uninstall", "gsd")
    assert not (machine.project / ".gsd").exists()
