"""The real programs find the broker by what `tandem install` wrote. Opt-in: `make test-clients`.

Programs are looked for on PATH and in the folder that TANDEM_CLIENTS names; each has a home folder of its own, and
none reaches a model.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.integrations.test_install import tandem
from tests.support.processes import BrokerProcess, free_environment

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PROGRAMS = os.pathsep.join(filter(None, [os.environ.get("TANDEM_CLIENTS"), os.environ["PATH"]]))
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "0",
    # Nothing listens there: the session begins, and ends at its first question to a model.
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
    "ANTHROPIC_API_KEY": "sk-test",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "GEMINI_CLI_NO_RELAUNCH": "true",
    "NO_COLOR": "1",
}
Run = Callable[..., str]
CONNECTED = {
    "claude": r"gsdreview: {url} \(HTTP\) - .*Connected",
    "codex": r"gsdreview +{url} .*enabled",
    "gemini": r"gsdreview: {url} \(http\) - Connected",
    "opencode": r"gsdreview connected\n.*{url}",
}


@pytest.fixture
def run(repository: Path, own_home: Path) -> Run:
    path = f"{Path(sys.executable).parent}{os.pathsep}{PROGRAMS}"
    environment = free_environment(own_home) | _QUIET | {"PATH": path}

    def run(program: str, *words: str) -> str:
        found = shutil.which(program, path=PROGRAMS)
        if found is None:
            pytest.skip(f"{program} is not here")
        done = subprocess.run(
            [found, *words],
            cwd=repository, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)

    return run


def install(process: BrokerProcess, *words: str) -> str:
    done = tandem(
        process.folder, process.home, "install", *words, "--url", f"http://127.0.0.1:{process.port}", "--json"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"][0]["address"]


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize("client", CONNECTED)
def test_the_program_lists_our_server(process: BrokerProcess, run: Run, client: str, scope: str) -> None:
    run(client, "--version")
    trust_the_project(process)
    url = install(process, client, "--scope", scope, "--trust")

    said = run(client, "mcp", "list")

    assert re.search(CONNECTED[client].format(url=re.escape(url)), said), said
    assert tandem(process.folder, process.home, "uninstall", client, "--scope", scope).returncode == 0
    assert "gsdreview" not in run(client, "mcp", "list")


@pytest.mark.parametrize("client", CONNECTED)
def test_the_program_is_connected_by_ours(process: BrokerProcess, run: Run, client: str) -> None:
    run(client, "--version")
    trust_the_project(process)
    assert tandem(process.folder, process.home, "install", client, "--trust").returncode == 0

    said = run(client, "mcp", "list")

    listed = re.search(r"gsdreview.*", said)
    assert listed, said
    assert re.search(r"\b(connected|enabled)\b", listed[0], re.IGNORECASE), said


def trust_the_project(process: BrokerProcess) -> None:
    """As a user does once, by a question that Codex and Claude Code ask."""
    path = process.home / ".codex" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'[projects."{process.folder}"]\ntrust_level = "trusted"\n')
    path = process.home / ".claude.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault("projects", {})[str(process.folder)] = {"hasTrustDialogAccepted": True}
    path.write_text(json.dumps(known))


def connected(session: dict[str, Any]) -> list[tuple[str, str]]:
    """The servers of a session, without what a newer version adds about them."""
    return [(server["name"], server["status"]) for server in session["mcp_servers"]]


def claude_session(run: Run, *words: str) -> dict[str, Any]:
    """What Claude Code says of a session as it begins."""
    said = run("claude", *words, "-p", "--output-format", "stream-json", "--verbose", "hello")
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    begun = next(event for event in events if event.get("subtype") == "init")
    return begun | {"hooks": [event for event in events if event.get("subtype") == "hook_response"]}


def test_a_claude_session_has_server_commands_skills_and_hook(process: BrokerProcess, run: Run) -> None:
    trust_the_project(process)
    install(process, "claude", "--role", "all", "--trust")

    session = claude_session(run)

    assert connected(session) == [("gsdreview", "connected")]
    assert {"mcp__gsdreview__create_review", "mcp__gsdreview__submit_verdict"} <= set(session["tools"])
    assert {"tandem:propose", "tandem:review", "tandem:status"} <= set(session["slash_commands"])
    assert {"tandem-proposing", "tandem-reviewing"} <= set(session["skills"])
    assert [(hook["exit_code"], hook["stderr"]) for hook in session["hooks"]] == [(0, "")]
    assert session["hooks"][0]["stdout"].startswith(f"broker runs: http://127.0.0.1:{process.port} ")


def test_a_proposer_is_shown_the_proposers_tools_alone(process: BrokerProcess, run: Run) -> None:
    trust_the_project(process)
    install(process, "claude", "--trust")
    session = claude_session(run)
    assert "mcp__gsdreview__create_review" in session["tools"]
    assert "mcp__gsdreview__submit_verdict" not in session["tools"]
    assert "tandem:review" not in session["slash_commands"]
