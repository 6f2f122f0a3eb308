"""The real Claude Code in a project with GSD and the overlay. A scripted model answers it.

Opt-in: `make test-gsd`, where Claude Code is found on the PATH or in the folder $TANDEM_CLIENTS."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.accounts import put
from tests.support.model_server import ModelServer, Step
from tests.support.processes import git
from tests.support.real_gsd import CLASSIC, CORE, Machine, Package
from tests.support.tandem import Running, Tandem
from tests.support.waiting import until

pytestmark = [pytest.mark.gsd, pytest.mark.timeout(300)]
PATH = os.pathsep.join(
    filter(None, [str(Path(sys.executable).parent), os.environ.get("TANDEM_CLIENTS"), os.environ["PATH"]])
)
PROPOSE = (
    "tandem propose --staged -m 'Say it in French' --agent-type gsd-executor --phase 01 --plan 01-01 --task 1 "
    "--category code_change --wait 60"
)
COMMIT = "git commit -q -m 'feat(01-01): say it in French'"


class Numbered(Step):
    """Claude Code takes two calls with one id for the same."""

    def __init__(self, number: int, command: str) -> None:
        super().__init__(tool="Bash", arguments={"command": command, "description": f"Step {number}"})
        self._number = number

    @property
    def call_id(self) -> str:
        return f"call_bash_{self._number}"


class Executor(ModelServer):
    """Reads the skill, then runs one command after the other, and says that it is done."""

    def __init__(self, skill: Path, *commands: str) -> None:
        super().__init__("approved", "", "")
        self._skill = skill
        self._commands = commands

    def _next(self, spoken: str, tools: list[str]) -> Step:
        if "Bash" not in tools or "Read" not in tools:
            return Step(text="done")
        if "CALLED:Read" not in spoken:
            return Step(tool="Read", arguments={"file_path": str(self._skill)})
        number = spoken.count("CALLED:Bash")
        if number < len(self._commands):
            return Numbered(number, self._commands[number])
        return Step(text="done")

    @property
    def heard(self) -> str:
        return json.dumps([request for _, request in self.requests])


def claimed(tandem: Tandem) -> str | None:
    result = tandem.run("claim", "--as", "codex", "--json")
    return result.json["review_id"] if result.code == 0 else None


def approve_when_it_comes(tandem: Tandem) -> threading.Thread:
    def approve() -> None:
        review = until(lambda: claimed(tandem), 150)
        tandem("approve", review, "--as", "codex")

    thread = threading.Thread(target=approve)
    thread.start()
    return thread


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
    with Executor(skill, "tandem gsd rules", COMMIT, PROPOSE, COMMIT) as model:
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

    heard = model.heard
    assert "plans and commits are reviewed here (skill tandem-review)" in heard
    assert "Review before it lands" in heard
    assert "Checkpoints that need an approval: plan, execute, verify" in heard
    assert "tandem gate: refused: 1 commit without an approved review." in heard
    assert "approved" in heard.partition("tandem propose --staged -m 'Say it")[2]
    assert git(machine.project, "log", "-1", "--format=%s") == b"feat(01-01): say it in French\n"
    assert tandem("gate", "status")["commits"] == []
    (row,) = tandem("list")["reviews"]
    assert (row["agent_type"], row["phase"], row["plan"], row["task"]) == ("gsd-executor", "01", "01-01", "1")
