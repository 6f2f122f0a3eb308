"""A fault in one feature's settings: the broker starts, and each place that people look at says what to do."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import BrokerProcess, git
from tests.support.tandem import Tandem


@pytest.mark.parametrize(
    ("content", "tracked", "said", "fix"),
    [
        ({"reviewer_pool": {"enabled": True}}, True, "git tracks this file", "tandem pool enable --scope user"),
        ({"reviewer_pool": {"sizee": 1}}, False, "reviewer_pool.sizee: unknown setting", "tandem pool disable"),
        ("{", False, "line 1, column 2: not valid JSON", "Fix or remove"),
    ],
    ids=["tracked", "typo", "unreadable"],
)
def test_the_broker_starts_and_status_doctor_dashboard_and_log_say_what_to_do(
    repository: Path, own_home: Path, content: Any, tracked: bool, said: str, fix: str
) -> None:
    file = repository / ".planning" / "review-broker.json"
    file.parent.mkdir()
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    if tracked:
        git(repository, "add", "-f", str(file))
    with BrokerProcess(repository, home=own_home) as broker:
        tandem = Tandem(repository, own_home)
        [problem] = tandem("status")["problems"]
        assert (said in problem["message"], fix in problem["fix"]) == (True, True)
        assert said in tandem.run("status").out
        checks = tandem("doctor")["checks"]
        assert [
            said in check["found"] and fix in check["hint"] for check in checks if check["state"] == "yellow"
        ].count(True) == 1
        for page in ("/", "/pool"):
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.port}{page}") as answer:
                assert said in answer.read().decode()
        assert said in broker.output()
        if isinstance(content, dict):
            assert said in tandem("pool", "list")["problem"]
            # It was turned on, so that is not the advice.
            assert "pool off, for the reason below;" in tandem.run("pool", "list").out
