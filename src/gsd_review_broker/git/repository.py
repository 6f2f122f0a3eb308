"""git, read only: does a diff apply, and what exactly would it change.

Everything happens in a temporary index with a temporary object store beside the repository's own, so that
not even a loose object is left behind. Hooks, filters' programs, external diffs and the user's and the
system's configuration are off: a repository decides nothing about what runs.
"""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.digest import RAW, digest_of
from gsd_review_broker.git.program import GIT_TIMEOUT_SECONDS, Answer, alternate, run_git, text_of
from gsd_review_broker.git.scratch import make_scratch, remove_stale
from gsd_review_broker.ports import Applies, DoesNotApply

T = TypeVar("T")

MOST_AT_ONCE = 8
_OBJECT_ID = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Worktree:
    """Where a work tree belongs: its root, and the folder that all worktrees of one repository share."""

    root: str
    common: str


class GitRepository:
    """Each question runs in a thread of its own: starting a program from there is quicker than from the event
    loop, and a question is several programs in a row."""

    def __init__(
        self, root: Path | None, *, allowed_roots: tuple[Path, ...], timeout: float = GIT_TIMEOUT_SECONDS
    ) -> None:
        self._root = root
        self._allowed_roots = tuple(path.resolve() for path in allowed_roots)
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="git")
        self._threads.submit(remove_stale)
        self._common: str | None = None

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
        """Against HEAD first; failing that, against the work tree as it stands. With `already_applied` the
        change is in the tree already, and only its digest is looked for."""
        if workspace is None:
            raise BrokerError(
                Code.UNAVAILABLE,
                "a diff needs a repository to be checked in, and this broker serves none",
                "Start the broker inside the repository, or give a workspace that its configuration allows.",
            )
        return await self._in_thread(lambda: self._check(workspace, diff, already_applied=already_applied))

    def _resolve(self, workspace: str) -> str:
        place = self._place(workspace)
        if place is None:
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"workspace: {workspace} is not inside a git work tree",
                "Give the root of the repository or of one of its worktrees.",
            )
        if not self._is_allowed(place):
            raise BrokerError(
                Code.FORBIDDEN,
                f"workspace: {place.root} is neither this broker's repository nor one that it may read",
                "Add its folder to allowed_roots in the user's configuration file, or use the broker that serves it.",
            )
        return place.root

    def _place(self, folder: str) -> Worktree | None:
        if not Path(folder).is_dir():
            return None
        # One question for each: a path may hold a line feed.
        root = self._git(folder, "rev-parse", "--show-toplevel")
        common = self._git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
        if root.code != 0 or common.code != 0 or not root.output.strip():
            return None
        return Worktree(root=os.path.realpath(text_of(root.output)), common=os.path.realpath(text_of(common.output)))

    def _is_allowed(self, place: Worktree) -> bool:
        root = Path(place.root)
        if any(root.is_relative_to(allowed) for allowed in self._allowed_roots):
            return True
        if self._root is None:
            return False
        if self._common is None:
            own = self._place(str(self._root))
            self._common = own.common if own else None
        return place.common == self._common

    def _check(self, workspace: str, diff: bytes, *, already_applied: bool) -> Applies | DoesNotApply:
        if not Path(workspace).is_dir():
            raise BrokerError(
                Code.UNAVAILABLE,
                f"the workspace {workspace} is gone",
                "Bring it back, or withdraw the review and create another.",
            )
        scratch = make_scratch()
        try:
            return self._check_in(scratch, workspace, diff, already_applied=already_applied)
        finally:
            # Nobody waits for the cleaning up.
            self._threads.submit(shutil.rmtree, scratch, ignore_errors=True)

    def _check_in(self, scratch: Path, workspace: str, diff: bytes, *, already_applied: bool) -> Applies | DoesNotApply:
        # A file, not a pipe: git may end before it has read all, and a closed pipe is no answer.
        patch = scratch / "diff"
        patch.write_bytes(diff)
        on_head = self._on_head(workspace, scratch, patch, reverse=already_applied)
        if already_applied:
            return Applies(digest=on_head.digest if isinstance(on_head, Applies) else None)
        if isinstance(on_head, Applies) or not self._fits_work_tree(workspace, scratch, patch):
            return on_head
        return Applies(digest=None)

    def _on_head(self, workspace: str, scratch: Path, patch: Path, *, reverse: bool) -> Applies | DoesNotApply:
        """The digest of the change: sha256 over its raw records, if HEAD takes the diff."""
        tree, environment = self._scratch_index(workspace, scratch)
        if tree is None:
            # Before the first commit: the change is the whole tree.
            empty = self._must(workspace, environment, "hash-object", "-t", "tree", "-w", "--", os.devnull)
            tree = text_of(empty)
        self._must(workspace, environment, "read-tree", tree)
        direction = ("--reverse",) if reverse else ()
        applied = self._git(
            workspace,
            *("apply", "--cached", "--whitespace=nowarn", *direction, "--", str(patch)),
            environment=environment,
        )
        if not applied.is_good:
            return DoesNotApply(git_says=applied.why.replace(str(patch), "the diff"))
        swapped = ("-R",) if reverse else ()
        raw = self._must(workspace, environment, "diff-index", "--cached", *RAW, *swapped, tree, "--")
        digest = digest_of(raw)
        return DoesNotApply(git_says="the diff changes nothing") if digest is None else Applies(digest=digest)

    def _scratch_index(self, workspace: str, scratch: Path) -> tuple[str | None, dict[str, str]]:
        """HEAD's tree (None where there is no commit yet), and the environment of an index beside the real one."""
        answer = self._git(
            workspace,
            *("rev-parse", "--path-format=absolute", "--git-path", "objects"),
            *("--verify", "--quiet", "HEAD^{tree}"),
        )
        # The tree's id comes last, if there is one; what stands before it is the path.
        path, _, tree = text_of(answer.output).rpartition("\n")
        if not _OBJECT_ID.fullmatch(tree):
            path, tree = text_of(answer.output), ""
        if not path:
            raise BrokerError(
                Code.UNAVAILABLE,
                f"git does not answer in {workspace}: {answer.why}",
                "See that git runs there, then claim again.",
            )
        objects = scratch / "objects"
        objects.mkdir()
        environment = {
            "GIT_INDEX_FILE": str(scratch / "index"),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternate(path),
        }
        return tree or None, environment

    def _fits_work_tree(self, workspace: str, scratch: Path, patch: Path) -> bool:
        """Looked at from an empty repository beside it: the real one's configuration could name programs that
        filter files."""
        empty = scratch / "git"
        for name in ("objects", "refs"):
            (empty / name).mkdir(parents=True)
        (empty / "HEAD").write_text("ref: refs/heads/none\n")
        answer = self._git(
            workspace,
            *("apply", "--check", "--whitespace=nowarn", "--", str(patch)),
            environment={"GIT_DIR": str(empty), "GIT_WORK_TREE": workspace},
        )
        return answer.is_good

    def _must(self, workspace: str, environment: dict[str, str], *arguments: str) -> bytes:
        answer = self._git(workspace, *arguments, environment=environment)
        if answer.code != 0:
            raise BrokerError(
                Code.UNAVAILABLE,
                f"git {arguments[0]} failed: {answer.why}",
                "Look at the repository, then claim again.",
            )
        return answer.output

    def _git(self, folder: str, *arguments: str, environment: dict[str, str] | None = None) -> Answer:
        try:
            return run_git(folder, *arguments, environment=environment, timeout=self._timeout)
        except FileNotFoundError as error:
            missing = "git" if shutil.which("git") is None else folder
            raise _no_git(f"{missing} was not found") from error
        except subprocess.TimeoutExpired as error:
            raise _no_git(f"git {arguments[0]} took longer than {self._timeout:g} s") from error


def _no_git(why: str) -> BrokerError:
    return BrokerError(Code.UNAVAILABLE, why, "The review stays as it is; see that git works, then call again.")
