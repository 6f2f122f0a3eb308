"""`tandem token`, and the other commands with a token."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess, make_repository
from tests.support.tandem import Tandem


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("secured")
    home = folder / "home"
    home.mkdir()
    with BrokerProcess(make_repository(folder / "repository"), home=home, arguments=("--auth", "token")) as running:
        yield running


@pytest.fixture
def tandem(secured: BrokerProcess) -> Tandem:
    return Tandem(secured.folder, secured.home)


def token(tandem: Tandem, role: str, name: str) -> str:
    made = tandem.run("token", "new", "--role", role, "--name", name)
    assert made.code == 0, made.err
    assert made.out.startswith("tdm_")
    return made.out.strip()


def test_a_token_is_printed_once_listed_and_revoked(tandem: Tandem) -> None:
    made = tandem.run("token", "new", "--role", "observer", "--name", "eve", "--expires", "30d")
    assert made.out.splitlines() == [made.out.strip()]
    assert "observer" in made.err
    listed = tandem.run("token", "list")
    assert "eve" in listed.out
    assert made.out.strip() not in listed.out
    row = next(row for row in tandem.run("token", "list", "--json").json["tokens"] if row["name"] == "eve")
    assert (row["role"], row["state"], row["created_by"][:6]) == ("observer", "live", "human:")
    assert tandem.run("list", BROKER_TOKEN=made.out.strip()).code == 0
    assert tandem.run("token", "new", "--role", "human", "--name", "Eve").code == 6
    assert tandem.run("token", "revoke", "eve").code == 0
    assert tandem.run("list", BROKER_TOKEN=made.out.strip()).code == 4
    assert tandem.run("token", "revoke", "eve").code == 7


def test_commands_take_the_token_from_the_environment_or_a_private_file(tandem: Tandem) -> None:
    refused = tandem.run("list", "--json")
    assert (refused.code, refused.error["code"]) == (4, "unauthenticated")
    assert tandem.run("list", BROKER_TOKEN=token(tandem, "observer", "env")).code == 0
    file = tandem.home / "config/gsd-review-broker/token"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(token(tandem, "observer", "file") + "\n")
    try:
        file.chmod(0o600)
        assert tandem.run("list").code == 0
        file.chmod(0o640)
        readable = tandem.run("list")
        assert (readable.code, "chmod 600" in readable.err) == (4, True)
    finally:
        file.unlink()


@pytest.mark.parametrize("wrong", ["tdm_caf\u00e9", "tdm_one\ntdm_two"])
def test_a_variable_that_does_not_hold_a_token_is_named_and_the_broker_is_not_blamed(
    tandem: Tandem, wrong: str
) -> None:
    said = tandem.run("list", BROKER_TOKEN=wrong)
    assert (said.code, "the variable BROKER_TOKEN does not hold a token" in said.err) == (2, True), said


def test_a_person_judges_under_the_tokens_name(tandem: Tandem, secured: BrokerProcess) -> None:
    ada, cy = token(tandem, "proposer", "ada"), token(tandem, "human", "cy")
    (secured.folder / "hello.txt").write_text("one\n2\nthree\n")
    proposed = tandem.run("propose", "-m", "Say two as a number", "--json", BROKER_TOKEN=ada)
    assert proposed.code == 0, proposed.err
    review_id = proposed.json["review_id"]
    assert tandem.run("approve", review_id, BROKER_TOKEN=ada).code == 4
    assert tandem.run("approve", review_id, BROKER_TOKEN=cy).code == 0
    shown = tandem.run("show", review_id, "--json", BROKER_TOKEN=ada).json
    assert "human:cy" in str(shown)
    assert tandem.run("close", review_id, BROKER_TOKEN=ada).code == 0


def test_a_broker_that_is_named_by_its_address_tells_who_it_is_only_to_a_token(
    tandem: Tandem, secured: BrokerProcess
) -> None:
    url = f"http://127.0.0.1:{secured.port}"
    refused = tandem.run("list", "--url", url, "--json")
    assert (refused.code, refused.error["code"]) == (4, "unauthenticated")
    assert tandem.run("list", "--url", url, BROKER_TOKEN=token(tandem, "observer", "far")).code == 0
    admin = token(tandem, "admin", "root")
    assert tandem.run("token", "list", "--url", url, BROKER_TOKEN=admin).code == 0


def test_without_a_broker_tokens_are_made_in_the_database(tmp_path: Path, own_home: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    tandem = Tandem(repository, own_home)
    made = token(tandem, "observer", "early")
    assert "early" in tandem.run("token", "list").out
    with BrokerProcess(repository, home=own_home, arguments=("--auth", "token")):
        assert tandem.run("list", BROKER_TOKEN=made).code == 0
        assert tandem.run("token", "revoke", "early").code == 0
        assert tandem.run("list", BROKER_TOKEN=made).code == 4
