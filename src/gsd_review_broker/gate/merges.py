"""Merges that are git's own: the tree that git makes of the two parents without a conflict, and nothing else."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from gsd_review_broker.domain.gate.request import parse_log
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.program import run_git, text_of
from gsd_review_broker.git.scratch import IsolatedRepository, make_isolated_repository

_SHA1_LENGTH = 40
_ALTERNATES = "GIT_ALTERNATE_OBJECT_DIRECTORIES"


def clean(log: bytes, environment: dict[str, str]) -> list[str]:
    """Of the merges in the output of `git log`, those whose tree equals git's own clean merge. `environment` names the
    repository and its objects."""
    merges = [ids for ids in _ids(log) if len(ids) == 4]  # noqa: PLR2004 - commit, tree and two parents
    if not merges:
        return []
    with tempfile.TemporaryDirectory(prefix="tandem-") as scratch:
        apart = _empty_repository(Path(scratch), environment, "sha256" if len(merges[0][0]) > _SHA1_LENGTH else "sha1")
        return [commit for commit, tree, ours, theirs in merges if _merged(apart, ours, theirs) == tree]


def _ids(log: bytes) -> list[list[str]]:
    return [[commit.id, commit.tree, *commit.parents] for commit in parse_log(log)]


def _empty_repository(scratch: Path, known: dict[str, str], object_format: str) -> IsolatedRepository:
    """Beside the real one, with its objects and none of its configuration: that could name programs that merge."""
    answer = run_git(Path.cwd(), "rev-parse", "--path-format=absolute", "--git-path", "objects", environment=known)
    if not answer.is_good:
        raise BrokerError(Code.UNAVAILABLE, f"git rev-parse: {answer.why}", "Look at the repository.")
    apart = make_isolated_repository(scratch, objects=text_of(answer.output), object_format=object_format)
    listed = (apart.environment[_ALTERNATES], known.get(_ALTERNATES, ""))
    return replace(apart, environment=apart.environment | {_ALTERNATES: os.pathsep.join(filter(None, listed))})


def _merged(apart: IsolatedRepository, ours: str, theirs: str) -> str | None:
    merge = ("merge-tree", "--write-tree", "--no-messages", ours, theirs)
    answer = run_git(apart.folder, *merge, environment=apart.environment)
    return text_of(answer.output).strip() if answer.is_good else None
