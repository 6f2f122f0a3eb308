"""A project and a home for the real GSD."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.processes import git, make_repository
from tests.support.real_gsd import ALL, Machine
from tests.support.tandem import Tandem


@pytest.fixture
def machine(tmp_path: Path, own_home: Path) -> Machine:
    missing = [package.name for package in ALL if not package.is_here]
    if missing:
        pytest.skip(f"not fetched: {', '.join(missing)}; run make test-gsd")
    project = make_repository(tmp_path / "project")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        git(project, "config", name, value)
    return Machine(project, own_home)


@pytest.fixture
def tandem(machine: Machine) -> Generator[Tandem]:
    tandem = Tandem(machine.project, machine.home)
    yield tandem
    tandem.run("down")
