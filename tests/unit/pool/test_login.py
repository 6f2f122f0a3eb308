"""How an agent is logged in: what is seen of it, and what of Claude's settings a reviewer gets."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gsd_review_broker.pool.agents import launch_for, module_of
from tests.unit.pool.test_recipe import request_for


@pytest.mark.parametrize(
    ("agent", "file"),
    [
        ("codex", ".codex/auth.json"),
        ("claude", ".claude/.credentials.json"),
        ("gemini", ".gemini/oauth_creds.json"),
        ("opencode", ".local/share/opencode/auth.json"),
    ],
)
def test_a_login_is_seen_by_its_file(tmp_path: Path, agent: str, file: str) -> None:
    login = module_of(agent).LOGIN
    assert login is not None
    home = {"HOME": str(tmp_path)}
    assert login.seen(home) is None
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert login.seen(home) == str(path)


def test_a_login_is_seen_by_a_variable_and_openais_key_is_not_codexs(tmp_path: Path) -> None:
    login = module_of("codex").LOGIN
    assert login is not None
    home = {"HOME": str(tmp_path), "OPENAI_API_KEY": "x"}
    assert login.seen(home) is None
    assert "codex login" in login.advice
    assert login.seen({**home, "CODEX_API_KEY": "x"}) == "CODEX_API_KEY"
    assert login.seen({**home, "CODEX_API_KEY": ""}) is None


def test_a_folder_that_a_variable_names_is_looked_in(tmp_path: Path) -> None:
    login = module_of("codex").LOGIN
    (tmp_path / "auth.json").write_text("{}")
    assert login is not None
    assert login.seen({"HOME": "/nowhere", "CODEX_HOME": str(tmp_path)}) == str(tmp_path / "auth.json")


def claude_settings(folder: Path, content: object) -> dict[str, str]:
    (folder / "settings.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return {"CLAUDE_CONFIG_DIR": str(folder)}


def test_claude_gets_how_its_user_logs_in_and_nothing_else_of_the_users_settings(tmp_path: Path) -> None:
    """--restricted ignores the user's settings, and with them the login."""
    inherited = claude_settings(
        tmp_path,
        {
            "apiKeyHelper": "get-key",
            "env": {"ANTHROPIC_BASE_URL": "http://proxy", "ANTHROPIC_AUTH_TOKEN": "SECRET", "AWS_PAGER": "x"},
            "hooks": {"Stop": []},
            "permissions": {"allow": ["Bash"]},
        },
    )
    request = request_for("claude", inherited=inherited, passed=frozenset(module_of("claude").ENVIRONMENT))
    launch = launch_for(request)
    [file] = launch.files
    assert launch.argv[-2:] == ("--settings", f"{request.scratch}/{file}")
    assert not any("SECRET" in element for element in launch.argv)
    assert json.loads(launch.files[file]) == {
        "apiKeyHelper": "get-key",
        "env": {"ANTHROPIC_BASE_URL": "http://proxy", "ANTHROPIC_AUTH_TOKEN": "SECRET"},
    }
    login = module_of("claude").LOGIN
    assert login is not None
    assert login.seen(inherited) == str(tmp_path / "settings.json")


@pytest.mark.parametrize("content", ["{", "[]", '{"env": 5}', '{"theme": "dark"}'])
def test_claude_settings_without_a_login_are_left_alone(tmp_path: Path, content: str) -> None:
    request = replace(request_for("claude"), inherited=claude_settings(tmp_path, content))
    assert (launch_for(request).files, "--settings" in launch_for(request).argv) == ({}, False)
    login = module_of("claude").LOGIN
    assert login is not None
    assert login.seen(request.inherited) is None
