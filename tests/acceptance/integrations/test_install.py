"""`tandem install` as a user runs it: the real program, a real repository, a home folder of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import free_environment

# Not resolved: a virtual environment's programs stand beside its link to Python.
TANDEM = Path(sys.executable).with_name("tandem")


def tandem(folder: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = free_environment(home) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [TANDEM, *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


def test_a_project_is_connected_by_one_command_and_left_by_another(repository: Path, own_home: Path) -> None:
    before = files(repository)

    done = tandem(repository, own_home, "install", "claude", "codex")

    assert (done.returncode, done.stderr) == (0, "")
    assert "Claude Code (project): will connect to tandem mcp --role proposer\n" in done.stdout
    assert "  Claude Code is not installed: there is no claude on the PATH.\n" in done.stdout
    assert "  changed  .git/info/exclude\n  created  .mcp.json\n" in done.stdout
    assert "Undo: tandem uninstall claude --scope project" in done.stdout
    again = tandem(repository, own_home, "install", "claude", "codex")
    assert again.stdout.splitlines() == [
        "Claude Code (project): will connect to tandem mcp --role proposer",
        "  Claude Code is not installed: there is no claude on the PATH.",
        "Codex (project): will connect to tandem mcp --role proposer",
        "  Codex is not installed: there is no codex on the PATH.",
    ]
    undone = tandem(repository, own_home, "uninstall", "claude", "codex")
    assert undone.returncode == 0
    assert files(repository) == before
    assert tandem(repository, own_home, "uninstall", "claude").stdout == "Claude Code (project): nothing to remove\n"


def test_json_says_the_same_to_a_program(repository: Path, own_home: Path) -> None:
    shown = json.loads(tandem(repository, own_home, "install", "gemini", "--dry-run", "--json").stdout)
    assert shown["dry_run"] is True
    result = shown["results"][0]
    assert {key: result[key] for key in ("client", "scope", "address", "installed", "changed")} == {
        "client": "gemini",
        "scope": "project",
        "address": "tandem mcp --role proposer",
        "installed": False,
        "changed": True,
    }
    assert {file["action"] for file in result["files"]} == {"changed", "created"}
    assert all("+++ " in file["diff"] for file in result["files"])
    assert not (repository / ".gemini").exists()

    tandem(repository, own_home, "install", "gemini")
    clients = json.loads(tandem(repository, own_home, "install", "status", "--json").stdout)["clients"]
    gemini = next(client for client in clients if client["client"] == "gemini")
    assert gemini["configured"] is True
    assert gemini["places"][0] == {
        "scope": "project",
        "path": str(repository / ".gemini/settings.json"),
        "origin": "ours",
        "url": "tandem mcp --role proposer",
        "serves": None,
        "problem": None,
    }


def test_outside_a_repository_the_account_is_set_up(tmp_path: Path, own_home: Path) -> None:
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    assert tandem(nowhere, own_home, "install", "codex").returncode == 0
    assert 'args = ["mcp", "--role", "proposer"]' in (own_home / ".codex/config.toml").read_text()
    refused = tandem(nowhere, own_home, "install", "codex", "--scope", "project")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "not in a git repository" in refused.stderr


def test_one_file_that_refuses_stops_all_before_any_is_written(repository: Path, own_home: Path) -> None:
    (repository / "opencode.json").write_text("{ broken")
    before = files(repository)
    refused = tandem(repository, own_home, "install", "claude", "gemini", "opencode")
    assert refused.returncode == 6
    assert "opencode.json: cannot be read: a key in double quotes is expected at line 1, column 3" in refused.stderr
    assert files(repository) == before


def test_control_characters_in_a_file_do_not_reach_the_terminal(repository: Path, own_home: Path) -> None:
    (repository / ".mcp.json").write_text('{\n  "evil\x1b]52;c;x\x07": 1\n}\n'.replace("\x1b", "\u009b"))
    shown = tandem(repository, own_home, "install", "claude", "--dry-run")
    assert shown.returncode in {0, 6}
    assert "\u009b" not in shown.stdout + shown.stderr
    assert "\x07" not in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("install",),
        ("install", "emacs"),
        ("install", "claude", "--url", "ftp://x"),
        ("install", "claude", "--http", "--url", "http://127.0.0.1:1"),
        ("install", "status", "claude"),
        ("uninstall", "status"),
    ],
)
def test_wrong_usage_ends_with_2(repository: Path, own_home: Path, words: tuple[str, ...]) -> None:
    before = files(repository)
    assert tandem(repository, own_home, *words).returncode == 2
    assert files(repository) == before


def test_eight_at_once_leave_one_installation(repository: Path, own_home: Path) -> None:
    (repository / ".mcp.json").write_text('{"mcpServers": {"z": {"command": "z"}}}')
    before = files(repository)
    environment = free_environment(own_home)
    running = [
        subprocess.Popen(
            [TANDEM, "install", "claude"],
            cwd=repository, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for _ in range(8)
    ]  # fmt: skip
    said = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 8, said
    assert list(json.loads((repository / ".mcp.json").read_text())["mcpServers"]) == ["z", "gsdreview"]
    tandem(repository, own_home, "uninstall", "claude")
    assert files(repository) == before
