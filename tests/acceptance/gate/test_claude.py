"""The gate's early layer in Claude Code, with the real broker and the real git hook beside it."""

import argparse
import io
import json
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.cli import claude_hook
from gsd_review_broker.cli.context import Context
from tests.support.gated import Gated, gated
from tests.support.tandem import PROGRAM

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gated]:
    with gated(tmp_path_factory.mktemp("claude")) as here:
        here.first = here.head()
        yield here


@pytest.fixture
def here(running: Gated, request: pytest.FixtureRequest) -> Gated:
    running.git("merge", "--abort")
    running.must("reset", "-q", "--hard", running.first)
    running.must("clean", "-qffd")
    running.word = request.node.name
    return running


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(event: str, text: str) -> dict[str, Any]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert claude_hook.answer(Context(argparse.Namespace(event=event))) == 0
        printed = capsys.readouterr().out
        return json.loads(printed) if printed else {}

    return ask


def denied(ask: Ask, here: Gated, command: str, folder: Path | None = None) -> str:
    """Why; nothing if it may run."""
    facts = {"tool_name": "Bash", "tool_input": {"command": command}, "cwd": str(folder or here.folder)}
    answer = ask("pre-tool-use", json.dumps({"hook_event_name": "PreToolUse", **facts}))
    decision = answer.get("hookSpecificOutput", {})
    assert decision.get("permissionDecision", "deny") == "deny"
    return decision.get("permissionDecisionReason", "")


def without_id(text: str) -> list[str]:
    return [line for line in text.splitlines() if "commit " not in line]


def test_a_commit_without_approval_is_denied_in_the_words_of_the_git_hook(here: Gated, ask: Ask) -> None:
    here.stage(hello_txt=f"{here.word}\n")
    reason = denied(ask, here, "npm test && git commit -m x")
    *words, last = without_id(reason)
    assert words == without_id(here.git("commit", "-m", "x").err.rstrip())[: len(words)]
    assert "    without approval: hello.txt" in words
    assert "The git hook decides" in last
    here.approve()
    assert denied(ask, here, "npm test && git commit -m x") == ""
    here.must("commit", "-m", "x")


def test_the_index_is_judged_and_the_rest_is_left_to_the_git_hook(here: Gated, ask: Ask) -> None:
    here.write("hello.txt", f"{here.word}\n")
    here.write("new.txt", f"{here.word}\n")
    assert denied(ask, here, "git add -A && git commit -m x") == ""
    assert denied(ask, here, "git commit -am x") == ""
    here.must("add", "hello.txt")
    assert "hello.txt" in denied(ask, here, "(git --no-pager -c user.name=me commit -m x)")
    here.approve()
    assert denied(ask, here, "git commit -m x") == ""
    here.must("commit", "-qm", "x")
    assert denied(ask, here, "git commit --amend -m 'other words'") == ""
    here.must("add", "new.txt")
    assert "new.txt" in denied(ask, here, "git commit --amend --no-edit")
    assert here.must("status", "--porcelain") == "A  new.txt"


def test_a_clean_merge_a_detached_head_and_other_folders_are_left_alone(here: Gated, ask: Ask, tmp_path: Path) -> None:
    here.stage(hello_txt=f"{here.word}\n")
    here.approve()
    here.must("commit", "-m", "x")
    here.must("checkout", "-q", "-b", f"side-{here.word}", here.first)
    here.stage(other_txt=f"{here.word}\n")
    here.approve()
    here.must("commit", "-m", "y")
    here.must("merge", "--no-commit", "main")
    assert denied(ask, here, "git commit --no-edit") == ""
    here.must("merge", "--abort")
    here.must("checkout", "-q", "--detach", "main")
    here.stage(hello_txt=f"{here.word} aside\n")
    assert denied(ask, here, "git commit -m x") == ""
    assert denied(ask, here, "git commit -m x", tmp_path) == ""
    here.must("reset", "-q", "--hard")
    here.must("checkout", "-q", "main")


