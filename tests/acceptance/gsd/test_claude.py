"""The real Claude Code in a project with GSD and the overlay. A scripted model answers it.

Opt-in: `make test-gsd`, where Claude Code is found on the PATH or in the folder $TANDEM_CLIENTS."""

import json
import shutil
import subprocess

import pytest

from tests.acceptance.gsd.executor import PATH, Executor, approve_when_it_comes, assert_it_followed_the_skill
from tests.support.accounts import put
from tests.support.processes import git
from tests.support.real_gsd import CLASSIC, CORE, Machine, Package
from tests.support.tandem import Running, Tandem
from tests.support.waiting import until

pytestmark = [pytest.mark.gsd, pytest.mark.timeout(300)]


@pytest.mark.parametrize("package", [CLASSIC, CORE], ids=lambda package: package.name)
def test_it_reads_the_skill_is_refused_proposes_waits_and_commits(
    machine: Machine, tandem: Tandem, package: Package
) -> None:
    program = shutil.which("claude", path=PATH)
    if program is None:
        pytest.skip("claude was not found on the PATH or in $TANDEM_CLIENTS")
    machine.prepare(package)
    tandem("install", "gsd")
    tandem("gate", "install", "--mode", "block")
    put(machine.project / "hello.txt", "bonjour\n")
    git(machine.project, "add", "hello.txt")

    # What GSD's execute-phase puts into the executor's prompt.
    block = machine.tools(package, "claude", "local", "agent-skills", "gsd-executor")
    skill = machine.project / ".claude" / "skills" / "tandem-review" / "SKILL.md"
    account = machine.home / "claude"
    trusted = {"projects": {str(machine.project): {"hasTrustDialogAccepted": True}}}
    put(account / ".claude.json", json.dumps(trusted))
    # The broker is started by the overlay's hook, at the start of the session.
    assert tandem.run("status").code == 3
    with Executor(skill) as model:
        environment = tandem.environment | {
            "PATH": PATH, "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-test",
            "CLAUDE_CODE_MAX_RETRIES": "0", "CLAUDE_CONFIG_DIR": str(account),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "NO_COLOR": "1",
        }  # fmt: skip
        with Running(
            [program, "-p", "--output-format", "json", "--allowedTools", "Bash,Read", "--", f"Commit it.\n{block}"],
            cwd=machine.project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as session:  # fmt: skip
            until(lambda: tandem.run("status").code == 0)
            reviewer = approve_when_it_comes(tandem)
            out, err = session.communicate(timeout=200)
            reviewer.join()
    assert session.returncode == 0, (out, err)

    assert "plans and commits are reviewed here (skill tandem-review)" in model.heard
    assert_it_followed_the_skill(model.heard, machine, tandem)
