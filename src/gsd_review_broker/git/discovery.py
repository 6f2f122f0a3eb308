"""The repository that the broker is started in: its root, its identity, and the files that came with it.

`plain_root` finds the root of an ordinary checkout without git: three processes are more than half of a short command.
It answers only where git's own answer is certain. This module imports little, since every command needs it.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from gsd_review_broker.errors import StartError
from gsd_review_broker.files import UnfitFileError, read_regular
from gsd_review_broker.git.program import Answer, run_git, text_of


def find_root(folder: Path) -> Path | None:
    """Find the main work tree of the repository that a folder is in; None outside any, or without git.

    A linked worktree belongs to the same repository, and one broker serves them all."""
    own = _line(folder, "rev-parse", "--show-toplevel")
    if own is None:
        _refuse_distrusted(folder)
        return None
    _refuse_moved(folder, own)
    listed = _line(folder, "worktree", "list", "--porcelain")
    if listed is None:
        return _real(own)
    # The main work tree comes first; a bare repository has none, and of a submodule git names the git folder.
    first = listed.split("\n\n", 1)[0].split("\n")
    main = _real(first[0].removeprefix("worktree "))
    return main if "bare" not in first[1:] and (main / ".git").exists() else _real(own)


def _refuse_distrusted(folder: Path) -> None:
    """Refuse a repository that git does not read because another user owns it. That is not the same as none."""
    answer = _answer(folder, "rev-parse", "--show-toplevel")
    if answer is not None and "dubious ownership" in answer.complaint:
        raise StartError(
            f"git does not read the repository at {folder}, since another user owns it; "
            f"trust it with `git config --global --add safe.directory {folder}`, or start with --user."
        )


def _refuse_moved(folder: Path, top: str) -> None:
    """Refuse a root from which git does not find this repository: `core.worktree` may name any folder as the work
    tree, and nothing is written there."""
    own = _git_folder(folder)
    if own == os.path.join(top, ".git") or own == _git_folder(Path(top)):  # noqa: PTH118 - compared as text
        return
    raise StartError(
        f"the configuration of the repository at {folder} names {top} as its work tree, which does not belong "
        "to it; remove the setting with `git config --unset core.worktree`, or start with --user."
    )


def _git_folder(folder: Path) -> str | None:
    return _line(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")


def _real(name: str) -> Path:
    return Path(os.path.realpath(name))


def _line(folder: Path, *arguments: str) -> str | None:
    answer = _answer(folder, *arguments)
    return text_of(answer.output) or None if answer is not None and answer.code == 0 else None


def _answer(folder: Path, *arguments: str) -> Answer | None:
    """Ask git; None if it cannot be started, or takes too long."""
    from subprocess import TimeoutExpired  # noqa: PLC0415 - most commands never start git

    try:
        return run_git(folder, *arguments)
    except (OSError, TimeoutExpired):
        return None


def is_tracked(root: Path, file: Path) -> bool:
    return bool(tracked_among(root, [file]))


def tracked_among(root: Path, files: Sequence[Path]) -> list[Path]:
    """Find the files that came with the repository, or may have: git gives no answer about them, or answers for another
    repository (a submodule, a link)."""
    tops: dict[Path, str | None] = {}
    unclear = [file for file in files if not _is_below(root, file, tops)]
    rest = [file for file in files if file not in unclear]
    if not rest:
        return unclear
    entries = _index_entries(root, rest)
    if entries is None:
        return list(files)
    return [file for file in files if file in unclear or _names(root, file) & entries]


def _is_below(root: Path, file: Path, tops: dict[Path, str | None]) -> bool:
    """Say whether a file is where its name says, and in no repository below. git names each folder's top once."""
    if not file.is_relative_to(root) or _real(str(file)) != file:
        return False
    folder = next(parent for parent in file.parents if parent.is_dir())
    if folder not in tops:
        tops[folder] = _line(folder, "rev-parse", "--show-toplevel")
    top = tops[folder]
    return top is not None and _real(top) == root


def _index_entries(root: Path, files: Sequence[Path]) -> set[str] | None:
    """List the index entries under these names or above them, in any spelling; None if git gives no answer."""
    names = sorted({name for file in files for name in _names(root, file)})
    answer = _answer(root, "ls-files", "-z", "--", *(f":(top,icase,literal){name}" for name in names))
    if answer is None or not answer.is_good:
        return None
    return {os.fsdecode(entry).casefold() for entry in answer.output.split(b"\0") if entry}


def _names(root: Path, file: Path) -> set[str]:
    """Name the file and every folder above it: a folder's name in the index is a link or a submodule."""
    relative = file.relative_to(root)
    return {part.as_posix().casefold() for part in (relative, *relative.parents[:-1])}


def exclude_file(root: Path) -> Path | None:
    """Find the repository's own exclude file; None without a repository, and for a link, which may lead to any file."""
    # Not as an absolute path: git would follow the link itself.
    name = _line(root, "rev-parse", "--git-path", "info/exclude")
    return root / name if name and not (root / name).is_symlink() else None


def exclude_from_git(root: Path, pattern: str) -> None:
    """Keep our files out of `git status`, by the repository's own exclude file and not by its .gitignore."""
    path = exclude_file(root)
    if path is None:
        return
    try:
        present = path.read_text("utf-8", "surrogateescape") if path.exists() else ""
        if pattern in present.splitlines():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        separator = "" if not present or present.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{separator}{pattern}\n")
    except OSError:
        # A read-only repository: the files show up in `git status`; nothing else is lost.
        return


def git_folder(folder: str | Path) -> str | None:
    """Find the git folder that all worktrees share; None outside any repository."""
    answer = run_git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return os.path.realpath(text_of(answer.output)) if answer.code == 0 else None


def root_commit(
    folder: str | Path, revision: str = "HEAD", *, environment: Mapping[str, str] | None = None
) -> str | None:
    """Find the first commit, by first parents; None before it, and in a shallow clone, which does not have it.

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
    """Return `host/owner/name`, the same for each URL of a remote; None for a folder, which clones do not share."""
    match = _REMOTE.fullmatch(url.strip())
    if match is None:
        return None
    host, path = (match["host"] or match["site"]).lower(), match["path"] or match["rest"]
    name = f"{host}/{path.strip('/').removesuffix('.git')}"
    return name if _PROJECT.fullmatch(name) else None


_LARGEST_CONFIG = 64 * 1024
# Settings that say where the work tree is, or read further files; a value may be written in many ways.
_MOVING = (b"worktree", b"include", b"bare")
_PLAIN_BARE = (b"bare = false", b"\tbare = false")


def plain_root(folder: Path) -> Path | None:
    """Find the root of an ordinary checkout; None if git has to be asked."""
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
    """Say whether git takes the folder itself for a repository."""
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