def test_an_event_that_cannot_be_read_is_denied(ask: Ask) -> None:
    for event in ("pre-tool-use", "stop"):
        for text in ("", "[]", '{"tool_name": "Bash"}'):
            assert "tandem gate: refused, because its hook failed" in json.dumps(ask(event, text))


def test_other_tools_and_other_commands_pass(here: Gated, ask: Ask) -> None:
    here.stage(hello_txt=f"{here.word}\n")
    assert ask("pre-tool-use", '{"tool_name": "Read", "tool_input": {}}') == {}
    for command in ("git status && tandem propose -m 'commit it'", "git log --grep commit", "git commit-graph verify"):
        assert denied(ask, here, command) == ""


def test_an_agent_that_got_around_the_git_hook_is_told_once_when_it_stops(here: Gated, ask: Ask) -> None:
    facts = {"hook_event_name": "Stop", "cwd": str(here.folder), "stop_hook_active": False}
    assert ask("stop", json.dumps(facts)) == {}
    here.stage(hello_txt=f"{here.word}\n")
    here.must("-c", "core.hooksPath=/dev/null", "commit", "-m", "around")
    answer = ask("stop", json.dumps(facts))
    assert answer["decision"] == "block"
    assert "without approval: hello.txt" in answer["reason"]
    assert ask("stop", json.dumps(facts | {"stop_hook_active": True})) == {}
    assert ask("stop", json.dumps(facts | {"cwd": "/"})) == {}


def test_in_mode_warn_the_commit_runs_and_the_person_is_told(here: Gated, ask: Ask) -> None:
    config = here.folder / ".planning" / "review-broker.json"
    before = config.read_text()
    here.stage(hello_txt=f"{here.word}\n")
    facts = {"tool_name": "Bash", "tool_input": {"command": "git commit -m x"}, "cwd": str(here.folder)}
    try:
        config.write_text('{"gate": {"mode": "warn"}}')
        assert "without approval: hello.txt" in ask("pre-tool-use", json.dumps(facts))["systemMessage"]
        config.write_text('{"gate": {"mode": "off"}}')
        assert ask("pre-tool-use", json.dumps(facts)) == {}
        assert ask("stop", json.dumps(facts)) == {}
    finally:
        config.write_text(before)


def test_it_is_installed_as_hooks_that_fail_closed_and_taken_back_byte_for_byte(here: Gated) -> None:
    settings = here.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    mine = '{\n  "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "date"}]}]}, // mine\n}'
    settings.write_text(mine)
    here.tandem("install", "claude", "--gate", "--shared")
    hooks = json.loads(settings.read_text().replace("// mine", "").replace("}]}]},", "}]}]}"))["hooks"]
    [before], [_, stopping] = hooks["PreToolUse"], hooks["Stop"]
    assert before["matcher"] == "Bash"
    here.stage("hello.txt", hello_txt=f"{here.word}\n")

    def run(entry: dict[str, Any], command: str, path: str) -> subprocess.CompletedProcess[str]:
        facts = {"tool_name": "Bash", "tool_input": {"command": command}, "cwd": "."}
        return subprocess.run(
            ["/bin/sh", "-c", entry["hooks"][0]["command"]], input=json.dumps(facts), text=True, check=False,
            env=here.tandem.environment | {"PATH": path}, cwd=here.folder, capture_output=True,
        )  # fmt: skip

    found = f"{Path(PROGRAM).parent}:/usr/bin:/bin"
    done = run(before, "git commit -m x", found)
    assert (done.returncode, "hello.txt" in done.stdout) == (0, True)
    # Claude Code goes on unless the code is 2.
    for entry in (before, stopping):
        done = run(entry, "git commit -m x", "/usr/bin:/bin")
        assert (done.returncode, "tandem gate: refused" in done.stderr) == (2, True)
    # Without the word git nothing is started, so that nothing can fail.
    assert run(before, "ls", "/usr/bin:/bin").returncode == 0
    here.tandem("uninstall", "claude")
    assert settings.read_text() == mine


def test_it_is_for_claude_code_only(here: Gated) -> None:
    done = here.tandem.run("install", "codex", "--gate")
    assert (done.code, "--gate is for Claude Code only" in done.err) == (2, True)
