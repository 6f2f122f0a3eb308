"""The hook's git and everybody else's have the same options and the same environment."""

import os
from pathlib import Path

import pytest

from gsd_review_broker.git import program
from gsd_review_broker.git.command import places, read_git


def test_the_hook_starts_git_as_everybody_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nenv | sort | grep -v "^PWD="\n')
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setattr(program, "_trusted", tuple)
    expected = program.run_git(Path.cwd(), "log", environment={"GIT_DIR": "x"}).output
    output = read_git(["log"], {"GIT_DIR": "x"})
    assert output == expected
    assert b"GIT_NO_REPLACE_OBJECTS=1\n" in output
    assert b"core.commitGraph=false\n" in output
    assert b"GIT_CONFIG_COUNT" not in output


def test_git_that_fails_gives_nothing(tmp_path: Path) -> None:
    assert read_git(["rev-parse", "--verify", "-q", "none"], {"GIT_DIR": str(tmp_path)}) is None


def test_only_what_names_the_objects_is_taken_from_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_QUARANTINE_PATH", "/there")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "evil")
    assert places() == {"GIT_QUARANTINE_PATH": "/there"}
