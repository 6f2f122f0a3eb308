"""git, read only: which work trees belong to this broker, and whether a diff applies in one of them."""

import asyncio
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.check import OBJECT_STORE, DiffCheck, ask_git
from gsd_review_broker.git.discovery import git_folder, project_of_remote, root_commit
from gsd_review_broker.git.objects import (
    TooLargeError,
    make_isolated_repository,
    make_scratch,
    opened_objects,
    remove_stale,
)
from gsd_review_broker.git.program import GIT_TIMEOUT_SECONDS, Answer, text_of
from gsd_review_broker.ports.world import Applies, DoesNotApply

T = TypeVar("T")

MOST_AT_ONCE = 8


class GitRepository:
    """Each check runs in its own thread: starting a program is quicker there than on the event loop."""

    def __init__(
        self, root: Path | None, *, allowed_roots: tuple[Path, ...], timeout: float = GIT_TIMEOUT_SECONDS
    ) -> None:
        self._root = root
        self._allowed_roots = tuple(path.resolve() for path in allowed_roots)
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="git")
        self._threads.submit(remove_stale)
        # By workspace, and by git folder: neither changes.
        self._folders: dict[str, str] = {}
        self._root_commits: dict[str, str | None] = {}

    async def _in_thread(self, question: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, question)

    async def resolve_workspace(self, workspace: str | None) -> str | None:
        if workspace is None:
            return str(self._root) if self._root else None
        if not Path(workspace).is_absolute():
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"workspace: {workspace!r} is not an absolute path",
                "The broker runs elsewhere: give the whole path of the work tree.",
            )
        return await self._in_thread(lambda: self._resolve(workspace))

    async def check(self, workspace: str | None, diff: bytes, *, already_applied: bool) -> Applies | DoesNotApply:
        if workspace is None:
            raise BrokerError(
                Code.UNAVAILABLE,
                "a diff needs a repository to be checked in, and this broker serves none",
                "Start the broker inside the repository, or give a workspace that its configuration allows.",
            )
        return await self._in_thread(lambda: self._check(workspace, diff, already_applied=already_applied))

    def _resolve(self, workspace: str) -> str:
        """Refuse a path that is not allowed before looking at it, so the answer does not tell whether it exists."""
        if not self._may_look_at(os.path.realpath(workspace)):
            raise _not_allowed(workspace)
        root = self._top_level(workspace)
        if root is None:
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"workspace: {workspace} is not inside a git work tree",
                "Give the root of the repository or of one of its worktrees.",
            )
        if not self._is_allowed(root):
            raise _not_allowed(workspace)
        return root

    def _top_level(self, folder: str) -> str | None:
        if not Path(folder).is_dir():
            return None
        answer = self._git(folder, "rev-parse", "--show-toplevel")
        return os.path.realpath(text_of(answer.output)) if answer.code == 0 and answer.output.strip() else None

    def _may_look_at(self, folder: str) -> bool:
        own = self._worktrees(self._root) if self._root else set[str]()
        return any(Path(folder).is_relative_to(place) for place in (*self._allowed_roots, *own))

    def _is_allowed(self, root: str) -> bool:
        return any(Path(root).is_relative_to(allowed) for allowed in self._allowed_roots) or self._is_own(root)

    def _is_own(self, root: str) -> bool:
        """Another repository inside our work tree is not ours."""
        return self._root is not None and root in self._worktrees(self._root)

    async def project_of(self, workspace: str | None) -> str | None:
        return None if workspace is None else await self._in_thread(lambda: self._project(workspace))

    def _project(self, workspace: str) -> str | None:
        if self._is_own(workspace):
            return None
        remote = self._git(workspace, "config", "--local", "--get", "remote.origin.url")
        named = project_of_remote(text_of(remote.output)) if remote.code == 0 else None
        commit = None if named else root_commit(workspace)
        return named or (f"commit-{commit[:16]}" if commit else None)

    def _worktrees(self, own: Path) -> set[str]:
        """List the work trees that our repository knows. A folder that names our git folder is not enough: any program
        can write that file."""
        listed = self._git(str(own), "worktree", "list", "--porcelain")
        lines = os.fsdecode(listed.output).split("\n") if listed.code == 0 else []
        named = [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")]
        # For a submodule, git lists the git folder instead of the work tree.
        return {os.path.realpath(name) for name in (str(own), *named)}

    def _check(self, workspace: str, diff: bytes, *, already_applied: bool) -> Applies | DoesNotApply:
        if not Path(workspace).is_dir():
            raise BrokerError(
                Code.UNAVAILABLE,
                f"the workspace {workspace} is gone",
                "Bring it back, or withdraw the review and create another.",
            )
        answer = self._applied(workspace, diff, already_applied=already_applied)
        if isinstance(answer, DoesNotApply) or answer.records is None:
            return answer
        folder, commit = self._identity(workspace)
        return replace(answer, repository=commit, folder=folder)

    def _identity(self, workspace: str) -> tuple[str, str | None]:
        """Return the git folder and the root commit."""
        folder = self._folders.get(workspace) or git_folder(workspace) or workspace
        self._folders[workspace] = folder
        if self._root_commits.get(folder) is None:
            self._root_commits[folder] = root_commit(workspace)
        return folder, self._root_commits[folder]

    async def root_commit(self, workspace: str) -> str | None:
        return (await self._in_thread(lambda: self._identity(workspace)))[1]

    def _applied(
        self, workspace: str, diff: bytes, *, already_applied: bool = False, base: str = "HEAD"
    ) -> Applies | DoesNotApply:
        scratch = make_scratch()
        try:
            check = DiffCheck(workspace, scratch, diff, timeout=self._timeout, base=base)
            return check.run(already_applied=already_applied)
        finally:
            # Nothing waits for the cleanup.
            self._threads.submit(shutil.rmtree, scratch, ignore_errors=True)

    async def records_on(self, workspace: str, base: str, diff: bytes) -> bytes | None:
        """Return the records of the change if the diff is applied to this commit; None if it does not apply."""
        answer = await self._in_thread(lambda: self._applied(workspace, diff, base=base))
        return answer.records if isinstance(answer, Applies) else None

    async def blob(self, workspace: str, object_id: str, *, most: int) -> bytes:
        return await self._in_thread(lambda: self._blob(workspace, object_id, most))

    def _blob(self, workspace: str, object_id: str, most: int) -> bytes:
        scratch = make_scratch()
        try:
            return read_blob(workspace, scratch, object_id, most=most, timeout=self._timeout)
        finally:
            self._threads.submit(shutil.rmtree, scratch, ignore_errors=True)

    def _git(self, folder: str, *arguments: str) -> Answer:
        return ask_git(folder, *arguments, timeout=self._timeout)


def _not_allowed(workspace: str) -> BrokerError:
    return BrokerError(
        Code.FORBIDDEN,
        f"workspace: {workspace} is neither this broker's repository nor one that it may read",
        "Add its folder to allowed_roots in the user's configuration file, or use the broker that serves it.",
    )


def read_blob(workspace: str, scratch: Path, object_id: str, *, most: int, timeout: float) -> bytes:
    """Raises BrokerError if it is missing or larger than `most` bytes."""
    answer = ask_git(workspace, *OBJECT_STORE, timeout=timeout)
    # A path may contain a line feed, so the format is taken from the end.
    store, _, object_format = text_of(answer.output).rpartition("\n")
    if answer.code != 0 or object_format not in {"sha1", "sha256"}:
        raise BrokerError(Code.UNAVAILABLE, f"git does not answer in {workspace}: {answer.why}", "See that git runs.")
    isolated = make_isolated_repository(scratch, objects=store, object_format=object_format)
    with opened_objects(isolated.folder, isolated.environment, object_format, timeout, most=most) as objects:
        try:
            return objects.read(object_id, "blob")
        except TooLargeError:
            raise BrokerError(
                Code.TOO_LARGE, f"the file has more than {most} bytes", "Look at it in an editor."
            ) from None
