"""The capability for gsd-core: what is written for a project and for its user, and that all of it leaves again."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.integrations.clients import client_named
from gsd_review_broker.integrations.clients.gsd import installed_gsd
from gsd_review_broker.integrations.clients.gsd_capability import content_hash
from gsd_review_broker.integrations.clients.setup import Choice, Scope
from gsd_review_broker.integrations.detection import state_of
from gsd_review_broker.integrations.planning import Planner, carry_out, repair
from tests.support.accounts import Account, put
from tests.support.gsd import CLASSIC, CORE, gsd_project, gsd_tree
from tests.support.processes import git, make_repository

GSD = client_named("gsd")
NAMES = {"tandem", "tandem-reviewer"}


@pytest.fixture
def account(tmp_path: Path) -> Account:
    account = Account.in_folder(tmp_path)
    gsd_tree(account.root, CORE, version="1.14.0")
    gsd_project(account.root)
    return account


def set_up(account: Account, scope: Scope = Scope.PROJECT, **more: Any) -> tuple[str, ...]:
    return carry_out(Planner(account.around).install(GSD, Choice(url=None, scope=scope, **more))).notes


def consents(account: Account) -> dict[str, Any]:
    return json.loads((account.around.home / ".gsd" / "consent.json").read_text())["records"]


def manifest(account: Account, name: str = "tandem") -> dict[str, Any]:
    return json.loads((account.root / ".gsd" / "capabilities" / name / "capability.json").read_text())


def second_project(account: Account) -> Account:
    root = account.root.with_name("second")
    root.mkdir()
    gsd_tree(root, CORE, version="1.14.0")
    return Account(replace(account.around, root=root))


def test_the_user_consents_to_exactly_what_is_written(account: Account) -> None:
    set_up(account)
    records = consents(account)
    assert {(json.loads(key)["r"], json.loads(key)["i"]) for key in records} == {(str(account.root), n) for n in NAMES}
    for record in records.values():
        file = account.root / ".gsd" / "capabilities" / record["id"] / "capability.json"
        assert record["contentHash"] == content_hash(file.read_text())
    ledger = json.loads((account.root / ".gsd-capabilities.json").read_text())
    assert ledger["entries"].keys() == NAMES
    # The time of the consent is the first one.
    set_up(account)
    assert consents(account) == records
    # Another program is other content, to which the user consents by installing it.
    set_up(account, tandem="/opt/tandem")
    assert consents(account).keys() == records.keys()
    assert all(record["contentHash"] != records[key]["contentHash"] for key, record in consents(account).items())


@pytest.mark.parametrize("program", ["tandem", '/opt/my tools/it\'s $5 `x` "y"/tandem'])
def test_the_command_of_a_gate_is_one_that_a_shell_takes_between_single_quotes(account: Account, program: str) -> None:
    set_up(account, tandem=program)
    commands = {gate["point"]: gate["check"]["predicate"]["command"] for gate in manifest(account)["gates"]}
    assert commands.keys() == {"plan:post", "execute:wave:post", "verify:pre", "ship:pre"}
    words = [shlex.split(command.replace("\\$", "$").replace("\\`", "`")) for command in commands.values()]
    assert {tuple(line[:3]) for line in words} == {(program, "gsd", "checkpoint")}
    assert manifest(account, "tandem-reviewer")["reviewer"]["invoke"]["binary"] == program


@pytest.mark.parametrize("leaves_first", [0, 1])
def test_two_projects_share_the_users_file_and_the_last_one_takes_it_away(account: Account, leaves_first: int) -> None:
    other = second_project(account)
    before = account.seen() | other.seen()
    set_up(account)
    set_up(other)
    assert len(consents(account)) == 4
    leaving = [account, other] if leaves_first == 0 else [other, account]
    carry_out(Planner(leaving[0].around).uninstall(GSD, Scope.PROJECT))
    assert len(consents(account)) == 2
    assert state_of(GSD, leaving[1].around).state == "ok"
    carry_out(Planner(leaving[1].around).uninstall(GSD, Scope.PROJECT))
    assert account.seen() | other.seen() == before


def test_the_consents_of_others_stay_to_the_byte(account: Account) -> None:
    text = '{"version":"1","records":{"{\\"r\\":\\"/x\\",\\"i\\":\\"y\\"}":{"id":"y"}}}'
    file = put(account.around.home / ".gsd" / "consent.json", text)
    set_up(account)
    assert len(consents(account)) == 3
    carry_out(Planner(account.around).uninstall(GSD, Scope.PROJECT))
    assert file.read_text() == text


def test_a_link_in_the_project_does_not_lead_out_of_it(account: Account, tmp_path: Path) -> None:
    (account.root / ".gsd").symlink_to(tmp_path)
    with pytest.raises(Exception, match="leads out of"):
        set_up(account)
    assert not (account.around.home / ".gsd").exists()


def test_git_never_sees_it_even_where_the_skill_is_shared(tmp_path: Path) -> None:
    account = Account.in_folder(tmp_path)
    account.root.rmdir()
    make_repository(account.root)
    gsd_tree(account.root, CORE, version="1.14.0")
    git(account.root, "add", "-A")
    git(account.root, "commit", "-qm", "GSD")
    set_up(account, shared=True)
    assert b".gsd" not in git(account.root, "status", "--porcelain", "-uall")


def test_it_is_repaired_comes_with_a_move_to_gsd_core_and_goes_with_one_from_it(account: Account) -> None:
    set_up(account)
    file = account.root / ".gsd" / "capabilities" / "tandem" / "capability.json"
    file.unlink()
    assert state_of(GSD, account.around).state == "damaged"
    repair(GSD, account.around)
    assert file.is_file()
    version = account.root / ".claude" / CORE / "VERSION"
    version.unlink()
    gsd_tree(account.root, CLASSIC)
    repair(GSD, account.around)
    assert not (account.root / ".gsd").exists()
    put(version, "1.14.0")
    repair(GSD, account.around)
    assert file.is_file()


@pytest.mark.parametrize("version", ["1.13.9", "0.99.0", "of"])
def test_an_older_gsd_core_gets_none(account: Account, version: str) -> None:
    put(account.root / ".claude" / CORE / "VERSION", version)
    set_up(account)
    assert not (account.root / ".gsd").exists()


def test_it_is_a_projects_and_not_the_accounts(account: Account) -> None:
    gsd_tree(account.around.home, CORE, version="1.14.0")
    notes = set_up(account, Scope.USER)
    assert not (account.around.home / ".gsd" / "capabilities").exists()
    assert any("run tandem install gsd in it" in note for note in notes)


def plugin(account: Account, text: str | None = None, **record: Any) -> Path:
    place = account.around.home / ".claude" / "plugins" / "cache" / "gsd-core" / "gsd-core" / "1.14.0"
    put(place / CORE / "bin" / "lib" / "capability-consent.cjs", "// consent\n")
    plugins = {"gsd-core@gsd-core": [{"scope": "user", "installPath": str(place), "version": "1.14.0"} | record]}
    listed = text if text is not None else json.dumps({"version": 2, "plugins": plugins})
    put(account.around.home / ".claude" / "plugins" / "installed_plugins.json", listed)
    return place


def test_gsd_core_is_found_where_it_is_a_plugin_of_claude_code(tmp_path: Path) -> None:
    account = Account.in_folder(tmp_path)
    place = plugin(account)
    config = gsd_project(account.root)
    before = account.seen()
    (found,) = installed_gsd(account.around)
    assert (found.version, found.runtime, found.scope, found.folder) == ("1.14.0", "claude", Scope.USER, place)
    assert str(found) == f"@opengsd/gsd-core 1.14.0 as a plugin of Claude Code in {place}"
    set_up(account)
    assert "tandem-review" in config.read_text()
    assert manifest(account)["id"] == "tandem"
    carry_out(Planner(account.around).uninstall(GSD, Scope.PROJECT))
    assert account.seen() == before


def test_a_plugin_of_another_project_is_not_of_this_one(tmp_path: Path) -> None:
    account = Account.in_folder(tmp_path)
    plugin(account, projectPath=str(tmp_path / "elsewhere"), scope="project")
    assert installed_gsd(account.around) == ()
    plugin(account, projectPath=str(account.root), scope="project")
    assert [one.scope for one in installed_gsd(account.around)] == [Scope.PROJECT]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plugins": []}', '{"plugins": {"gsd-core@x": [1]}}'])
def test_a_list_of_plugins_that_cannot_be_read_has_no_gsd(tmp_path: Path, text: str) -> None:
    account = Account.in_folder(tmp_path)
    plugin(account, text)
    assert installed_gsd(account.around) == ()
