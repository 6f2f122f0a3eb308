"""Windows with WSL, with a stand-in `wsl` that does what the real one does with arguments and variables."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gsd_review_broker.pool.agents import launch_for, module_of
from gsd_review_broker.pool.launcher import environment, inside_wsl
from tests.unit.pool.test_recipe import URL, request_for

# Passes only those variables on that WSLENV names, and lets a shell read the line once more.
WSL = """#!{python}
import os, sys
distribution, rest = sys.argv[2], sys.argv[4:]
assert sys.argv[1:4:2] == ["-d", "--"], sys.argv
passed = {{entry.partition("/")[0]: entry.partition("/")[2] for entry in os.environ["WSLENV"].split(":")}}
assert all(flags in ("u", "up") for flags in passed.values()), passed
inside = {{name: os.environ[name] for name in passed if name in os.environ}}
inside = {{name: "/mnt/c/translated" if passed[name] == "up" else value for name, value in inside.items()}}
inside |= {{"PATH": os.environ["INSIDE"], "DISTRIBUTION": distribution}}
os.execve("/bin/sh", ["sh", "-c", " ".join(rest)], inside)
"""
AGENT = """#!{python}
import json, os, sys
print(json.dumps({{"argv": sys.argv[1:], "environment": dict(os.environ)}}))
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("agent", ["codex", "claude", "gemini", "opencode"])
def test_a_reviewer_in_wsl_has_its_token_its_key_and_paths_of_its_own_world(tmp_path: Path, agent: str) -> None:
    program(tmp_path / "windows" / "wsl", WSL)
    program(tmp_path / "linux" / agent, AGENT)
    module = module_of(agent)
    keys = {name: f"of {name}" for name in module.ENVIRONMENT}
    request = request_for(
        agent,
        wsl_distro="Ubuntu-24.04",
        workspace="/home/ada/my project",
        scratch=inside_wsl("C:\\Users\\Ada L\\state\\codex-r1\\work"),
        inherited={"PATH": str(tmp_path / "windows"), "HOME": "C:\\Users\\Ada L", "SSH_AUTH_SOCK": "x", **keys},
        passed=frozenset(module.ENVIRONMENT),
    )
    launch = launch_for(request)
    seen = {**environment(launch, request, "pool1"), "INSIDE": str(tmp_path / "linux")}
    started = subprocess.run(
        [str(tmp_path / "windows" / "wsl"), *launch.argv[1:]], env=seen, capture_output=True, check=True, text=True
    )
    inside = json.loads(started.stdout)
    assert inside["argv"] == list(launch_for(replace(request, wsl_distro=None)).argv[1:])
    assert not [element for element in inside["argv"] if "C:" in element]
    variables = inside["environment"]
    assert (variables["BROKER_TOKEN"], variables["BROKER_URL"]) == (request.token, URL)
    assert (variables["BROKER_REVIEWER_ID"], variables["BROKER_POOL"]) == (request.reviewer_id, "pool1")
    assert variables["DISTRIBUTION"] == "Ubuntu-24.04"
    assert launch.environment.items() <= variables.items()
    for name, value in keys.items():
        assert variables[name] in (value, "/mnt/c/translated")
    assert {"HOME", "SSH_AUTH_SOCK"} & variables.keys() == set()
    assert variables["PATH"] == str(tmp_path / "linux")


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("C:\\Users\\Ada L\\work", "/mnt/c/Users/Ada L/work"),
        ("d:/work/x", "/mnt/d/work/x"),
        ("/home/ada/work", "/home/ada/work"),
    ],
)
def test_a_path_of_windows_is_called_otherwise_inside_wsl(path: str, inside: str) -> None:
    assert inside_wsl(path) == inside


def test_names_of_folders_cross_with_their_path_translated() -> None:
    request = request_for(
        "codex", wsl_distro="Ubuntu", inherited={"CODEX_HOME": "C:\\codex"}, passed=frozenset({"CODEX_HOME"})
    )
    names = environment(launch_for(request), request, "pool1")["WSLENV"].split(":")
    assert "CODEX_HOME/up" in names
    assert "BROKER_TOKEN/u" in names
    assert os.pathsep.join(names).count("CODEX_HOME") == 1
