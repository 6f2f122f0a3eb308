"""The client path is a small script: it carries nothing of the server."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local import PROPOSAL
from tests.support.processes import BrokerProcess, git
from tests.support.tandem import Tandem

HEAVY = (
    "mcp",
    "mcp_types",
    "starlette",
    "sqlalchemy",
    "pydantic",
    "structlog",
    "uvicorn",
    "alembic",
    "asyncio",
    "jinja2",
)
# On the way of the commands that hooks, prompts and agents run again and again.
NEEDLESS = (
    "dataclasses",
    "inspect",
    "http.client",
    "email",
    "ssl",
    "subprocess",
    "threading",
    "random",
    "difflib",
    "webbrowser",
    "encodings.idna",
    "importlib.metadata",
)
LOOK = """
import contextlib, io, json, sys
from gsd_review_broker.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    code = main(json.loads(sys.argv[1]))
print(json.dumps([code, sorted(name for name in json.loads(sys.argv[2]) if name in sys.modules), len(sys.modules)]))
"""
# What the time of a short command is compared with (docs/performance.md).
YARDSTICK = "import http.client, json, sys; print(len(sys.modules))"


def imported(tandem: Tandem, *arguments: str) -> tuple[int, list[str]]:
    code, names, _ = looked(tandem, *arguments)
    return code, names


def looked(tandem: Tandem, *arguments: str) -> tuple[int, list[str], int]:
    """The exit code, the modules of our lists that were imported, and the number of all."""
    interesting = json.dumps([*HEAVY, *NEEDLESS, "argparse"])
    done = subprocess.run(
        [sys.executable, "-c", LOOK, json.dumps(arguments), interesting],
        cwd=tandem.folder, env=tandem.environment, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    code, names, count = json.loads(done.stdout)
    return code, names, count


@pytest.fixture
def tandem(process: BrokerProcess) -> Tandem:
    return Tandem(process.folder, process.home)


def test_no_command_that_talks_to_a_broker_imports_the_server(process: BrokerProcess, tandem: Tandem) -> None:
    review_id = process.client()("create_review", **PROPOSAL)["review_id"]
    for arguments in (
        ("--help",),
        ("list",),
        ("show", review_id),
        ("log", review_id),
        ("wait", review_id, "--timeout", "0.1"),
        ("watch", review_id, "--for", "0.1"),
        ("propose", "-m", "x", "--no-diff", "--wait", "0.1"),
        ("claim", review_id, "--as", "codex"),
        ("message", review_id, "-m", "x"),
        ("approve", review_id, "--as", "codex"),
        ("close", review_id),
        ("audit", "log"),
        ("up",),
        ("status",),
        ("__complete", "show", ""),
    ):
        code, names = imported(tandem, *arguments)
        assert code in {0, 8}, arguments
        assert [name for name in names if name in HEAVY] == [], arguments


@pytest.mark.parametrize("command", ["status", "list"])
def test_a_short_command_imports_hardly_more_than_an_http_client(tandem: Tandem, command: str) -> None:
    """Modules are counted: the time itself, as a ratio, is in `make bench`."""
    _, names, count = looked(tandem, command)
    assert names == ["argparse"]
    yardstick = subprocess.run([sys.executable, "-c", YARDSTICK], capture_output=True, text=True, check=True)
    assert count <= 1.35 * int(yardstick.stdout)


@pytest.mark.parametrize("command", ["status", "list"])
def test_a_short_command_starts_no_git_in_an_ordinary_checkout(tandem: Tandem, tmp_path: Path, command: str) -> None:
    programs, started = tmp_path / "programs", tmp_path / "started"
    programs.mkdir()
    (programs / "git").write_text(f'#!/bin/sh\necho "$@" >> {started}\nexec {shutil.which("git")} "$@"\n')
    (programs / "git").chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    assert tandem.run(command, **path).code == 0
    assert not started.exists()
    # It would be noticed: a linked worktree is not ordinary.
    git(tandem.folder, "worktree", "add", "-q", "../linked")
    assert Tandem(tandem.folder.with_name("linked"), tandem.home).run(command, **path).code == 0
    assert started.exists()


def test_the_version_needs_not_even_http(tandem: Tandem) -> None:
    assert imported(tandem, "--version") == (0, ["argparse"])


def test_the_look_itself_would_notice(tandem: Tandem) -> None:
    """`tandem config` does import the server's configuration."""
    code, names = imported(tandem, "config")
    assert code == 0
    assert "pydantic" in names
