"""The port that a project's broker has if nobody chose one: the same at every start."""

from itertools import islice
from pathlib import Path

import pytest

from gsd_review_broker.cli.broker import ports
from gsd_review_broker.cli.broker.ports import Files
from gsd_review_broker.files import make_private_folder
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.state_files import Database

OWN = range(18_321, 28_321)


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    make_private_folder(locations.state_folder() / "brokers")


def database(tmp_path: Path, name: str) -> Database:
    path = tmp_path / name
    path.touch()
    return Database(path)


def test_the_first_project_has_the_default_port_and_every_other_one_its_own(tmp_path: Path) -> None:
    first, second, third = (database(tmp_path, name) for name in ("first", "second", "third"))
    assert ports.usual(first) == locations.DEFAULT_PORT
    ports.remember(first, locations.DEFAULT_PORT)
    assert (ports.usual(first), ports.usual(second) in OWN) == (locations.DEFAULT_PORT, True)
    assert len({ports.usual(one) for one in (first, second, third)}) == 3
    # The first is gone, and whoever is new may have its port. Who has one already keeps it.
    own = ports.usual(second)
    ports.remember(second, own)
    first.path.unlink()
    assert (ports.usual(second), ports.usual(third)) == (own, locations.DEFAULT_PORT)


def test_the_first_port_stays_the_usual_one(tmp_path: Path) -> None:
    one = database(tmp_path, "one")
    ports.remember(one, locations.DEFAULT_PORT)
    ports.remember(one, 20_000)
    assert ports.usual(one) == locations.DEFAULT_PORT


def test_where_the_usual_port_is_taken_the_same_others_are_tried_in_the_same_order(tmp_path: Path) -> None:
    one, other = database(tmp_path, "one"), database(tmp_path, "other")
    tried = list(ports.candidates(one))
    assert tried == list(ports.candidates(one))
    assert (tried[0], tried[-1]) == (locations.DEFAULT_PORT, ports.ANY)
    assert set(tried[1:-1]) <= set(OWN)
    assert len(set(tried)) == len(tried) > 10
    assert list(islice(ports.candidates(other), 1, 3)) != tried[1:3]


@pytest.mark.parametrize("content", ["", "[]", '{"port": "x"}', '{"port": 70000}', '{"port": true}', '{"port": 0}'])
def test_a_file_that_names_no_port_counts_for_nothing(tmp_path: Path, content: str) -> None:
    one = database(tmp_path, "one")
    Files.of(one).port.write_text(content)
    assert ports.usual(one) == locations.DEFAULT_PORT
    ports.remember(one, 20_000)
    assert ports.usual(one) == 20_000
