"""Makes a diff out of what stands in the repository, without touching its index, work tree or objects.

What git adds goes to an index and an object store of our own. The diff is then made between two trees, in an empty
repository beside the real one: no attribute of a proposed change decides how the change is shown, and a file that is
not UTF-8 travels as a git binary patch. What `tandem install` wrote is not part of a change; its receipts are read as
plain JSON, because this runs before every proposal and must be light.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.command import alternate
from gsd_review_broker.git.objects import digest_of_records, make_empty_repository, range_records
from gsd_review_broker.git.program import Answer, run_git, run_users_git, text_of
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.locations import DATABASE_NAME


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledFile:
    path: Path
    is_whole: bool
    """Everything in which it differs from HEAD is ours. Otherwise others have changed the same file."""


def installed_files(root: Path) -> list[InstalledFile]:
    """Return the installed files that are not meant to be shared."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    folder = locations.state_folder() / "installed"
    return [file for path in sorted(folder.glob(f"*-project-{name}.json")) for file in _listed(path, root)]


def _listed(receipt: Path, root: Path) -> Iterator[InstalledFile]:
    try:
        values: Any = json.loads(receipt.read_bytes())
        records = [(Path(record["path"]), record) for record in values["files"]]
        excluded, is_shared = set(values.get("excluded", ())), bool(values.get("shared"))
    except (OSError, ValueError, KeyError, TypeError):
        # `tandem uninstall` reports a damaged receipt.
        return
    for path, record in records:
        if not path.is_relative_to(root):
            continue
        # The first form of a receipt names `created` for some files only.
        is_new = record["created"] if "created" in record else record.get("prior") is None
        if f"/{path.relative_to(root).as_posix()}" in excluded or (is_new and not is_shared):
            yield InstalledFile(path=path, is_whole=True)
        elif not is_shared:
            yield InstalledFile(path=path, is_whole=_is_as_written(path, record))


def _is_as_written(path: Path, record: Any) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return True
    return hashlib.sha256(content).hexdigest() in {*record.get("states", ()), *record.get("digests", ())}


