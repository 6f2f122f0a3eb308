"""The functions by which other commands offer the gate and ask for its state."""

import json
from pathlib import Path

from gsd_review_broker.cli.project_files import gate_state, install_gate, uninstall_gate


def test_the_gate_is_put_in_place_asked_for_and_taken_away(repository: Path) -> None:
    before = {path: path.read_bytes() for path in (repository / ".git").rglob("*") if path.is_file()}
    state = gate_state(repository)
    assert (state.state, state.is_installed, state.mode) == ("absent", False, "warn")

    first = install_gate(repository, mode="block")
    assert (first["changed"], first["mode"]) == (True, "block")
    assert install_gate(repository) == first | {"changed": False}
    state = gate_state(repository)
    assert (state.state, state.is_installed, state.mode) == ("ok", True, "block")

    Path(first["hook"]).unlink()
    damaged = gate_state(repository)
    assert damaged.state == "damaged"
    assert install_gate(repository)["changed"] is True

    assert uninstall_gate(repository) is True
    assert uninstall_gate(repository) is False
    assert {path: path.read_bytes() for path in (repository / ".git").rglob("*") if path.is_file()} == before
    # What the project wants stays written.
    settings = json.loads((repository / ".planning" / "review-broker.json").read_text())
    assert settings == {"gate": {"mode": "block"}}


def test_outside_a_repository_there_is_no_gate(tmp_path: Path) -> None:
    assert gate_state(tmp_path).state == "absent"
