"""Identifies a repository: its root commit, which all clones share, and its git folder on this machine."""

import os
from pathlib import Path

from gsd_review_broker.git.program import run_git, text_of


def git_folder(folder: str | Path) -> str | None:
    """The one that all worktrees share; None outside any repository."""
    answer = run_git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return os.path.realpath(text_of(answer.output)) if answer.code == 0 else None


def root_commit(folder: str | Path, revision: str = "HEAD") -> str | None:
    """The first commit, by first parents; None before it, and in a shallow clone, which does not have it."""
    answer = run_git(
        folder, "rev-list", "--max-parents=0", "--first-parent", "--max-count=1", "--end-of-options", revision, "--"
    )
    commit = text_of(answer.output)
    if answer.code != 0 or not commit:
        return None
    shallow = run_git(folder, "rev-parse", "--is-shallow-repository")
    return None if text_of(shallow.output) == "true" else commit
