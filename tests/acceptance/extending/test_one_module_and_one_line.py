"""A made-up agent and a made-up client, each added to a copy of the package as a contributor would add it: one new
module and one line. Everything that knows agents or clients then knows it."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

import gsd_review_broker
from tests.support.pool import user_file
from tests.support.processes import BrokerProcess, make_repository
from tests.support.tandem import Tandem

AGENT = "ada-2"
AGENT_MODULE = """
from gsd_review_broker.pool.launch.recipe import Launch, LaunchRequest

ENVIRONMENT = ("ADA_KEY",)
LOGIN = None


def launch(request: LaunchRequest) -> Launch:
    return Launch(argv=("ada-2", "--model", request.model or ""))
"""
PROGRAM = '#!/bin/sh\necho "reviewing with $2 and $ADA_KEY"\nexec cat > /dev/null\n'
CLIENT = "gsd-core"
CLIENT_MODULE = """
from gsd_review_broker.integrations.clients.setup import Asset, Choice, Client, ClientFile, ClientSetup
from gsd_review_broker.integrations.environment import Environment
from gsd_review_broker.integrations.formats.entries import Entry


def _more(choice: Choice, around: Environment) -> ClientSetup:
    folder = around.project() / ".gsd"
    hook = Entry(path=("hooks", "before"), value="tandem propose", in_list=True)
    return ClientSetup(
        documents=(ClientFile(path=folder / "hooks.json", format="json", entries=(hook,)),),
        assets=(Asset(path=folder / "review.md", text="Propose first."),),
        notes=("It was made up.",),
    )


CLIENT = Client(name="gsd-core", full_name="GSD", server=None, more=_more)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that every program of this test imports."""
    source = Path(gsd_review_broker.__file__).parent
    copy = tmp_path / "source" / source.name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(copy.parent))
    # A program that is forked has the package already, and not the copy.
    monkeypatch.setenv("TANDEM_TEST_EXEC", "1")
    return copy


def add_line(file: Path, after: str, line: str) -> None:
    text = file.read_text()
    assert text.count(after) == 1
    file.write_text(text.replace(after, after + line))


@pytest.fixture
def tandem(tmp_path: Path, own_home: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> Tandem:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / AGENT).write_text(PROGRAM)
    (programs / AGENT).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ADA_KEY", "a key")
    return Tandem(make_repository(tmp_path / "repository"), own_home)


def test_an_agent(tandem: Tandem, package: Path) -> None:
    (package / "pool" / "launch" / "agents" / "ada_2.py").write_text(AGENT_MODULE)
    add_line(package / "settings" / "agents.py", "AGENTS = (", '"ada-2", ')
    user_file(tandem.home, agent=AGENT, model="deep", max_pool_size=1, kill_grace_seconds=1)
    assert AGENT in tandem.run("pool", "spawn", "--help").out
    checks = {check["name"]: check["found"] for check in tandem("doctor")["checks"]}
    assert AGENT in checks["reviewer programs"]
    with BrokerProcess(tandem.folder, home=tandem.home) as broker:
        tools = {tool["name"]: tool for tool in broker.client().tools()}
        assert AGENT in tools["spawn_reviewer"]["inputSchema"]["properties"]["agent"]["enum"]
        reviewer = tandem("pool", "spawn", AGENT)["reviewer_id"]
        assert reviewer.startswith("ada-2-r1-")
        end = time.monotonic() + 30
        while not (text := tandem("pool", "logs", reviewer)["text"]):
            assert time.monotonic() < end, "it printed nothing"
        assert "reviewing with deep and a key" in text
        broker.stop(signal.SIGTERM)


def test_a_client_without_a_server_entry(tandem: Tandem, package: Path) -> None:
    (package / "integrations" / "clients" / "gsd_core.py").write_text(CLIENT_MODULE)
    add_line(package / "settings" / "clients.py", "CLIENTS = (", '"gsd-core", ')
    assert CLIENT in tandem.run("install", "--help").out
    folder = tandem.folder / ".gsd"
    (result,) = tandem("install", CLIENT)["results"]
    assert (result["client"], result["changed"], result["notes"]) == (CLIENT, True, ["It was made up."])
    assert json.loads((folder / "hooks.json").read_text()) == {"hooks": {"before": ["tandem propose"]}}
    assert (folder / "review.md").read_text() == "Propose first."
    assert CLIENT in {client["client"] for client in tandem("install", "status")["clients"]}
    tandem("uninstall", CLIENT)
    assert not folder.exists()
