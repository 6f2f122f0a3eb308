"""Installing the gate beside other hooks, taking it away, and working without a broker."""

import shutil
from pathlib import Path

import pytest

from tests.support.gated import Gated, gated
from tests.support.processes import git as plain_git
from tests.support.processes import make_repository
from tests.support.tandem import Tandem


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in (folder / ".git").rglob("*") if path.is_file() and path.name != "index"]
    return {str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes()) for path in files}


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def tandem(tmp_path: Path, own_home: Path) -> Tandem:
    return Tandem(make_repository(tmp_path / "repository"), own_home)


@pytest.mark.parametrize("set_up", ["nothing", "a hook", "husky", "a folder of the user"])
def test_uninstall_restores_every_byte(tandem: Tandem, tmp_path: Path, set_up: str) -> None:
    folder = tandem.folder
    if set_up == "a hook":
        script(folder / ".git" / "hooks" / "reference-transaction", "cat >> ../seen")
    elif set_up == "husky":
        script(folder / ".husky" / "_" / "pre-commit", "exit 0")
        plain_git(folder, "config", "core.hooksPath", ".husky/_")
    elif set_up == "a folder of the user":
        (tandem.home / ".gitconfig").write_text(f"[core]\n\thooksPath = {tmp_path / 'hooks'}\n")
        script(tmp_path / "hooks" / "pre-commit", "exit 0")
    before = everything(folder)
    assert tandem("gate", "install")["changed"] is True
    assert tandem("gate", "install")["changed"] is False
    assert tandem("gate", "status")["state"] == "ok"
    assert everything(folder) != before
    assert tandem("gate", "uninstall")["changed"] is True
    assert everything(folder) == before
    assert tandem("gate", "uninstall")["changed"] is False


def test_a_hook_that_was_there_runs_first_and_may_still_refuse(tmp_path: Path) -> None:
    with gated(tmp_path) as here:
        here.tandem("gate", "uninstall")
        seen = tmp_path / "seen"
        script(here.folder / ".git" / "hooks" / "reference-transaction", f'echo "$1" >> {seen}; cat >> {seen}')
        here.tandem("gate", "install")
        here.stage(hello_txt="x\n")
        assert here.git("commit", "-m", "x").code != 0
        assert "refs/heads/main" in seen.read_text()
        here.approve()
        here.must("commit", "-m", "x")
        script(here.folder / ".git" / "hooks" / "reference-transaction.before-tandem", "exit 1")
        assert here.git("commit", "--allow-empty", "-m", "x").code != 0


def test_the_hooks_of_a_hooks_path_still_run_and_the_gate_with_them(tmp_path: Path) -> None:
    with gated(tmp_path) as here:
        here.tandem("gate", "uninstall")
        script(here.folder / ".husky" / "_" / "pre-commit", f"echo ran > {tmp_path / 'ran'}")
        (here.folder / ".git" / "info" / "exclude").write_text("/.planning/\n/.husky/\n")
        here.must("config", "core.hooksPath", ".husky/_")
        here.tandem("gate", "install")
        here.stage(hello_txt="x\n")
        said = here.git("commit", "-m", "x")
        assert said.code != 0
        assert "hello.txt" in said.err
        assert (tmp_path / "ran").read_text() == "ran\n"
        here.must("config", "core.hooksPath", ".husky/_")
        assert here.tandem.run("gate", "status", "--json").json["state"] == "damaged"


def stopped(here: Gated) -> None:
    here.process.stop()
    here.process.runtime_file.unlink(missing_ok=True)


def test_without_a_broker_its_database_answers_and_nothing_else_passes(tmp_path: Path) -> None:
    with gated(tmp_path) as here:
        here.stage(hello_txt="approved\n")
        here.approve()
        stopped(here)
        here.must("commit", "-m", "approved")
        assert here.tandem.run("gate", "check", "HEAD~1..HEAD").code == 0
        here.stage(hello_txt="not approved\n")
        said = here.git("commit", "-m", "x")
        assert said.code != 0
        assert "no broker is running for this repository" in said.err.lower()
        for file in (here.folder / ".planning").glob("*.sqlite3*"):
            file.unlink()
        assert here.git("commit", "-m", "x").code != 0
        assert here.tandem.run("gate", "check", "HEAD~1..HEAD").code == 3


def test_a_database_that_came_with_the_repository_is_not_believed(tmp_path: Path) -> None:
    with gated(tmp_path) as here:
        here.stage(hello_txt="approved\n")
        here.approve()
        stopped(here)
        here.must("add", "-f", ".planning/codex_review_broker.sqlite3")
        here.must("reset", "-q", "hello.txt")
        said = here.git("commit", "-m", "a database")
        here.must("add", "hello.txt")
        said = here.git("commit", "-m", "x")
        assert said.code != 0
        assert "is tracked by git" in said.err


def test_in_mode_warn_a_commit_passes_with_a_warning_and_is_listed(tmp_path: Path) -> None:
    with gated(tmp_path, mode="warn") as here:
        here.stage(hello_txt="x\n")
        said = here.git("commit", "-m", "x")
        assert (said.code, "tandem gate: warning" in said.err) == (0, True)
        assert here.landed(here.head())["metadata"]["because"] is None
        status = here.tandem.run("gate", "status")
        assert status.code == 5
        assert status.out.splitlines()[-1].startswith("Next: tandem propose --range "), status


def test_a_configuration_that_cannot_be_read_blocks(tmp_path: Path) -> None:
    with gated(tmp_path, mode="warn") as here:
        file = here.folder / ".planning" / "review-broker.json"
        file.write_text("{")
        here.stage(hello_txt="x\n")
        said = here.git("commit", "-m", "x")
        assert said.code != 0
        assert "cannot be read, so it blocks" in said.err
        assert str(file) in said.err


def test_a_python_that_is_gone_blocks_with_a_reason(tmp_path: Path) -> None:
    with gated(tmp_path) as here:
        hook = here.folder / ".git" / "hooks" / "reference-transaction"
        text = hook.read_text().splitlines()
        line = next(number for number, content in enumerate(text) if content.startswith("python="))
        hook.write_text("\n".join([*text[:line], "python=/nowhere/python", *text[line + 1 :]]) + "\n")
        assert shutil.which("/nowhere/python") is None
        said = here.git("commit", "--allow-empty", "-m", "x")
        assert said.code != 0
        assert "is gone" in said.err
