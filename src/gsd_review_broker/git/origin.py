"""Identifies a repository: its root commit, which all clones share, and its git folder on this machine."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from gsd_review_broker.git.program import run_git, text_of


def git_folder(folder: str | Path) -> str | None:
    """The one that all worktrees share; None outside any repository."""
    answer = run_git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return os.path.realpath(text_of(answer.output)) if answer.code == 0 else None


def root_commit(
    folder: str | Path, revision: str = "HEAD", *, environment: Mapping[str, str] | None = None
) -> str | None:
    """The first commit, by first parents; None before it, and in a shallow clone, which does not have it.

    Inside a hook, `environment` names the objects, which may be in quarantine."""
    words = ("rev-list", "--max-parents=0", "--first-parent", "--max-count=1", "--end-of-options", revision, "--")
    answer = run_git(folder, *words, environment=environment)
    commit = text_of(answer.output)
    if answer.code != 0 or not commit:
        return None
    shallow = run_git(folder, "rev-parse", "--is-shallow-repository", environment=environment)
    return None if text_of(shallow.output) == "true" else commit


_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^/@]*@)?(?P<host>[\w.-]+)(?::\d+)?/(?P<path>.+)|(?:[^/@:]+@)?(?P<site>[\w.-]+):(?P<rest>[^/].*))"
)
_PROJECT = re.compile(r"[\w@][\w./@+:-]{0,99}")


def project_of_remote(url: str) -> str | None:
    """`host/owner/name`, the same for each way to reach a remote; None for a folder, which clones do not share."""
    match = _REMOTE.fullmatch(url.strip())
    if match is None:
        return None
    host, path = (match["host"] or match["site"]).lower(), match["path"] or match["rest"]
    name = f"{host}/{path.strip('/').removesuffix('.git')}"
    return name if _PROJECT.fullmatch(name) else None
