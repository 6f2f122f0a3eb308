"""The real Claude Code with `tandem install claude --gate`: a commit without approval is denied in the gate's words, an
approved one lands. Opt-in: `make test-clients`. A scripted model answers it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gated import Gated, gated
from tests.support.model_server import ModelServer, Step

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PATH = os.pathsep.join(
    filter(None, [str(Path(sys.executable).parent), os.environ.get("TANDEM_CLIENTS"), os.environ["PATH"]])
)
COMMIT = "git commit -q -m 'Say it in French'"


class CommittingModel(ModelServer):
    """Runs the command once, and says that it is done."""

    def __init__(self, command: str | None) -> None:
        super().__init__("approved", "", "")
        self._command = command

    def _next(self, spoken: str, tools: list[str]) -> Step:
        if self._command is not None and "Bash" in tools and "CALLED:Bash" not in spoken:
            return Step(tool="Bash", arguments={"command": self._command, "description": "Commit"})
        return Step(text="done")

    @property
    def heard(self) -> str:
        """Everything that Claude Code sent."""
        return json.dumps([request for _, request in self.requests])


@pytest.fixture
def here(tmp_path: Path) -> Generator[Gated]:
    with gated(tmp_path) as running:
        running.tandem("install", "claude", "--gate", "--trust")
        yield running


def session(here: Gated, command: str | None) -> tuple[CommittingModel, dict[str, Any]]:
    """One session of Claude Code, and its result."""
    program = shutil.which("claude", path=PATH)
    if program is None:
        pytest.skip("claude was not found on the PATH or in $TANDEM_CLIENTS")
    folder = here.home / "claude"
    folder.mkdir(exist_ok=True)
    (folder / ".claude.json").write_text(json.dumps({"projects": {str(here.folder): {"hasTrustDialogAccepted": True}}}))
    with CommittingModel(command) as model:
        environment = here.environment | {
            "PATH": PATH, "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-test",
            "CLAUDE_CODE_MAX_RETRIES": "0", "CLAUDE_CONFIG_DIR": str(folder),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "NO_COLOR": "1",
        }  # fmt: skip
        done = subprocess.run(
            [program, "-p", "--output-format", "json", "--allowedTools", "Bash", "--", "Commit it."],
            cwd=here.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return model, json.loads(done.stdout)


def test_a_commit_is_denied_in_the_hooks_words_until_it_is_approved(here: Gated) -> None:
    before = here.head()
    here.stage(hello_txt="bonjour\n")

    model, _ = session(here, COMMIT)

    assert here.head() == before
    assert "tandem gate: refused: 1 commit without an approved review." in model.heard
    assert "without approval: hello.txt" in model.heard
    assert "This is an early warning by tandem's hook in Claude Code. The git hook decides" in model.heard

    here.approve(here.diff("HEAD"))
    model, _ = session(here, COMMIT)

    assert "tandem gate" not in model.heard.partition("Commit it.")[2]
    assert here.must("log", "-1", "--format=%s") == "Say it in French"
    assert here.tandem("gate", "status")["commits"] == []


def test_an_agent_that_went_around_the_git_hook_is_told_once_when_it_stops(here: Gated) -> None:
    here.write("hello.txt", "around\n")
    here.must("-c", "core.hooksPath=/dev/null", "commit", "-q", "-a", "-m", "around")

    model, result = session(here, None)

    assert model.heard.count("Stop hook feedback:\\ntandem gate: refused") == 1
    assert "without approval: hello.txt" in model.heard
    assert (result["num_turns"], result["result"]) == (2, "done")
