"""git, read only: does a diff apply, and what exactly would it change.

Everything happens in a temporary index with a temporary object store beside the repository's own, so that
not even a loose object is left behind. Hooks, filters' programs, external diffs and the user's and the
system's configuration are off: a repository decides nothing about what runs.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports import Applies, DoesNotApply

GIT_TIMEOUT_SECONDS = 30.0
MOST_AT_ONCE = 8
_LONGEST_COMPLAINT = 4_000
_OPTIONS = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.attributesFile=/dev/null",
    "-c", "core.excludesFile=/dev/null",
    "-c", "core.untrackedCache=false",
    "-c", "diff.external=",
    "-c", "apply.whitespace=nowarn",
    "-c", "apply.ignoreWhitespace=no",
    "-c", "core.protectHFS=true",
    "-c", "core.protectNTFS=true",
)  # fmt: skip
_FROM_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "USERPROFILE")


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    output: bytes
    complaint: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a work tree belongs: its root, and the folder that all worktrees of one repository share."""

    root: str
    common: str


class GitRepository:
    def __init__(
        self, root: Path | None, *, allowed_roots: tuple[Path, ...], timeout: float = GIT_TIMEOUT_SECONDS
    ) -> None:
        self._root = root
        self._allowed_roots = tuple(path.resolve() for path in allowed_roots)
        self._timeout = timeout
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._common: str | None = None

    async def resolve_workspace(self, workspace: str | None) -> str | None:
        if workspace is None:
            return str(self._root) if self._root else None
        place = await self._place(workspace)
        if place is None:
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"workspace: {workspace} is not inside a git work tree",
                "Give the root of the repository or of one of its worktrees.",
            )
        if not await self._is_allowed(place):
            raise BrokerError(
                Code.FORBIDDEN,
                f"workspace: {place.root} is neither this broker's repository nor one that it may read",
                "Add its folder to allowed_roots in the user's configuration file, or use the broker that serves it.",
            )
        return place.root

    async def _place(self, folder: str) -> Place | None:
        if not Path(folder).is_dir():
            return None
        answer = await self._git(folder, "rev-parse", "--show-toplevel", "--path-format=absolute", "--git-common-dir")
        lines = answer.output.decode("utf-8", "surrogateescape").splitlines()
        if answer.code != 0 or len(lines) != 2:  # noqa: PLR2004
            return None
        return Place(root=os.path.realpath(lines[0]), common=os.path.realpath(lines[1]))

    async def _is_allowed(self, place: Place) -> bool:
        root = Path(place.root)
        if any(root.is_relative_to(allowed) for allowed in self._allowed_roots):
            return True
        if self._root is None:
            return False
        if self._common is None:
            own = await self._place(str(self._root))
            self._common = own.common if own else None
        return place.common == self._common

    async def check(self, workspace: str | None, diff: bytes, *, already_applied: bool) -> Applies | DoesNotApply:
        """Against HEAD first; failing that, against the work tree as it stands. With `already_applied` the
        change is in the tree already, and only its digest is looked for."""
        if workspace is None:
            raise BrokerError(
                Code.UNAVAILABLE,
                "a diff needs a repository to be checked in, and this broker serves none",
                "Start the broker inside the repository, or give a workspace that its configuration allows.",
            )
        if not Path(workspace).is_dir():
            raise BrokerError(
                Code.UNAVAILABLE,
                f"the workspace {workspace} is gone",
                "Bring it back, or withdraw the review and create another.",
            )
        with tempfile.TemporaryDirectory(prefix="tandem-", ignore_cleanup_errors=True) as scratch:
            # A file, not a pipe: git may end before it has read all, and a closed pipe is no answer.
            patch = Path(scratch) / "diff"
            patch.write_bytes(diff)
            index = await self._scratch_index(workspace, Path(scratch))
            on_head = await self._on_head(workspace, index, patch, reverse=already_applied)
            if already_applied:
                return Applies(digest=on_head.digest if isinstance(on_head, Applies) else None)
            if isinstance(on_head, Applies):
                return on_head
            answer = await self._git(workspace, "apply", "--check", "--whitespace=nowarn", "--", str(patch))
        return Applies(digest=None) if answer.code == 0 else on_head

    async def _scratch_index(self, workspace: str, scratch: Path) -> dict[str, str] | None:
        """The environment of an index that holds HEAD; None where there is no commit yet."""
        answer = await self._git(
            workspace,
            "rev-parse",
            "--path-format=absolute",
            "--git-path",
            "objects",
            "--verify",
            "--quiet",
            "HEAD^{tree}",
        )
        lines = answer.output.decode("utf-8", "surrogateescape").splitlines()
        if not lines:
            raise BrokerError(
                Code.UNAVAILABLE,
                f"git does not answer in {workspace}: {answer.complaint}",
                "See that git runs there, then claim again.",
            )
        if len(lines) != 2:  # noqa: PLR2004
            return None
        objects = scratch / "objects"
        objects.mkdir()
        environment = {
            "GIT_INDEX_FILE": str(scratch / "index"),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(lines[0]),
        }
        await self._must(workspace, environment, "read-tree", lines[1])
        return environment

    async def _on_head(
        self, workspace: str, index: dict[str, str] | None, patch: Path, *, reverse: bool
    ) -> Applies | DoesNotApply:
        """The digest of the change: sha256 over its raw records, if HEAD takes the diff."""
        if index is None:
            return DoesNotApply(git_says="the repository has no commit yet, and the work tree does not take it")
        direction = ("--reverse",) if reverse else ()
        applied = await self._git(
            workspace,
            *("apply", "--cached", "--whitespace=nowarn", *direction, "--", str(patch)),
            environment=index,
        )
        if applied.code != 0:
            return DoesNotApply(git_says=applied.complaint.replace(str(patch), "the diff"))
        swapped = ("-R",) if reverse else ()
        raw = await self._must(
            workspace, index, "diff-index", "--cached", "-r", "-z", "--raw", "--no-renames", "--full-index",
            "--no-ext-diff", "--no-textconv", *swapped, "HEAD", "--",
        )  # fmt: skip
        return Applies(digest=digest_of(raw))

    async def _must(self, workspace: str, environment: dict[str, str], *arguments: str) -> bytes:
        answer = await self._git(workspace, *arguments, environment=environment)
        if answer.code != 0:
            raise BrokerError(
                Code.UNAVAILABLE,
                f"git {arguments[0]} failed: {answer.complaint}",
                "Look at the repository, then claim again.",
            )
        return answer.output

    async def _git(self, folder: str, *arguments: str, environment: dict[str, str] | None = None) -> Answer:
        async with self._slots:
            try:
                process = await asyncio.create_subprocess_exec(
                    "git", *_OPTIONS, *arguments,
                    cwd=folder,
                    env=_environment() | (environment or {}),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )  # fmt: skip
            except FileNotFoundError as error:
                missing = "git" if shutil.which("git") is None else folder
                raise _no_git(f"{missing} was not found") from error
            try:
                async with asyncio.timeout(self._timeout):
                    output, complaint = await process.communicate()
            except TimeoutError as error:
                raise _no_git(f"git {arguments[0]} took longer than {self._timeout:g} s") from error
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await asyncio.shield(process.wait())
        said = complaint.decode("utf-8", "replace").strip()
        return Answer(process.returncode or 0, output, said[:_LONGEST_COMPLAINT])


