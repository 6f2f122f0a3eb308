"""The client path is a small script: it carries nothing of the server."""

import json
import subprocess
import sys

import pytest

from tests.support.local import PROPOSAL
from tests.support.processes import BrokerProcess
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
LOOK = """
import contextlib, io, json, sys
from gsd_review_broker.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    code = main(json.loads(sys.argv[1]))
print(json.dumps([code, sorted(name for name in json.loads(sys.argv[2]) if name in sys.modules)]))
"""


def imported(tandem: Tandem, *arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, json.dumps(arguments), json.dumps([*HEAVY, "http.client", "argparse"])],
        cwd=tandem.folder, env=tandem.environment, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    code, names = json.loads(done.stdout)
    return code, names


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


def test_the_version_needs_not_even_http(tandem: Tandem) -> None:
    assert imported(tandem, "--version") == (0, ["argparse"])


def test_the_look_itself_would_notice(tandem: Tandem) -> None:
    """`tandem config` does import the server's configuration."""
    code, names = imported(tandem, "config")
    assert code == 0
    assert "pydantic" in names
