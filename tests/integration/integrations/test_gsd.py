"""The overlay for GSD: beside GSD's files, never in them, whole after GSD's updates, and gone without a trace."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations.clients import client_named, setup
from gsd_review_broker.integrations.clients.gsd import AGENTS, installed_gsd
from gsd_review_broker.integrations.clients.setup import Choice, Scope
from gsd_review_broker.integrations.detection import state_of
from gsd_review_broker.integrations.planning import ClientPlan, Planner, carry_out, repair, without_ours
from tests.support.accounts import CLAUDE, Account, put
from tests.support.gsd import CLASSIC, CONFIG, CORE, gsd_project, gsd_tree
from tests.support.processes import git, make_repository

GSD = client_named("gsd")
LOCAL = ".claude/skills/tandem-review"
LINES = [(CLASSIC, "get-shit-done-cc", "1.42.3"), (CORE, "@opengsd/gsd-core", "1.14.0")]


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account.in_folder(tmp_path)


def put_in(account: Account, scope: Scope = Scope.PROJECT, **more: Any) -> ClientPlan:
    dry_run = more.pop("dry_run", False)
    plan = Planner(account.around).install(GSD, Choice(url=None, scope=scope, **more))
    return plan if dry_run else carry_out(plan)


def skills(config: Path) -> dict[str, list[str]]:
    return json.loads(config.read_text()).get("agent_skills", {})


@pytest.mark.parametrize("runtime", ["claude", "codex"])
@pytest.mark.parametrize(("folder", "line", "version"), LINES)
@pytest.mark.parametrize("scope", Scope)
def test_it_is_put_beside_gsd_and_taken_back_to_the_byte(
    account: Account, scope: Scope, folder: str, line: str, version: str, runtime: str
) -> None:
    base = account.root if scope is Scope.PROJECT else account.around.home
    own = gsd_tree(base, folder, runtime=runtime, version=version)
    gsd_project(account.root)
    (found,) = installed_gsd(account.around)
    assert (found.line, found.version, found.runtime, found.scope) == (line, version, runtime, scope)
    before = account.seen()

    planned = put_in(account, scope, dry_run=True)
    assert planned.is_change
    assert (account.seen(), state_of(GSD, account.around).state) == (before, "absent")
    put_in(account, scope)
    assert state_of(GSD, account.around).state == "ok"
    installed = account.seen()
    changed = {name for name, state in before.items() if installed[name] != state}
    assert all(
        Path(name).name in {"settings.local.json", "settings.json", "hooks.json", "config.json"} for name in changed
    )
    assert (own / "skills" / "tandem-review" / "SKILL.md").read_text() == setup.review_skill(runtime).text

    assert not put_in(account, scope).is_change
    assert account.seen() == installed

    carry_out(Planner(account.around).uninstall(GSD, scope))
    assert account.seen() == before
    assert (account.receipts(), state_of(GSD, account.around).state) == ([], "absent")


def test_every_agent_of_gsd_that_reviews_concern_reads_the_skill(account: Account) -> None:
    gsd_tree(account.root)
    config = gsd_project(account.root, '{"agent_skills": {"gsd-executor": ["mine"], "gsd-ui-auditor": ["mine"]}}')
    put_in(account)
    assert skills(config) == {
        **{name: [LOCAL] for name in AGENTS},
        "gsd-executor": ["mine", LOCAL],
        "gsd-ui-auditor": ["mine"],
    }


def test_two_runtimes_have_the_skill_and_gsd_reads_one_copy(account: Account) -> None:
    gsd_tree(account.root)
    gsd_tree(account.root, CORE, runtime="codex")
    config = gsd_project(account.root)
    put_in(account)
    assert (account.root / ".codex" / "skills" / "tandem-review" / "SKILL.md").is_file()
    assert skills(config)["gsd-executor"] == [LOCAL]
    # The project says which one GSD runs in; what was there for the other is replaced.
    config.write_text(config.read_text().replace('"mode"', '"runtime": "codex",\n  "mode"'))
    put_in(account)
    assert skills(config)["gsd-executor"] == [".codex/skills/tandem-review"]


def test_a_runtime_can_be_chosen_and_stays_chosen(account: Account) -> None:
    gsd_tree(account.root)
    gsd_tree(account.root, runtime="codex")
    gsd_project(account.root)
    put_in(account, runtimes=("codex",))
    assert not (account.root / ".claude" / "skills").exists()
    repair(GSD, account.around)
    assert not (account.root / ".claude" / "skills").exists()


def test_without_gsd_nothing_is_written_unless_a_runtime_is_named(account: Account) -> None:
    before = account.seen()
    with pytest.raises(BrokerError) as refused:
        put_in(account)
    assert (refused.value.code, account.seen()) == (Code.NOT_FOUND, before)
    put_in(account, runtimes=("claude",))
    assert (account.root / LOCAL / "SKILL.md").is_file()
    carry_out(Planner(account.around).uninstall(GSD, Scope.PROJECT))
    assert account.seen() == before


def test_gsds_configuration_is_never_made_for_it(account: Account) -> None:
    """GSD keeps a configuration that it finds, so that the answers to its own questions would be lost."""
    gsd_tree(account.root)
    outcome = put_in(account)
    config = account.root / ".planning" / "config.json"
    assert not config.exists()
    assert any("no project here yet" in note for note in outcome.notes)
    # GSD makes it, and the next session begins.
    gsd_project(account.root)
    repair(GSD, account.around)
    assert skills(config)["gsd-planner"] == [LOCAL]
    carry_out(Planner(account.around).uninstall(GSD, Scope.PROJECT))
    assert config.read_text() == CONFIG


@pytest.mark.parametrize("value", ['"mine"', "null", "{}"])
def test_skills_that_are_not_a_list_are_left_alone_and_named(account: Account, value: str) -> None:
    gsd_tree(account.root)
    config = gsd_project(account.root, f'{{"agent_skills": {{"gsd-executor": {value}}}}}')
    outcome = put_in(account)
    assert skills(config)["gsd-executor"] == json.loads(value)
    assert skills(config)["gsd-verifier"] == [LOCAL]
    assert any("agent_skills.gsd-executor is not a list" in note for note in outcome.notes)


@pytest.mark.parametrize("content", ["{", "[]", '{"agent_skills": {}, "agent_skills": {}}'])
def test_a_configuration_that_cannot_be_used_refuses_the_installation(account: Account, content: str) -> None:
    gsd_tree(account.root)
    gsd_project(account.root, content)
    before = account.seen()
    with pytest.raises(BrokerError) as refused:
        put_in(account)
    assert (refused.value.code, "Nothing was changed" in refused.value.hint) == (Code.CONFLICT, True)
    assert account.seen() == before


def test_what_gsd_or_anybody_removed_is_put_back_at_the_start_of_a_session(account: Account) -> None:
    own = gsd_tree(account.root)
    config = gsd_project(account.root)
    put_in(account, tandem="/opt/tandem")
    installed = account.seen()

    shutil.rmtree(own / "skills")
    config.write_text(json.dumps({**json.loads(config.read_text()), "agent_skills": {}}, indent=2) + "\n")
    (own / "settings.local.json").unlink()
    state = state_of(GSD, account.around)
    assert (state.state, len(state.problems)) == ("damaged", 1 + len(AGENTS) + 1)
    repair(GSD, account.around)
    assert state_of(GSD, account.around).state == "ok"
    assert "/opt/tandem gsd session-start" in (own / "settings.local.json").read_text()
    assert account.seen().keys() == installed.keys()
    carry_out(Planner(account.around).uninstall(GSD, Scope.PROJECT))
    assert json.loads(config.read_text()) == {**json.loads(CONFIG), "agent_skills": {}}


def test_a_skill_that_the_user_changed_is_kept_and_reported(account: Account) -> None:
    gsd_tree(account.root)
    put_in(account)
    skill = put(account.root / LOCAL / "SKILL.md", "mine")
    repair(GSD, account.around)
    assert skill.read_text() == "mine"
    (problem,) = state_of(GSD, account.around).problems
    assert problem.startswith(f"{skill} was changed")
    carry_out(Planner(account.around).uninstall(GSD, Scope.PROJECT))
    assert skill.read_text() == "mine"


def test_a_new_text_of_ours_replaces_the_old_one(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    gsd_tree(account.root)
    put_in(account)
    newer = replace(setup.review_skill("claude"), text="newer")
    monkeypatch.setattr(setup, "review_skill", lambda runtime: newer)
    repair(GSD, account.around)
    assert (account.root / LOCAL / "SKILL.md").read_text() == "newer"


def test_it_is_taken_back_after_gsd_is_gone(account: Account) -> None:
    gsd_tree(account.root)
    put_in(account)
    shutil.rmtree(account.root / ".claude" / CLASSIC)
    repair(GSD, account.around)  # GSD's absence is not a fault of ours.
    carry_out(Planner(account.around).uninstall(GSD, Scope.PROJECT))
    assert not (account.root / ".claude" / "skills").exists()


def test_new_projects_of_the_account_get_the_skill_by_gsds_own_defaults(account: Account) -> None:
    gsd_tree(account.around.home)
    defaults = account.around.home / ".gsd" / "defaults.json"
    put_in(account, Scope.USER)
    assert skills(defaults) == {name: ["global:tandem-review"] for name in AGENTS}


@pytest.mark.parametrize(("runtime", "knows_global"), [("claude", False), ("codex", True)])
def test_a_gsd_that_cannot_read_the_accounts_skills_is_not_given_one(
    account: Account, runtime: str, knows_global: bool
) -> None:
    gsd_tree(account.around.home, runtime=runtime, version="1.32.0", knows_global=knows_global)
    outcome = put_in(account, Scope.USER)
    assert not (account.around.home / ".gsd").exists()
    assert any("reads skills of a project only" in note for note in outcome.notes)


def test_the_hook_is_personal_unless_the_files_are_shared(tmp_path: Path) -> None:
    account = Account.in_folder(tmp_path)
    account.root.rmdir()
    make_repository(account.root)
    gsd_tree(account.root, CORE)
    git(account.root, "add", "-A")
    git(account.root, "commit", "-qm", "GSD")
    put_in(account)
    # Ours is kept out of git; the file that GSD made shows our entry.
    assert git(account.root, "status", "--porcelain") == b" M .claude/settings.local.json\n"
    carry_out(Planner(account.around).uninstall(GSD, Scope.PROJECT))
    assert git(account.root, "status", "--porcelain") == b""
    put_in(account, shared=True)
    shown = git(account.root, "status", "--porcelain", "-uall").decode().split()
    assert shown == ["??", ".claude/settings.json", "??", ".claude/skills/tandem-review/SKILL.md"]


def test_what_a_move_to_the_other_line_leaves_behind_is_not_gsd(account: Account) -> None:
    folder = gsd_tree(account.root)
    (folder / CLASSIC / "VERSION").unlink()
    assert installed_gsd(account.around) == ()


@pytest.mark.parametrize("version", ["", "\x1b[31m", "x" * 99])
def test_a_version_that_cannot_be_read_is_not_shown(account: Account, version: str) -> None:
    gsd_tree(account.root, version=version)
    (found,) = installed_gsd(account.around)
    assert str(found).isprintable()
    assert len(found.version) <= 40


@pytest.mark.parametrize("runtime", ["claude", "codex"])
def test_the_skill_costs_less_than_4000_bytes_and_leaves_no_gap(runtime: str) -> None:
    text = setup.review_skill(runtime).text
    assert len(text.encode()) < 4000
    assert "{" not in text
    assert text.startswith("---\nname: tandem-review\ndescription: ")


def test_the_skills_of_both_runtimes_differ_in_one_sentence() -> None:
    one, other = (setup.review_skill(runtime).text.splitlines() for runtime in ("claude", "codex"))
    assert len([pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]) == 1


@pytest.mark.parametrize("first", ["claude", "gsd"])
@pytest.mark.parametrize("leaves_first", ["claude", "gsd"])
def test_a_file_that_two_of_ours_share_is_taken_back_in_any_order(
    account: Account, first: str, leaves_first: str
) -> None:
    """Claude Code's trust and the overlay's hook are in one file, which neither of them found there."""
    gsd_tree(account.root)
    gsd_project(account.root)
    before = account.seen()
    steps = [lambda: account.install(CLAUDE, trust=True), lambda: put_in(account)]
    for step in steps if first == "claude" else reversed(steps):
        step()
    clients = [CLAUDE, GSD] if leaves_first == "claude" else [GSD, CLAUDE]
    for client in clients:
        carry_out(Planner(account.around).uninstall(client, Scope.PROJECT))
    assert account.seen() == before


def test_a_change_that_is_proposed_has_the_entries_of_none_of_ours(account: Account) -> None:
    gsd_tree(account.root)
    settings = account.root / ".claude" / "settings.json"
    before = settings.read_bytes()
    account.install(CLAUDE)
    put_in(account, shared=True)
    assert settings.read_text().count("SessionStart") == 1
    assert settings.read_text().count("tandem") == 2
    assert without_ours(settings, account.around) == before