_DIFF = (
    "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv",
    "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
_SECTION = b"diff --git "
# Whatever became of the exclude file.
_NOT_OURS = f":(top,exclude,glob)**/{DATABASE_NAME}*"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalDiff:
    """A diff, and whether HEAD holds it already."""

    diff: bytes
    is_committed: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """A work tree, and a scratch folder to write to."""

    root: Path
    scratch: Path
    environment: dict[str, str]
    object_format: str

    def git(self, *arguments: str, more: dict[str, str] | None = None) -> Answer:
        return run_git(self.root, *arguments, environment={**self.environment, **(more or {})})

    def must(self, *arguments: str, hint: str = "") -> str:
        answer = self.git(*arguments)
        if answer.code != 0:
            raise _failed(arguments[0], answer.why, hint)
        return text_of(answer.output)


def top_level(folder: Path) -> Path | None:
    answer = run_git(folder, "rev-parse", "--show-toplevel")
    return Path(os.path.realpath(text_of(answer.output))) if answer.code == 0 and answer.output else None


@contextlib.contextmanager
def opened(folder: Path) -> Generator[Tree]:
    root = top_level(folder)
    if root is None:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"{folder} is not inside a git work tree",
            "Go into the repository, or give the diff with -F FILE.",
        )
    objects = text_of(run_git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects").output)
    form = text_of(run_git(root, "rev-parse", "--show-object-format").output)
    with tempfile.TemporaryDirectory(prefix="tandem-") as name:
        scratch = Path(name)
        (scratch / "objects").mkdir()
        environment = {
            "GIT_INDEX_FILE": str(scratch / "index"),
            "GIT_OBJECT_DIRECTORY": str(scratch / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternate(objects),
        }
        yield Tree(root, scratch, environment, form)


def staged(tree: Tree) -> LocalDiff:
    """Return what `git commit` would record."""
    copy_index(tree)
    return LocalDiff(diff=between(tree, _head(tree), written(tree)))


def worktree(tree: Tree) -> LocalDiff:
    """Return what `git add -A` and `git commit` would record: untracked files too, ignored ones not."""
    copy_index(tree)
    _add_everything(tree)
    return LocalDiff(diff=between(tree, _head(tree), written(tree)))


def files(tree: Tree, names: Sequence[str]) -> LocalDiff:
    """Return the diff of these files alone against HEAD; ignored ones too, since they are named."""
    read_head(tree)
    paths = [f":(top,literal){_below_root(tree, name)}" for name in names]
    try:
        _add(tree, paths, "--force")
    except BrokerError as error:
        missing = next((name for name in names if not os.path.lexists(name)), None)
        if missing is None:
            raise
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"--path {missing}: there is no such file",
            "Name a file of the work tree or of HEAD.",
        ) from error
    return LocalDiff(diff=between(tree, _head(tree), written(tree)))


def _below_root(tree: Tree, name: str) -> str:
    """Resolve the folder, but not the file: a link is proposed as a link."""
    path = Path(os.path.realpath(Path(name).parent)) / Path(name).name
    if not path.is_relative_to(tree.root):
        raise BrokerError(Code.INVALID_ARGUMENT, f"{name} is outside {tree.root}", "Name a file of this repository.")
    return path.relative_to(tree.root).as_posix()


def staged_digest(tree: Tree) -> str | None:
    """Return the digest of what is staged, as an approval would name it; None if nothing is staged."""
    copy_index(tree)
    return _digest(tree, written(tree))


def worktree_digest(tree: Tree, paths: Sequence[str] = ()) -> str | None:
    """Return the digest of the work tree, or of these paths in it, staged or not."""
    if paths:
        read_head(tree)
        _add(tree, [f":(top,literal){path}" for path in paths])
    else:
        copy_index(tree)
        _add_everything(tree)
    return _digest(tree, written(tree))


def _digest(tree: Tree, new: str) -> str | None:
    old = tree.must("rev-parse", "--verify", _head(tree))
    return digest_of_records(range_records(tree.root, old, new, environment=tree.environment))


def span(tree: Tree, spelled: str) -> LocalDiff:
    """Return the diff of A..B, A...B (since their merge base), or A (up to HEAD)."""
    base, dots, end = spelled.partition("...") if "..." in spelled else spelled.partition("..")
    start, end = _commit(tree, base or "HEAD"), _commit(tree, end or "HEAD")
    if dots == "...":
        start = tree.must("merge-base", "--end-of-options", start, end, hint="The two have no common ancestor.")
    within = tree.git("merge-base", "--is-ancestor", end, "HEAD").code == 0
    return LocalDiff(diff=between(tree, f"{start}^{{tree}}", f"{end}^{{tree}}"), is_committed=within)


def between(tree: Tree, old: str, new: str) -> bytes:
    old, new = tree.must("rev-parse", "--verify", old), tree.must("rev-parse", "--verify", new)
    diff = _shown(tree, old, new, "-M")
    if _is_text(diff):
        return diff
    names = _awkward(tree, old, new)
    others = [f":(top,exclude,literal){name}" for name in names]
    rest = _shown(tree, old, new, "-M", paths=[":(top)", *others])
    chosen = [f":(top,literal){name}" for name in names]
    return rest + _shown(tree, old, new, "-M", as_binary=True, paths=chosen)


def _awkward(tree: Tree, old: str, new: str) -> list[str]:
    """Return the files whose diff cannot be sent as text."""
    listed = tree.git("diff-tree", "-r", "-z", "--name-status", "--no-renames", old, new).output.split(b"\0")[:-1]
    # A file that becomes a link, or the other way round, is shown as two.
    names = [name for kind, name in zip(listed[::2], listed[1::2], strict=True) for _ in range(1 + (kind == b"T"))]
    sections = _sections(_shown(tree, old, new, "--no-renames"))
    shown = zip(names, sections, strict=True)
    return list(dict.fromkeys(os.fsdecode(name) for name, section in shown if not _is_text(section)))


def _shown(
    tree: Tree, old: str, new: str, renames: str, *, as_binary: bool = False, paths: Sequence[str] = ()
) -> bytes:
    apart = _empty_repository(tree, as_binary=as_binary)
    # Without an index: if an index calls a file up to date, git reads the file instead of the blob, and here nothing
    # says how it is converted. Content that a filter keeps out of the repository would be sent.
    more = {"GIT_DIR": str(apart), "GIT_INDEX_FILE": str(tree.scratch / "none")}
    answer = tree.git(*_DIFF, renames, old, new, "--", *paths, more=more)
    if answer.code != 0:
        raise _failed("diff-tree", answer.why, "")
    return answer.output


def _empty_repository(tree: Tree, *, as_binary: bool) -> Path:
    folder = tree.scratch / ("binary" if as_binary else "plain")
    if folder.exists():
        return folder
    return make_empty_repository(folder, tree.object_format or "sha1", attributes="* -diff\n" if as_binary else "")


def _sections(diff: bytes) -> list[bytes]:
    """Split a diff by file. No line inside a hunk begins with this word."""
    starts = [0] if diff.startswith(_SECTION) else []
    at = diff.find(b"\n" + _SECTION)
    while at >= 0:
        starts.append(at + 1)
        at = diff.find(b"\n" + _SECTION, at + 1)
    return [diff[start:end] for start, end in zip(starts, [*starts[1:], len(diff)], strict=True)]


def _is_text(section: bytes) -> bool:
    if b"\0" in section:
        return False
    try:
        section.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def copy_index(tree: Tree) -> None:
    """Copy the user's present index; inside a git hook, the one that git names."""
    named = os.environ.get("GIT_INDEX_FILE")
    real = run_git(tree.root, "rev-parse", "--path-format=absolute", "--git-path", "index")
    path = tree.root / (named or text_of(real.output))
    if path.exists():
        copy = tree.scratch / "index"
        shutil.copyfile(path, copy)
        # git reads a file that is not older than its index. With a newer time here, a change in the tick of the clock
        # in which the index was written would go unnoticed.
        written_at = path.stat().st_mtime_ns
        os.utime(copy, ns=(written_at, written_at))


def read_head(tree: Tree) -> None:
    tree.must("read-tree", _head(tree))


def written(tree: Tree) -> str:
    return tree.must("write-tree", hint="Resolve what is unmerged, then propose again.")


def _head(tree: Tree) -> str:
    if tree.git("rev-parse", "--verify", "--quiet", "HEAD^{tree}").code == 0:
        return "HEAD^{tree}"
    return tree.must("mktree")


def _commit(tree: Tree, name: str) -> str:
    answer = tree.git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    if answer.code != 0:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"git does not know a commit {name!r}", "Give a range such as main..HEAD."
        )
    return text_of(answer.output)


