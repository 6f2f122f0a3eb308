"""Python files at a repository's root are not run: whatever we start there looks for modules elsewhere."""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from gsd_review_broker.cli.broker import background
from tests.support.hostile_clone import plant_modules
from tests.support.tandem import Tandem

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture
def tandem(repository: Path, own_home: Path) -> Generator[Tandem]:
    tandem = Tandem(repository, own_home, BROKER_PORT="0")
    yield tandem
    tandem.run("down", "--force")


def test_a_broker_in_the_background_runs_nothing_of_the_repository(tandem: Tandem, tmp_path: Path) -> None:
    canary = plant_modules(tandem.folder, tmp_path / "canary")
    assert tandem("up")["started"] is True
    assert tandem("status")["serves"] == str(tandem.folder)
    assert not canary.exists(), canary.read_text()
    assert tandem("down")["ended"] is True
    said = tandem.run("mcp", stdin=json.dumps(INITIALIZE).encode() + b"\n")
    assert '"serverInfo"' in said.out
    assert not canary.exists(), canary.read_text()


def test_every_python_that_we_start_is_told_so_and_tells_its_children() -> None:
    assert background.python_command("json.tool")[:3] == [sys.executable, "-P", "-m"]
    assert background.safe_environment({"A": "b"}) == {"A": "b", "PYTHONSAFEPATH": "1"}


def test_no_other_place_starts_python() -> None:
    source = Path(background.__file__).parents[2]
    starters = [path.relative_to(source) for path in source.rglob("*.py") if "sys.executable" in path.read_text()]
    # The second writes the git hook, which starts Python apart from its folder; the third names the program `tandem`
    # beside it, and starts nothing.
    assert sorted(map(str, starters)) == [
        "cli/broker/background.py",
        "gate/install.py",
        "integrations/clients/setup.py",
    ]
