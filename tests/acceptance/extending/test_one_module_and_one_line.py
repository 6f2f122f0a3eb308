"""A made-up agent, client, vendor and severity, each added to a copy of the package as a contributor would add it: one
line in the list of words, and for an agent or a client one new module. Everything then knows it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import gsd_review_broker
from tests.support.dashboard import hello
from tests.support.http import Browser
from tests.support.local import PROPOSAL
from tests.support.mcp import Mcp, ToolError
from tests.support.pool import user_file
from tests.support.processes import BrokerProcess, make_repository
from tests.support.tandem import Tandem

WORDS = Path("domain", "words.py")
AGENT = "ada-2"
AGENT_MODULE = """
from gsd_review_broker.pool.output import AgentReport, Event, Spending
from gsd_review_broker.pool.agents import Launch, LaunchRequest

ENVIRONMENT = ("ADA_KEY",)
LOGIN = None


def launch(request: LaunchRequest) -> Launch:
    return Launch(argv=("ada-2", "--model", request.model or ""))


def read_event(event: Event, spending: Spending) -> AgentReport | None:
    return AgentReport(doing=f"ponders {event['on']}") if event.get("type") == "pondering" else None
"""
PROGRAM = """#!/bin/sh
echo "reviewing with $2 and $ADA_KEY"
echo '{"type": "pondering", "on": "the diff"}'
cat > /dev/null
exec tail -f /dev/null
"""
CLIENT = "gsd-core"
CLIENT_MODULE = """
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, ClientSetup, Environment
from gsd_review_broker.integrations.formats import ConfigEntry


def _more(choice: Choice, around: Environment) -> ClientSetup:
    folder = around.project() / ".gsd"
    hook = ConfigEntry(path=("hooks", "before"), value="tandem propose", in_list=True)
    return ClientSetup(
        documents=(ClientFile(path=folder / "hooks.json", format="json", entries=(hook,)),),
        assets=(ClientFile(path=folder / "review.md", text="Propose first."),),
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
    (package / "pool" / "agents" / "ada_2.py").write_text(AGENT_MODULE)
    add_line(package / WORDS, 'AGENTS = ("codex", ', '"ada-2", ')
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
        while (doing := tandem("pool", "list")["reviewers"][0]["doing"]) != "ponders the diff":
            assert time.monotonic() < end, doing
        broker.stop(signal.SIGTERM)


def test_a_client_without_a_server_entry(tandem: Tandem, package: Path) -> None:
    (package / "integrations" / "clients" / "gsd_core.py").write_text(CLIENT_MODULE)
    add_line(package / WORDS, "\nCLIENTS = (", '"gsd-core", ')
    assert CLIENT in tandem.run("install", "--help").out
    folder = tandem.folder / ".gsd"
    (result,) = tandem("install", CLIENT)["results"]
    assert (result["client"], result["changed"], result["notes"]) == (CLIENT, True, ["It was made up."])
    assert json.loads((folder / "hooks.json").read_text()) == {"hooks": {"before": ["tandem propose"]}}
    assert (folder / "review.md").read_text() == "Propose first."
    assert CLIENT in {client["client"] for client in tandem("install", "status")["clients"]}
    tandem("uninstall", CLIENT)
    assert not folder.exists()


def judge(call: Mcp, review_id: str, reviewer: str, verdict: str, **more: Any) -> Any:
    claim = call("claim_review", review_id=review_id, reviewer_id=reviewer)
    return call(
        "submit_verdict", review_id=review_id, claim_generation=claim["claim_generation"], verdict=verdict, **more
    )


def test_a_vendor_and_its_agent(tandem: Tandem, package: Path) -> None:
    add_line(package / WORDS, 'AGENTS = ("codex", ', '"ada-2", ')
    add_line(package / WORDS, "VENDORS = {\n", '    "ada": "lovelace",\n')
    (package / "pool" / "agents" / "ada_2.py").write_text(AGENT_MODULE)
    for command in (("pool", "spawn"), ("pool", "enable"), ("setup",)):
        assert AGENT in tandem.run(*command, "--help").out
    user_file(tandem.home).write_text(json.dumps({"approvals": {"required": 2, "distinct_vendors": True}}))
    with BrokerProcess(tandem.folder, home=tandem.home) as broker:
        call = broker.client()
        review_id = call("create_review", **PROPOSAL)["review_id"]
        judge(call, review_id, f"{AGENT}-r1-0a1b2c3d", "approved")
        with pytest.raises(ToolError, match="lovelace has approved it already"):
            call("claim_review", review_id=review_id, reviewer_id="ada")
        with pytest.raises(ToolError, match="begin with ada, claude, codex, gemini or gpt"):
            call("claim_review", review_id=review_id, reviewer_id="lovelace")
        assert judge(call, review_id, "codex", "approved")["status"] == "approved"


LOOK_AT_THE_PROMPT = """
from gsd_review_broker.pool.launcher import prompt, template
from gsd_review_broker.pool.agents import LaunchRequest
request = LaunchRequest(agent="codex", reviewer_id="r", broker_url="", token="", model=None, effort="", workspace="",
    scratch="")
print(prompt(template(None), request).decode())
"""


def test_a_severity(tandem: Tandem, package: Path) -> None:
    add_line(package / WORDS, '    """The most important first."""\n\n', '    FATAL = "fatal"\n')
    asked = tandem.run("request-changes", "--help").out
    assert "SEVERITY is fatal, critical, high, medium or low" in " ".join(asked.split())
    told = subprocess.run(
        [sys.executable, "-c", LOOK_AT_THE_PROMPT], env=tandem.environment, capture_output=True, text=True, check=True
    )
    assert "severity (fatal, critical, high, medium, low)" in told.stdout
    with BrokerProcess(tandem.folder, home=tandem.home) as broker:
        call = broker.client()
        tools = {tool["name"]: tool["inputSchema"] for tool in call.tools()}
        assert '"enum": ["fatal", "critical", "high", "medium", "low", "P0",' in json.dumps(tools["submit_verdict"])
        review_id = call("create_review", **PROPOSAL, diff=hello("deux"))["review_id"]
        remarks = ("--finding", "hello.txt:2:medium:a remark", "--finding", "hello.txt:2:fatal:the worst")
        assert tandem.run("request-changes", review_id, "-m", "no", *remarks).code == 0
        assert "fatal open" in tandem.run("show", review_id).out
        page = Browser(broker.port).get(f"/r/{review_id}").text
        assert "No open finding of severity fatal, critical or high" in page
        assert "fatal: the worst" in page
        assert '<span class="badge fatal">fatal</span>' in page
        other = call("create_review", **PROPOSAL, diff=hello("zwei"))["review_id"]
        form = Browser(broker.port).get(f"/r/{other}?at=f0n2").text
        assert '<option value="fatal">a finding: fatal</option>' in form
