"""The root of an ordinary checkout, found without starting git: three processes are more than half of a short command.

It answers only where git's own answer is certain: a folder `.git` of ours, with a configuration that moves nothing.
Everything else (a linked worktree, a submodule, another owner, a bare repository, an odd configuration) is left to git.
"""

import os
import stat
from pathlib import Path

from gsd_review_broker.files import UnfitFileError, read_regular

_LARGEST_CONFIG = 64 * 1024
# Settings that say where the work tree is, or read further files; a value may be written in many ways.
_MOVING = (b"worktree", b"include", b"bare")
_PLAIN_BARE = (b"bare = false", b"\tbare = false")


def plain_root(folder: Path) -> Path | None:
    """None if git has to be asked."""
    if not hasattr(os, "geteuid"):
        return None
    here = os.path.realpath(folder)
    try:
        device = os.lstat(here).st_dev
        while True:
            facts = os.lstat(here)
            if facts.st_dev != device or _looks_bare(here):
                return None
            if os.path.lexists(f"{here}/.git"):
                return Path(here) if _is_plain(here, facts) else None
            above = os.path.dirname(here)  # noqa: PTH120 - on every start of a command
            if above == here:
                return None
            here = above
    except (OSError, UnfitFileError):
        return None


def _looks_bare(folder: str) -> bool:
    """Then git takes the folder itself for a repository."""
    return os.path.exists(f"{folder}/HEAD") and os.path.exists(f"{folder}/objects")  # noqa: PTH110 - the folder is text


def _is_plain(root: str, facts: os.stat_result) -> bool:
    own = os.lstat(f"{root}/.git")
    if not stat.S_ISDIR(own.st_mode) or {own.st_uid, facts.st_uid} != {os.geteuid()}:
        return False
    if not all(stat.S_ISDIR(os.lstat(f"{root}/.git/{name}").st_mode) for name in ("objects", "refs")):
        return False
    if not stat.S_ISREG(os.lstat(f"{root}/.git/HEAD").st_mode) or os.path.lexists(f"{root}/.git/commondir"):
        return False
    return _moves_nothing(read_regular(Path(f"{root}/.git/config"), largest=_LARGEST_CONFIG))


def _moves_nothing(config: bytes) -> bool:
    lines = [line for line in config.lower().splitlines() if any(word in line for word in _MOVING)]
    return all(line in _PLAIN_BARE for line in lines)
