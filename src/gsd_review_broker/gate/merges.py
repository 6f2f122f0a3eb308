"""Merges that are git's own: the tree that git makes of the two parents without a conflict, and nothing else."""

import os
import subprocess
import tempfile
from pathlib import Path

from gsd_review_broker.domain.gate.request import parse_log
from gsd_review_broker.gate import hook
from gsd_review_broker.git.program import alternate

_SHA1_LENGTH = 40


def clean(log: bytes) -> list[str]:
    """Of the merges in the output of `git log`, those whose tree equals git's own clean merge."""
    merges = [ids for ids in _ids(log) if len(ids) == 4]  # noqa: PLR2004 - commit, tree and two parents
    if not merges:
        return []
    with tempfile.TemporaryDirectory(prefix="tandem-") as scratch:
        environment = _empty_repository(Path(scratch), is_sha256=len(merges[0][0]) > _SHA1_LENGTH)
        return [commit for commit, tree, ours, theirs in merges if _merged(scratch, environment, ours, theirs) == tree]


def _ids(log: bytes) -> list[list[str]]:
    return [[commit.id, commit.tree, *commit.parents] for commit in parse_log(log)]


def _empty_repository(scratch: Path, *, is_sha256: bool) -> dict[str, str]:
    """Beside the real one, with its objects and none of its configuration: that could name programs that merge."""
    objects = subprocess.run(
        ["git", "rev-parse", "--path-format=absolute", "--git-path", "objects"],
        env=hook.environment(), capture_output=True, check=True,
    ).stdout  # fmt: skip
    folder = scratch / "git"
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    if is_sha256:
        config = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"
        (folder / "config").write_text(config)
    sources = [os.fsdecode(objects).removesuffix("\n")]
    sources += filter(None, os.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "").split(os.pathsep))
    return hook.environment() | {
        "GIT_DIR": str(folder),
        "GIT_COMMON_DIR": str(folder),
        "GIT_OBJECT_DIRECTORY": str(folder / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join([alternate(sources[0]), *sources[1:]]),
    }


def _merged(scratch: str, environment: dict[str, str], ours: str, theirs: str) -> str | None:
    done = subprocess.run(
        ["git", "merge-tree", "--write-tree", "--no-messages", ours, theirs],
        cwd=scratch, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else None
