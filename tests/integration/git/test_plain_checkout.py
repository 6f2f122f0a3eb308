"""Where a checkout's root is found without git, it is the root that git names; everywhere else git is asked."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gsd_review_broker.git.discovery import find_root, plain_root
from tests.support.processes import git, make_repository


@pytest.mark.parametrize("folder", [".", "sub", "sub/deep"])
def test_an_ordinary_checkout_needs_no_git(repository: Path, folder: str) -> None:
    (repository / "sub/deep").mkdir(parents=True)
    assert plain_root(repository / folder) == find_root(repository / folder) == repository


def test_a_link_into_a_checkout_leads_to_its_real_root(repository: Path, tmp_path: Path) -> None:
    (repository / "sub").mkdir()
    (tmp_path / "link").symlink_to(repository / "sub")
    assert plain_root(tmp_path / "link") == find_root(tmp_path / "link") == repository


def test_outside_any_repository_git_is_asked(tmp_path: Path) -> None:
    assert plain_root(tmp_path) is None


def set_config(*words: str) -> Callable[[Path], Path]:
    def change(repository: Path) -> Path:
        git(repository, "config", *words)
        return repository

    return change


def write_config(text: str) -> Callable[[Path], Path]:
    def change(repository: Path) -> Path:
        with (repository / ".git/config").open("a") as file:
            file.write(text)
        return repository

    return change


def in_a_worktree(repository: Path) -> Path:
    git(repository, "worktree", "add", "-q", "../linked")
    return repository.with_name("linked")


def in_a_submodule(repository: Path) -> Path:
    inner = make_repository(repository.with_name("inner"))
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "part")
    return repository / "part"


def in_a_bare_repository(repository: Path) -> Path:
    git(repository, "init", "-q", "--bare", "bare")
    return repository / "bare"


def with_a_linked_git_folder(repository: Path) -> Path:
    (repository / ".git").rename(repository.with_name("elsewhere"))
    (repository / ".git").symlink_to(repository.with_name("elsewhere"))
    return repository


def without_head(repository: Path) -> Path:
    (repository / ".git/HEAD").unlink()
    return repository


def with_a_linked_config(repository: Path) -> Path:
    (repository / ".git/config").rename(repository / ".git/other")
    (repository / ".git/config").symlink_to("other")
    return repository


ODD: dict[str, Callable[[Path], Path]] = {
    "core.worktree": set_config("core.worktree", "/"),
    "core.worktree in capitals": write_config("[CORE]\n\tWORKTREE = /\n"),
    "core.worktree on the section's line": write_config("[core] worktree = /\n"),
    "an included file": set_config("include.path", "other"),
    "an included file, if": write_config('[includeIf "gitdir:/"]\n\tpath = other\n'),
    "core.bare": set_config("core.bare", "true"),
    "core.bare without a value": write_config("[core]\n\tbare\n"),
    "worktree configuration": set_config("extensions.worktreeConfig", "true"),
    "a linked worktree": in_a_worktree,
    "a submodule": in_a_submodule,
    "a bare repository": in_a_bare_repository,
    "inside the git folder": lambda repository: repository / ".git",
    "deep inside the git folder": lambda repository: repository / ".git/refs/heads",
    "a linked git folder": with_a_linked_git_folder,
    "no HEAD": without_head,
    "a linked configuration": with_a_linked_config,
}


@pytest.mark.parametrize("name", ODD)
def test_everything_else_is_left_to_git(repository: Path, name: str) -> None:
    assert plain_root(ODD[name](repository)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("name", [".", ".git"])
def test_a_checkout_of_another_owner_is_left_to_git(repository: Path, name: str) -> None:
    os.chown(repository / name, 12345, 12345)
    assert plain_root(repository) is None
