"""The overlay with the real GSD: every version, runtime and scope. Opt-in: `make test-gsd`."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.accounts import put
from tests.support.gsd import CONFIG
from tests.support.processes import git
from tests.support.real_gsd import ALL, CLASSIC, CORE, OLD, Machine, Package
from tests.support.tandem import Tandem

pytestmark = pytest.mark.gsd

MATRIX = list(itertools.product(ALL, ("claude", "codex"), ("local", "global")))
# What a user may have next, after each of them.
UPDATES = {OLD: (OLD, CLASSIC, CORE), CLASSIC: (CLASSIC, CORE), CORE: (CORE,)}
PLAN = ".planning/phases/01-greet/01-01-PLAN.md"
SHARED = {"settings.json", "settings.local.json", "hooks.json", "config.json", "defaults.json"}


def named(value: object) -> str | None:
    return value.name if isinstance(value, Package) else None


def active(machine: Machine, runtime: str, point: str, kind: str) -> list[dict[str, Any]]:
    hooks = json.loads(machine.tools(CORE, runtime, "local", "loop", "render-hooks", point, "--raw"))["activeHooks"]
    return [hook for hook in hooks if hook["kind"] == kind]


@pytest.mark.parametrize(("package", "runtime", "scope"), MATRIX, ids=named)
def test_gsd_stays_as_it_is_and_its_updates_leave_the_overlay_whole(
    machine: Machine, tandem: Tandem, package: Package, runtime: str, scope: str
) -> None:
    machine.install(package, runtime, scope)
    config = put(machine.project / ".planning" / "config.json", CONFIG)
    before = machine.files()

    tandem("install", "gsd", "--scope", scope)
    status = tandem("gsd", "status")
    assert [(one["line"], one["version"], one["runtime"]) for one in status["installed"]] == [
        (package.line, package.version, runtime)
    ]
    assert status["overlay"]["state"] == "ok"
    after = machine.files()
    touched = [name for name, content in before.items() if after[name] != content]
    assert {Path(name).name for name in touched} <= SHARED
    assert tandem("install", "gsd", "--scope", scope)["results"][0]["changed"] is False

    # It leaves no byte behind.
    tandem("uninstall", "gsd", "--scope", scope)
    assert machine.files() == before
    tandem("install", "gsd", "--scope", scope)

    # GSD is installed again, updated and moved to its other line.
    for newer in UPDATES[package]:
        machine.install(newer, runtime, scope)
        status = tandem("gsd", "status")
        assert status["overlay"] == {"state": "ok", "scopes": status["overlay"]["scopes"], "problems": []}, newer.name
        assert [(one["line"], one["version"]) for one in status["installed"]] == [(newer.line, newer.version)]
        assert tandem("gsd", "session-start")["problems"] == []
        if scope == "local" and newer is CORE:
            # It comes with the move to gsd-core, and an update of GSD keeps it.
            assert [gate["capId"] for gate in active(machine, runtime, "plan:post", "gate")][-1] == "tandem"
    machine.install(newer, runtime, scope, "--uninstall")
    assert tandem("gsd", "status")["overlay"]["state"] == "ok"
    tandem("uninstall", "gsd", "--scope", scope)
    # GSD's own journal of its move says which files it saw.
    theirs = ("codex_review_broker", "gsd-migration-journal")
    left = {name: text for name, text in machine.files().items() if not any(word in name for word in theirs)}
    assert [
        name for name, content in left.items() if "tandem" in Path(name).name or b"tandem" in (content or b"")
    ] == []
    assert json.loads(config.read_text()) == json.loads(CONFIG)


@pytest.mark.parametrize(("package", "runtime", "scope"), MATRIX, ids=named)
def test_gsds_own_tools_hand_the_skill_to_the_agents(
    machine: Machine, tandem: Tandem, package: Package, runtime: str, scope: str
) -> None:
    machine.install(package, runtime, scope)
    put(machine.project / ".planning" / "config.json", CONFIG)
    tandem("install", "gsd")
    for agent in ("gsd-planner", "gsd-executor", "gsd-debugger", "gsd-verifier", "gsd-plan-checker", "gsd-code-fixer"):
        block = machine.tools(package, runtime, scope, "agent-skills", agent)
        assert f"- @.{runtime}/skills/tandem-review/SKILL.md" in block, agent
    assert machine.tools(package, runtime, scope, "agent-skills", "gsd-ui-auditor") == ""


@pytest.mark.parametrize("package", ALL, ids=named)
@pytest.mark.parametrize("runtime", ["claude", "codex"])
def test_a_new_project_of_the_account_has_the_skill_where_gsd_can_read_it(
    machine: Machine, tandem: Tandem, package: Package, runtime: str
) -> None:
    machine.install(package, runtime, "global")
    tandem("install", "gsd", "--scope", "global")
    machine.tools(package, runtime, "global", "config-new-project", '{"mode": "yolo"}')
    block = machine.tools(package, runtime, "global", "agent-skills", "gsd-executor")
    can = package is not OLD and runtime == "claude"
    assert (str(machine.home / ".claude" / "skills" / "tandem-review" / "SKILL.md") in block) == can
    # Else the project's own installation gives it.
    tandem("install", "gsd")
    assert f"@.{runtime}/skills/tandem-review/SKILL.md" in machine.tools(
        package, runtime, "global", "agent-skills", "gsd-executor"
    )


@pytest.mark.parametrize("package", ALL, ids=named)
def test_gsds_own_commit_is_refused_and_then_taken(machine: Machine, tandem: Tandem, package: Package) -> None:
    machine.prepare(package)
    tandem("up")
    tandem("gate", "install", "--mode", "block")
    worktree = machine.project.with_name("worktree")
    git(machine.project, "worktree", "add", "-q", str(worktree), "-b", "worktree-agent-1")

    for folder, name in ((machine.project, PLAN), (worktree, "greet.py")):
        here = Tandem(folder, machine.home)
        put(folder / name, f"# {name}\n")
        head = git(folder, "rev-parse", "HEAD")
        for flag in ((), ("--no-verify",)):
            refused = machine.commit(package, "feat(01-01): greet", *flag, "--files", name, folder=folder)
            assert refused["committed"] is False, flag
            assert "tandem gate: refused" in refused["error"]
            assert "Next: tandem propose" in refused["error"]
        assert git(folder, "rev-parse", "HEAD") == head
        review = here("propose", "--path", name, "-m", "Greet", "--agent-type", "gsd-executor")["review_id"]
        here("approve", review, "--as", "codex")
        flags = ("--no-verify",) if folder == worktree else ()
        assert (
            machine.commit(package, "feat(01-01): greet", *flags, "--files", name, folder=folder)["committed"] is True
        )
        assert git(folder, "show", f"HEAD:{name}") == f"# {name}\n".encode()
    assert tandem("gate", "status")["commits"] == []