def _add_everything(tree: Tree) -> None:
    """Add the work tree as the user's configuration says, without hooks and without what `tandem install` wrote."""
    ours = {file.path.relative_to(tree.root).as_posix(): file for file in installed_files(tree.root)}
    seen = _seen_by_git(tree, list(ours))
    _add(tree, [":/", _NOT_OURS, *(f":(top,exclude,literal){name}" for name in seen)])
    for name in seen:
        if not ours[name].is_whole:
            _add_without_entry(tree, ours[name].path, name)


def _seen_by_git(tree: Tree, names: Sequence[str]) -> list[str]:
    """Keep the names that git does not ignore: `git add` refuses to leave out a path that it ignores anyway."""
    if not names:
        return []
    paths = [f":(top,literal){name}" for name in names]
    listed = run_users_git(
        tree.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths,
        environment=tree.environment,
    )  # fmt: skip
    seen = {os.fsdecode(name) for name in listed.output.split(b"\0")}
    return [name for name in names if name in seen]


def _add_without_entry(tree: Tree, path: Path, name: str) -> None:
    """Add the others' part of a file that was there before us and has changed since."""
    from gsd_review_broker.integrations.clients.setup import Environment
    from gsd_review_broker.integrations.planning import without_ours

    content = without_ours(path, Environment.of(tree.root))
    copy = tree.scratch / "without-entry"
    copy.write_bytes(content or b"")
    answer = run_users_git(
        tree.root, "hash-object", "-w", f"--path={name}", "--", str(copy), environment=tree.environment
    )
    if answer.code != 0:
        raise _failed("hash-object", answer.why, "")
    mode = "100755" if os.access(path, os.X_OK) else "100644"
    tree.must("update-index", "--add", "--cacheinfo", f"{mode},{text_of(answer.output)},{name}")


def _add(tree: Tree, paths: Sequence[str], *options: str) -> None:
    done = run_users_git(tree.root, "add", "--all", *options, "--", *paths, environment=tree.environment)
    if done.code != 0:
        raise _failed("add", done.why, "")


def _failed(what: str, why: str, hint: str) -> BrokerError:
    return BrokerError(Code.INVALID_ARGUMENT, f"git {what} failed: {why}", hint)
