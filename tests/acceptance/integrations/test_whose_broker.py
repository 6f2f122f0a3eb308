"""A client's entry leads to the broker of its own project: whoever answers at the address decides, not a receipt."""

import json
import os
from pathlib import Path

import pytest

from tests.support.accounts import put
from tests.support.processes import BrokerProcess, make_repository
from tests.support.tandem import Tandem


@pytest.fixture
def other(process: BrokerProcess, tmp_path: Path) -> Tandem:
    """A second project on the machine of a broker that serves another one, with Claude Code on the PATH."""
    put(tmp_path / "programs" / "claude", "#!/bin/sh\necho 2.1.0\n", mode=0o755)
    path = f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}"
    return Tandem(make_repository(tmp_path / "other"), process.home, PATH=path)


def claude(tandem: Tandem) -> dict[str, str]:
    return next(check for check in tandem("doctor")["checks"] if check["name"] == "claude")


def test_the_broker_of_another_project_is_never_written(process: BrokerProcess, other: Tandem) -> None:
    address = f"http://127.0.0.1:{process.port}"
    refused = other.run("install", "claude", "--url", address, "--json")
    assert (refused.code, refused.error["code"]) == (6, "conflict")
    assert refused.error["message"] == f"the broker at {address} serves {process.folder}, not {other.folder}"

    absent = other.run("install", "claude", "--http", "--json")
    assert (absent.code, absent.error["code"]) == (3, "unavailable")
    assert not (other.folder / ".mcp.json").exists()

    own = Tandem(process.folder, process.home)
    (result,) = own("install", "claude", "--http")["results"]
    assert result["address"] == f"{address}/mcp/proposer"


def test_the_doctor_asks_who_answers(process: BrokerProcess, other: Tandem) -> None:
    address = f"http://127.0.0.1:{process.port}/mcp/proposer"
    (other.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"gsdreview": {"type": "http", "url": address}}}))
    check = claude(other)
    assert (check["state"], check["found"]) == ("yellow", f"connected to {address}, which serves {process.folder}")
    place = other("install", "status")["clients"][0]["places"][0]
    assert (place["origin"], place["serves"]) == ("foreign", str(process.folder))

    # The advice of the doctor helps.
    assert check["hint"].startswith("tandem install claude ")
    other("install", "claude")
    assert claude(other)["state"] == "green"

    process.stop()
    (process.folder / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"gsdreview": {"type": "http", "url": address}}})
    )
    here = Tandem(process.folder, process.home, PATH=other.environment["PATH"])
    assert claude(here)["found"] == f"no broker answers at {address}"


def test_a_client_that_is_not_installed_is_not_green(repository: Path, own_home: Path) -> None:
    tandem = Tandem(repository, own_home)
    tandem("install", "claude")
    check = claude(tandem)
    assert (check["state"], "there is no claude on the PATH" in check["found"]) == ("yellow", True)