def _no_git(why: str) -> BrokerError:
    return BrokerError(Code.UNAVAILABLE, why, "The review stays as it is; see that git works, then call again.")


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _FROM_ENVIRONMENT if name in os.environ}
    return kept | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }


def _quoted(path: str) -> str:
    """A path in the list of alternates: in quotes where it holds the list's separator or a quote."""
    if os.pathsep not in path and '"' not in path:
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def digest_of(raw: bytes) -> str:
    """Over the records sorted bytewise, each its metadata, NUL, its path, NUL."""
    fields = raw.split(b"\0")[:-1]
    records = sorted(b"%b\0%b\0" % pair for pair in zip(fields[::2], fields[1::2], strict=True))
    return "sha256:" + hashlib.sha256(b"".join(records)).hexdigest()


def find_root(folder: Path) -> Path | None:
    """The work tree that a folder is in, by git's own word; None outside any, or without git."""
    import subprocess  # noqa: PLC0415 - once, before there is an event loop

    try:
        answer = subprocess.run(
            ["git", *_OPTIONS, "rev-parse", "--show-toplevel"],
            cwd=folder, env=_environment(), capture_output=True, check=False, timeout=GIT_TIMEOUT_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    name = os.fsdecode(answer.stdout.rstrip(b"\n"))
    return Path(os.path.realpath(name)) if answer.returncode == 0 and name else None


def exclude_from_git(root: Path, patterns: list[str]) -> None:
    """Keep our files out of `git status`, by the repository's own exclude file and not by its .gitignore."""
    import subprocess  # noqa: PLC0415

    try:
        answer = subprocess.run(
            ["git", *_OPTIONS, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude"],
            cwd=root, env=_environment(), capture_output=True, check=False, timeout=GIT_TIMEOUT_SECONDS,
        )  # fmt: skip
        if answer.returncode != 0:
            return
        path = Path(os.fsdecode(answer.stdout.rstrip(b"\n")))
        present = path.read_text("utf-8", "surrogateescape") if path.exists() else ""
        missing = [pattern for pattern in patterns if pattern not in present.splitlines()]
        if not missing:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        separator = "" if not present or present.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(separator + "\n".join(missing) + "\n")
    except OSError:
        # A read-only repository: the files show up in `git status`, and nothing else is lost.
        return
