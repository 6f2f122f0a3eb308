"""The real programs after `tandem setup`, as a person drives them: each proposes and reviews through the entry that was
written, while the broker restarts in between. Opt-in: `make test-clients`. A scripted model answers them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients import client_named
from tests.acceptance.pool.test_clients import AGENTS
from tests.support.model_server import SERVER, ModelServer, Step
from tests.support.processes import git, make_repository
from tests.support.tandem import Tandem

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PATH = os.pathsep.join(
    filter(None, [str(Path(sys.executable).parent), os.environ.get("TANDEM_CLIENTS"), os.environ["PATH"]])
)
COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "claude": lambda sentence: ["claude", "-p", "--output-format", "json", sentence],
    # A person takes longer to type than the server to start; `exec` waits for it only if it is required.
    # The model is one that Codex does not know: its own call tools in JavaScript, which is not scripted here.
    "codex": lambda sentence: [
        *("codex", "exec", "--json", "-m", "scripted", "-c", f"mcp_servers.{SERVER}.required=true", sentence),
    ],
    "gemini": lambda sentence: ["gemini", "-m", "gemini-2.5-flash", "--output-format", "json", "-p", sentence],
    "opencode": lambda sentence: [
        *("opencode", "run", "--format", "json", "-m", "anthropic/claude-sonnet-4-5"),
        *(("--command", sentence[1:], "now") if sentence.startswith("/") else (sentence,)),
    ],
}
PARTNERS = {"claude": "codex", "codex": "claude", "gemini": "claude", "opencode": "codex"}
DIFF = """diff --git a/hello.txt b/hello.txt
--- a/hello.txt
+++ b/hello.txt
@@ -1,3 +1,3 @@
-one
+bonjour
 two
 three
"""


class HandModel(ModelServer):
    """Does what a model in this role would do. After its first call of the broker, the broker restarts."""

    def __init__(self, role: Audience, client: str, restart: Callable[[], None]) -> None:
        super().__init__("approved", "as the test wants it", "")
        self._role, self._client, self._restart = role, client, restart
        self._has_restarted = False

    def _next(self, spoken: str, tools: list[str]) -> Step:
        named = {name.replace("__", "_").rpartition(f"{SERVER}_")[2]: name for name in tools if SERVER in name}
        if not named and "ToolSearch" in tools and "CALLED:ToolSearch" not in spoken:
            return Step(tool="ToolSearch", arguments={"query": f"+{SERVER}", "max_results": 30})
        name, arguments = self._review(spoken) if self._role is Audience.REVIEWER else self._propose(spoken)
        if name not in named:
            return Step(text="done")
        return Step(tool=named[name], arguments=arguments)

    def _review(self, spoken: str) -> tuple[str, dict[str, Any]]:
        caller = f"{self._client}-reviewer"
        claim = re.search(r'"claim_generation\\*"\s*:\s*(\d+)', spoken)
        review = re.search(r'"review_id\\*"\s*:\s*\\*"([0-9a-f]{16})', spoken)
        if claim is None or review is None:
            return "claim_next", {"reviewer_id": caller, "wait": True, "wait_seconds": 20}
        self._once()
        if "CALLED:get_proposal" not in spoken:
            return "get_proposal", {"review_id": review[1], "caller_id": caller}
        if "CALLED:submit_verdict" not in spoken:
            verdict = {"verdict": self.verdict, "reason": self.reason, "claim_generation": int(claim[1])}
            return "submit_verdict", {"review_id": review[1], "reviewer_id": caller, **verdict}
        return "", {}

    def _propose(self, spoken: str) -> tuple[str, dict[str, Any]]:
        review = re.search(r'"review_id\\*"\s*:\s*\\*"([0-9a-f]{16})', spoken)
        if "CALLED:create_review" not in spoken:
            who = {"agent_type": self._client, "agent_role": "proposer", "phase": "1"}
            return "create_review", {"intent": "Say it in French", "diff": DIFF, **who}
        self._once()
        if review is not None and "CALLED:get_review_status" not in spoken:
            return "get_review_status", {"review_id": review[1]}
        return "", {}

    def _once(self) -> None:
        if not self._has_restarted:
            self._has_restarted = True
            self._restart()


@pytest.fixture
def tandem(tmp_path: Path, own_home: Path) -> Generator[Tandem]:
    tandem = Tandem(make_repository(tmp_path / "repository"), own_home, PATH=PATH)
    yield tandem
    tandem.run("down", "--force")


def trusted(home: Path, folder: Path) -> None:
    """As a person answers once, when the program is started in a folder for the first time."""
    for path in (home / ".claude.json", home / "claude" / ".claude.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"projects": {str(folder): {"hasTrustDialogAccepted": True}}}))
    codex = home / "codex" / "config.toml"
    if codex.exists():
        codex.write_text(codex.read_text() + f'[projects."{folder}"]\ntrust_level = "trusted"\n')


def environment_of(client: str, tandem: Tandem, url: str) -> dict[str, str]:
    more = AGENTS[client](tandem.home, url)
    trusted(tandem.home, tandem.folder)
    quiet = {
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "NO_COLOR": "1",
        # As a shell sets it; opencode goes by it.
        "PWD": str(tandem.folder),
    }
    return {**tandem.environment, **more, **quiet}


def run(words: list[str], tandem: Tandem, environment: dict[str, str]) -> str:
    program = shutil.which(words[0], path=PATH)
    assert program is not None
    done = subprocess.run(
        [program, *words[1:]], cwd=tandem.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=150, check=False,
    )  # fmt: skip
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


@pytest.mark.parametrize("role", [Audience.PROPOSER, Audience.REVIEWER])
@pytest.mark.parametrize("client", sorted(COMMANDS))
def test_it_works_by_the_entry_over_a_restart_and_is_listed_as_connected(
    tandem: Tandem, client: str, role: Audience
) -> None:
    if shutil.which(client, path=PATH) is None:
        pytest.skip(f"{client} was not found on the PATH or in $TANDEM_CLIENTS")
    partner = PARTNERS[client]
    pair = (client, partner) if role is Audience.PROPOSER else (partner, client)
    done = tandem("setup", "--yes", "--trust", "--no-gate", "--proposer", pair[0], "--reviewer", pair[1])
    assert done["broker"]["started"] is True
    sentence = next(step["type"] for step in done["next"] if step["client"] == client)
    assert sentence == client_named(client).sentences[role]
    if role is Audience.REVIEWER:
        (tandem.folder / "hello.txt").write_text("bonjour\ntwo\nthree\n")
        tandem("propose", "-m", "Say it in French", "--agent-type", "proposer")
        git(tandem.folder, "checkout", "-q", "hello.txt")
    first = tandem("status")["pid"]

    def restart() -> None:
        tandem("down")
        tandem("up")

    with HandModel(role, client, restart) as model:
        environment = environment_of(client, tandem, model.url)
        listed = run([client, "mcp", "list"], tandem, environment)
        assert re.search(rf"{SERVER}.*\b(connected|enabled)\b", listed, re.IGNORECASE), listed
        shown = run(COMMANDS[client](sentence), tandem, environment)

    assert tandem("status")["pid"] != first, f"the broker was not restarted; {shown}"
    (review,) = tandem("list")["reviews"]
    expected = "approved" if role is Audience.REVIEWER else "pending"
    assert review["status"] == expected, shown
    asked = json.dumps([request for _, request in model.requests])
    assert "tandem-proposing" in asked or "tandem-reviewing" in asked, "it was told of its role"
    assert git(tandem.folder, "status", "--porcelain") == b""
