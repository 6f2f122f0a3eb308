"""What only the real Codex can show: that it runs our hook, and that it does not cut a page of a diff. Opt-in:
`make test-clients`. A scripted model answers it."""

import json
import re
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.domain.words import Audience
from tests.acceptance.integrations.test_by_hand import PATH, HandModel, environment_of, run
from tests.support.model_server import SERVER, ModelServer, Step
from tests.support.processes import make_repository
from tests.support.tandem import Tandem

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
ASK = ("codex", "exec", "--json", "-m", "scripted")
# `exec` does not wait for a server that it does not require.
WITH_TOOLS = (*ASK, "-c", f"mcp_servers.{SERVER}.required=true")


@pytest.fixture
def tandem(tmp_path: Path, own_home: Path) -> Generator[Tandem]:
    if shutil.which("codex", path=PATH) is None:
        pytest.skip("codex was not found on the PATH or in $TANDEM_CLIENTS")
    tandem = Tandem(make_repository(tmp_path / "repository"), own_home, PATH=PATH)
    yield tandem
    tandem.run("down", "--force")


class SilentModel(ModelServer):
    """Says "done", and remembers which of our tools it was shown."""

    shown: tuple[str, ...] = ()

    def _next(self, spoken: str, tools: list[str]) -> Step:
        self.shown = tuple(name for name in tools if SERVER in name)
        return Step(text="done")


def hook_of(tandem: Tandem, environment: dict[str, str]) -> dict[str, Any]:
    """The project's hook as Codex lists it to people who are to trust it."""
    program = shutil.which("codex", path=PATH)
    assert program is not None
    requests: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "test", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [str(tandem.folder)]}},
    ]
    with subprocess.Popen(
        [program, "app-server"], cwd=tandem.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        server.stdin.flush()
        answer = next(message for message in map(json.loads, server.stdout) if message.get("id") == 2)
        server.terminate()
    (hook,) = answer["result"]["data"][0]["hooks"]
    return hook


def test_the_hook_starts_the_broker_once_the_user_has_trusted_it(tandem: Tandem) -> None:
    url = tandem("up")["url"]
    tandem("install", "codex", "--http", "--trust")
    with SilentModel("approved", "", "") as model:
        environment = environment_of("codex", tandem, model.url)
        run([*WITH_TOOLS, "hello"], tandem, environment)
        assert f"mcp__{SERVER}__create_review" in model.shown
        tandem("down")

        hook = hook_of(tandem, environment)
        assert (hook["trustStatus"], hook["command"]) == ("untrusted", f"tandem up --port {url.rpartition(':')[2]}")
        run([*ASK, "hello"], tandem, environment)
        assert tandem.run("status").code == 3

        # As Codex writes it when a person trusts the hook.
        settings = Path(environment["CODEX_HOME"]) / "config.toml"
        state = f'\n[hooks.state."{hook["key"]}"]\ntrusted_hash = "{hook["currentHash"]}"\n'
        settings.write_text(settings.read_text() + state)
        assert hook_of(tandem, environment)["trustStatus"] == "trusted"
        run([*ASK, "hello"], tandem, environment)
        assert tandem("status")["url"] == url
        # It may connect before the hook is done, and then it has the tools in its next session.
        run([*WITH_TOOLS, "hello"], tandem, environment)
        assert f"mcp__{SERVER}__create_review" in model.shown


def longest_result(model: ModelServer) -> str:
    """Of a call of the broker's tools, as the model saw it."""
    results = [
        json.dumps(item.get("output"))
        for _, request in model.requests
        for item in request.get("input", [])
        if item.get("type") == "function_call_output"
    ]
    return max(results, key=len)


@pytest.mark.parametrize("has_limit", [True, False])
def test_a_whole_page_of_a_diff_reaches_the_model(tandem: Tandem, *, has_limit: bool) -> None:
    """D19: without the limit that we write, Codex cuts what a model that it does not know is shown."""
    lines = [f"line {number} of a long file" for number in range(1_100)]
    (tandem.folder / "long.txt").write_text("\n".join(lines) + "\n")
    tandem("up")
    tandem("propose", "-m", "a long file", "--agent-type", "proposer")
    tandem("install", "codex", "--role", "reviewer", "--trust")
    if not has_limit:
        config = tandem.folder / ".codex" / "config.toml"
        config.write_text(config.read_text().replace("tool_output_token_limit = 50000\n", ""))
    with HandModel(Audience.REVIEWER, "codex", lambda: None) as model:
        environment = environment_of("codex", tandem, model.url)
        run([*WITH_TOOLS, "Review."], tandem, environment)
    (review,) = tandem("list")["reviews"]
    assert review["status"] == "approved"
    seen = longest_result(model)
    missing = [line for line in lines if not re.search(rf"\b{line}\b", seen)]
    assert (missing == []) is has_limit, f"{len(seen)} characters, {len(missing)} lines are missing"
