"""`tandem setup` as a person runs it on the first day: one command, and everything can be taken back."""

import json
import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.accounts import put
from tests.support.processes import git, make_repository
from tests.support.tandem import PROGRAM, Tandem
from tests.support.terminal import Terminal


@pytest.fixture
def tandem(tmp_path: Path, own_home: Path) -> Generator[Tandem]:
    """A project on a machine with Claude Code, Codex and our own program."""
    programs = tmp_path / "programs"
    for name in ("claude", "codex"):
        put(programs / name, "#!/bin/sh\necho 1.0\n", mode=0o755)
    (programs / "tandem").symlink_to(PROGRAM)
    system = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != Path(PROGRAM).parent]
    tandem = Tandem(make_repository(tmp_path / "repository"), own_home, PATH=os.pathsep.join([str(programs), *system]))
    yield tandem
    tandem.run("down")


def seen(folder: Path) -> dict[str, bytes | None]:
    """Everything in the project but the history, which stays."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not path.is_relative_to(folder / ".planning")
    }


def test_one_command_sets_everything_up_and_one_takes_it_back(tandem: Tandem) -> None:
    tandem("up")
    before = seen(tandem.folder)

    # It shows everything, and writes nothing without a yes.
    planned = tandem("setup")
    assert (planned["dry_run"], planned["changed"]) == (True, True)
    assert (planned["proposer"], planned["reviewer"]) == ("claude", "codex")
    refused = tandem.run("setup")
    assert (refused.code, refused.out.splitlines()[-1]) == (2, "Nothing was written: run it again with --yes.")
    assert tandem.run("setup", "--dry-run").code == 0
    assert seen(tandem.folder) == before

    done = tandem.run("setup", "--yes", "--trust")
    assert (done.code, done.err) == (0, "")
    assert "Claude Code proposes, Codex reviews." in done.out
    assert "      /tandem:propose\n" in done.out
    assert "      Review what waits for a verdict, with the skill tandem-reviewing.\n" in done.out
    assert git(tandem.folder, "status", "--porcelain") == b""
    checks = {check["name"]: check for check in tandem("doctor")["checks"]}
    assert not [check for check in checks.values() if check["state"] == "red"]
    assert {name: checks[name]["state"] for name in ("broker", "claude", "codex", "gate")} == dict.fromkeys(
        ("broker", "claude", "codex", "gate"), "green"
    )

    # A second run changes nothing.
    installed = seen(tandem.folder)
    again = tandem("setup", "--yes")
    assert (again["changed"], again["broker"]["started"]) == (False, False)
    assert seen(tandem.folder) == installed

    assert tandem("uninstall", "--all", "--dry-run")["gate"] is True
    assert "The gate: would be taken back\n" in tandem.run("uninstall", "--all", "--dry-run").out
    assert seen(tandem.folder) == installed
    undone = tandem.run("uninstall", "--all")
    assert (undone.code, "The gate: taken back" in undone.out) == (0, True)
    assert seen(tandem.folder) == before


def test_the_other_direction_and_the_pool_are_taken_back_too(tandem: Tandem) -> None:
    settings = put(tandem.folder / ".planning" / "review-broker.json", '{"max_rounds": 7}')
    tandem("up")
    before = seen(tandem.folder)
    done = tandem("setup", "--yes", "--proposer", "codex", "--pool", "claude", "--no-gate")
    assert [(step["client"], step["role"]) for step in done["next"]] == [("codex", "proposer"), ("claude", "reviewer")]
    assert json.loads(settings.read_text()) == {
        "max_rounds": 7,
        "reviewer_pool": {"enabled": True, "agent": "claude"},
    }
    # What is set up stays: a plain run does not swap the two.
    assert (tandem("setup")["proposer"], tandem("setup")["reviewer"]) == ("codex", "claude")
    # With another pair, whoever leaves it is disconnected.
    changed = tandem("setup", "--yes", "--proposer", "codex", "--reviewer", "you", "--no-gate")
    assert (changed["leaving"], changed["reviewer"]) == (["claude"], "you")
    assert not [path for path in (".mcp.json", ".claude") if (tandem.folder / path).exists()]
    assert (tandem.folder / ".codex" / "config.toml").exists()
    again = tandem("setup", "--no-gate")
    assert (again["changed"], again["leaving"], again["reviewer"]) == (False, [], "you")
    assert tandem("uninstall", "--all")["gate"] is False
    assert settings.read_text() == '{"max_rounds": 7}'
    assert seen(tandem.folder) == before


def test_the_pool_is_set_up_and_taken_back_from_a_linked_worktree(tandem: Tandem, tmp_path: Path) -> None:
    """One broker serves a repository with all its worktrees, so the pool's switch is in the main one. A client reads
    its entry in the folder that it is started in."""
    git(tandem.folder, "worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Tandem(tmp_path / "linked", tandem.home, PATH=tandem.environment["PATH"])
    assert linked("up")["serves"] == str(tandem.folder)
    before = seen(tandem.folder), seen(linked.folder)
    done = linked("setup", "--yes", "--pool", "codex", "--reviewer", "you", "--no-gate")
    assert {check["name"]: check["state"] for check in done["checks"]}["claude"] == "green"
    settings = tandem.folder / ".planning" / "review-broker.json"
    assert json.loads(settings.read_text()) == {"reviewer_pool": {"enabled": True, "agent": "codex"}}
    assert not (linked.folder / ".planning").exists()
    assert (linked.folder / ".mcp.json").exists()
    assert [git(one.folder, "status", "--porcelain") for one in (tandem, linked)] == [b"", b""]
    assert linked("setup", "--pool", "codex", "--no-gate")["changed"] is False
    linked("uninstall", "--all")
    assert not settings.exists()
    assert (seen(tandem.folder), seen(linked.folder)) == before


def test_what_the_pools_switch_writes_is_not_part_of_a_change(tandem: Tandem) -> None:
    tandem("up")
    assert tandem("pool", "enable", "--agent", "claude")["changed"] is True
    assert git(tandem.folder, "status", "--porcelain") == b""
    put(tandem.folder / "new.txt", "new\n")
    assert [file["path"] for file in tandem("propose", "-m", "one file")["affected_files"]] == ["new.txt"]


def test_a_person_is_asked_and_may_choose_or_decline(tandem: Tandem) -> None:
    before = seen(tandem.folder)

    def asked(*answers: tuple[str, str]) -> tuple[int, str]:
        command = [PROGRAM, "setup"]
        size = (100, 60)
        with Terminal(command, folder=tandem.folder, environment=tandem.environment, size=size) as terminal:
            for question, answer in answers:
                terminal.until(lambda question=question: question in terminal.everything)
                terminal.type(answer)
            return terminal.end(), terminal.everything

    code, text = asked(("Which one? [1]", "7\n"), ("Type a number from 1 to 4.", "\n"), ("[Y/n]", "n\n"))
    assert (code, text.splitlines()[-1]) == (0, "Nothing was written.")
    assert seen(tandem.folder) == before
    code, text = asked(("Which one? [1]", "2\n"), ("[Y/n]", "\n"))
    assert (code, "Codex proposes, Claude Code reviews." in text) == (0, True)
    assert (tandem("setup")["changed"], tandem("setup")["proposer"]) == (False, "codex")


def test_wrong_usage_exits_with_2_and_writes_nothing(tandem: Tandem, tmp_path: Path) -> None:
    before = seen(tandem.folder)
    for words in (
        ("setup", "--proposer", "claude", "--reviewer", "claude"),
        ("setup", "--proposer", "emacs"),
        ("uninstall", "--all", "codex"),
        ("uninstall", "--all", "--scope", "user"),
        ("uninstall",),
    ):
        assert tandem.run(*words).code == 2, words
    assert seen(tandem.folder) == before
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    outside = Tandem(nowhere, tandem.home).run("setup", "--yes")
    assert (outside.code, "not in a git repository" in outside.err) == (2, True)
    # `tandem setup` has no --scope.
    assert (outside.err.count("git init"), outside.err.count("--scope")) == (1, 0)


def test_without_an_agent_the_next_step_is_to_install_one(tmp_path: Path, own_home: Path) -> None:
    """The PATH has git and our program, and nothing else."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, program in (("git", shutil.which("git")), ("tandem", PROGRAM)):
        (programs / name).symlink_to(program or "")
    alone = Tandem(make_repository(tmp_path / "repository"), own_home, PATH=str(programs))
    try:
        said = alone.run("setup", "--yes", "--no-gate")
    finally:
        alone.run("down")
    following = said.out.partition("What to type next\n")[2].splitlines()
    assert [line.split()[0] for line in following] == ["Install", "The"], said
    assert "The dashboard is at http://127.0.0.1:" in following[1]
