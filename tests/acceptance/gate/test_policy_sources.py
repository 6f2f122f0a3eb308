"""What `tandem config` prints is what the gate does, wherever the policy comes from."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gated import Gated, gated


@pytest.fixture
def here(tmp_path: Path) -> Generator[Gated]:
    """Nothing on this machine but the project's file names a mode: warn."""
    with gated(tmp_path, mode="warn") as running:
        yield running


def shown(here: Gated, **environment: str) -> dict[str, Any]:
    return here.tandem.run("config", "--json", **environment).json


def commits(here: Gated, text: str, **environment: str) -> bool:
    """Whether git takes a change without an approval."""
    here.stage(hello_txt=text)
    said = here.git("commit", "-m", text.strip(), **environment)
    assert said.code == 0 or "tandem gate: refused" in said.err, said
    return said.code == 0


def block_in(file: Path, **more: object) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"gate": {"mode": "block", **more}}))
    return str(file)


@pytest.mark.parametrize("has_broker", [True, False], ids=["broker", "no broker"])
def test_a_mode_in_the_environment_is_what_the_hook_does(here: Gated, has_broker: bool) -> None:
    if not has_broker:
        here.process.stop()
    block = {"BROKER_GATE__MODE": "block"}
    assert commits(here, "warned\n")
    assert shown(here, **block)["gate.mode"] == {"value": "block", "from": "environment"}
    assert not commits(here, "blocked\n", **block)
    if has_broker:
        assert here.tandem.run("gate", "status", "--json", **block).json["mode"] == "block"
    # The other sources stay as strict as they are.
    block_in(here.folder / ".planning" / "review-broker.json")
    assert shown(here, BROKER_GATE__MODE="off")["gate.mode"]["value"] == "block"
    assert not commits(here, "blocked\n", BROKER_GATE__MODE="off")


@pytest.mark.parametrize("has_broker", [True, False], ids=["broker", "no broker"])
def test_a_mode_in_a_chosen_file_is_what_the_hook_does(here: Gated, tmp_path: Path, has_broker: bool) -> None:
    if not has_broker:
        here.process.stop()
    file = block_in(tmp_path / "chosen.json")
    assert shown(here, BROKER_CONFIG=file)["gate.mode"] == {"value": "block", "from": file}
    assert not commits(here, "blocked\n", BROKER_CONFIG=file)
    Path(file).unlink()
    said = here.git("commit", "-m", "x", BROKER_CONFIG=file)
    assert said.code != 0
    assert file in said.err


def test_a_mode_that_the_broker_was_started_with_is_what_the_hook_does(here: Gated, tmp_path: Path) -> None:
    here.process.stop()
    here.process._arguments += ("--config", block_in(tmp_path / "chosen.json"))
    here.process.start()
    assert not commits(here, "blocked\n")


def test_the_environment_does_not_loosen_the_gate(here: Gated) -> None:
    block_in(here.folder / ".planning" / "review-broker.json")
    loose = {
        "BROKER_GATE__BRANCHES": "elsewhere",
        "BROKER_GATE__EXEMPT_PATHS": "*",
        "BROKER_GATE__OVERRIDE": "human",
    }
    assert not commits(here, "blocked\n", **loose)
    values = shown(here, **loose)
    assert values["gate.branches"]["value"] == []
    assert values["gate.exempt_paths"]["value"] == ["!*-PLAN.md"]


def test_paths_for_a_person_in_the_environment_need_one(here: Gated) -> None:
    block_in(here.folder / ".planning" / "review-broker.json")
    here.stage(hello_txt="approved\n")
    here.approve()
    demand = {"BROKER_GATE__HUMAN_PATHS": "hello.txt"}
    assert shown(here, **demand)["gate.human_paths"] == {"value": ["hello.txt"], "from": "environment"}
    said = here.git("commit", "-m", "approved", **demand)
    assert said.code != 0, said
    here.must("commit", "-m", "approved")


def test_a_policy_that_cannot_be_read_blocks_and_config_says_so(here: Gated) -> None:
    wrong = {"BROKER_GATE__MODE": "blok"}
    assert not commits(here, "blocked\n", **wrong)
    said = here.tandem.run("config", **wrong)
    assert said.code == 0
    assert "environment: gate.mode: 'blok' is not one of off, warn, block" in said.err
    assert shown(here, **wrong)["gate.mode"]["value"] == "block"


def test_of_several_files_the_strictest_value_and_its_file_are_shown(here: Gated) -> None:
    user = here.home / "config" / "gsd-review-broker" / "config.json"
    project = here.folder / ".planning" / "review-broker.json"
    block_in(user, exempt_paths=["docs/", "notes/"], branches=["main"])
    project.write_text(json.dumps({"gate": {"mode": "warn", "exempt_paths": ["notes/"], "branches": ["release/*"]}}))
    values = shown(here)
    assert values["gate.mode"] == {"value": "block", "from": str(user)}
    assert values["gate.exempt_paths"] == {"value": ["notes/"], "from": f"{user} and {project}"}
    assert values["gate.branches"]["value"] == ["main", "release/*"]
    assert values["gate.override"] == {"value": "human", "from": "default"}
