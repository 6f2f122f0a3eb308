"""`tandem apply`: writes the approved change into the work tree, after checking that it is the same."""

import argparse
import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gsd_review_broker.cli import changes, patches
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options
from gsd_review_broker.client.connection import Json
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.program import run_users_git

_DETAILS = """\
Applies only an approved review (else exit 5), and only if the result on HEAD is exactly what was approved: the digest
is computed again here (else exit 6). If the change is already in place, the command says so and writes nothing."""

_INDEX, _WORK_TREE, _COMMIT = "index", "work tree", "last commit"


def register(commands: Commands) -> None:
    apply = commands.add(
        "apply",
        run_apply,
        summary="write an approved diff to the work tree, after checking its digest",
        details=_DETAILS,
        parents=[broker_options()],
    )
    add_review(apply)
    apply.add_argument("--index", action="store_true", help="stage it, too")
    apply.add_argument("--check", action="store_true", help="only check; write nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class Approved:
    review_id: str
    digest: str
    diff: bytes
    paths: tuple[str, ...]


def run_apply(options: argparse.Namespace) -> int:
    context = Context(options)
    status = context.call("get_review_status", review_id=options.review)
    if status["verdict"] != "approved":
        return _not_approved(context, status)
    approved = _approved(context, status)
    root = changes.top_level(Path.cwd())
    if root is None:
        raise BrokerError(
            Code.INVALID_ARGUMENT, "this folder is not a git work tree", "Go into the repository, then apply."
        )
    place = _already(root, approved)
    was_there = place is not None
    if place == _WORK_TREE and options.index and not options.check:
        _stage(root, approved.paths)
        place, was_there = _INDEX, False
    elif place is None:
        _require_same(root, approved)
        _require_clean(root, approved.paths)
        apply_approved(root, approved, index=options.index, check=options.check)
        place = None if options.check else _INDEX if options.index else _WORK_TREE
    result = {
        "review_id": approved.review_id,
        "digest": approved.digest,
        "place": place,
        "was_there": was_there,
        "paths": list(approved.paths),
    }
    context.answer(result, approved.review_id, _told(place, was_there=was_there), f" ({approved.digest})")
    return Exit.DONE


def _told(place: str | None, *, was_there: bool) -> str:
    if place is None:
        return " applies: the result is what was approved"
    return f" is in the {place} {'already' if was_there else 'now'}"


def _not_approved(context: Context, status: Json) -> int:
    review_id, state = status["review_id"], status["status"]
    match state:
        case "changes_requested":
            hint = f"`tandem show {review_id}` says why; propose again with `tandem propose --review {review_id}`."
        case "closed":
            hint = "It was closed without an approval; propose the change again with `tandem propose`."
        case _:
            hint = f"Wait for its verdict with `tandem wait {review_id}`; only what was approved is applied."
    error = BrokerError(Code.INVALID_TRANSITION, f"review {review_id} is {state}, not approved", hint)
    if context.wants_json:
        context.screen.json({"error": error.as_json()})
    else:
        context.screen.warn(f"tandem: {error.code}: {error.message}")
        context.screen.warn(error.hint)
    # The table's exit code for this error would say too little.
    return Exit.REFUSED


def _approved(context: Context, status: Json) -> Approved:
    review_id = status["review_id"]
    fetched = patches.fetch(context, review_id)
    proposal = fetched.proposal
    if proposal["revision"] != status["revision"] or proposal["version"] != status["version"]:
        raise BrokerError(Code.CONFLICT, f"review {review_id} changed at this moment", "Apply again.")
    if fetched.text is None:
        raise BrokerError(Code.NOT_FOUND, f"review {review_id} has no diff to apply", "There is nothing to do here.")
    if proposal["digest"] is None:
        raise BrokerError(
            Code.CONFLICT,
            f"review {review_id} was approved without a digest: its diff did not apply to HEAD alone",
            "Its content cannot be verified; commit what it builds on, then propose it again.",
        )
    paths = {name for file in proposal["affected_files"] for name in (file["path"], file["old_path"]) if name}
    return Approved(
        review_id=review_id, digest=proposal["digest"], diff=fetched.text.encode("utf-8"), paths=tuple(sorted(paths))
    )


def _digest(root: Path, diff: bytes, *, already_applied: bool) -> tuple[str | None, str | None]:
    """Compute the digest by the broker's code; also return the reason if git does not accept the diff."""
    import asyncio

    from gsd_review_broker.git.repository import GitRepository
    from gsd_review_broker.ports.world import DoesNotApply

    repository = GitRepository(root, allowed_roots=())
    checked = asyncio.run(repository.check(str(root), diff, already_applied=already_applied))
    return (None, checked.git_says) if isinstance(checked, DoesNotApply) else (checked.digest, None)


def _already(root: Path, approved: Approved) -> str | None:
    """Return the place where the approved change already is, or None."""
    place = None
    with changes.opened(root) as tree:
        if changes.staged_digest(tree) == approved.digest:
            place = _INDEX
        elif changes.worktree_digest(tree) == approved.digest:
            place = _WORK_TREE
    if place is not None:
        # The ids match; this also hashes the objects behind them.
        _require_same(root, approved)
        return place
    digest, _ = _digest(root, approved.diff, already_applied=True)
    return _COMMIT if digest == approved.digest else None


def _require_same(root: Path, approved: Approved) -> None:
    digest, why = _digest(root, approved.diff, already_applied=False)
    if digest != approved.digest:
        actual = f"here it would be {digest}" if digest else f"git says: {why or 'it applies only to the work tree'}"
        raise BrokerError(
            Code.CONFLICT,
            f"applied to HEAD, review {approved.review_id} would not give what was approved "
            f"({approved.digest}); {actual}",
            "HEAD has moved since. Go back to where it was proposed, or propose it again on the present HEAD.",
        )


def _require_clean(root: Path, paths: Sequence[str]) -> None:
    options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=none")
    status = run_users_git(root, "status", *options, "--", *map(_literal, paths))
    changed = [os.fsdecode(entry[3:]) for entry in status.output.split(b"\0") if entry]
    if changed:
        raise BrokerError(
            Code.CONFLICT,
            f"{', '.join(changed)}: changed here, and not committed",
            "Commit, stash or undo that first; then apply again.",
        )


def apply_approved(root: Path, approved: Approved, *, index: bool, check: bool) -> None:
    flags = [flag for flag, target in (("--index", index), ("--check", check)) if target]
    kept = WorkTreeSnapshot(root, approved.paths)
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        patch = Path(folder) / "diff"
        patch.write_bytes(approved.diff)
        done = run_users_git(root, "apply", "--whitespace=nowarn", *flags, "--", str(patch))
        if done.code != 0:
            raise BrokerError(
                Code.CONFLICT, f"git cannot apply it: {done.why}", "Nothing was changed; look at the work tree."
            )
        if not check and not _is_in(root, approved, index=index):
            undone = run_users_git(root, "apply", "--whitespace=nowarn", "--reverse", *flags, "--", str(patch))
            raise _converted(approved, is_undone=undone.code == 0 or (not index and kept.put_back()))


def _is_in(root: Path, approved: Approved, *, index: bool) -> bool:
    """Would a commit now record what was approved? A filter or an attribute may convert what git writes and reads."""
    with changes.opened(root) as tree:
        staged = changes.staged_digest(tree)
        if index:
            return staged == approved.digest
        # Other changes in the work tree are left out.
        return changes.worktree_digest(tree, approved.paths) == approved.digest


def _converted(approved: Approved, *, is_undone: bool) -> BrokerError:
    return BrokerError(
        Code.CONFLICT,
        f"review {approved.review_id}: filters or attributes of this repository change what was approved",
        "The files were restored. Look at .gitattributes and at filter.* in the configuration."
        if is_undone
        else "The files could not be restored: look at the work tree before you commit.",
    )


def _stage(root: Path, paths: Sequence[str]) -> None:
    done = run_users_git(root, "add", "--all", "--", *map(_literal, paths))
    if done.code != 0:
        raise BrokerError(Code.CONFLICT, f"git cannot stage it: {done.why}", "Stage it yourself.")


def _literal(path: str) -> str:
    return f":(top,literal){path}"


class _FileState(NamedTuple):
    mode: int
    content: bytes


class WorkTreeSnapshot:
    """Keeps the present files: git cannot always undo a change, since a filter may show it other content."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._kept = {root / path: _read(root / path) for path in paths}
        self._missing = {
            folder
            for path in self._kept
            for folder in path.parents
            if folder.is_relative_to(root) and not folder.exists()
        }

    def put_back(self) -> bool:
        """Return False if a file could not be restored."""
        with suppress(OSError):
            for path, kept in self._kept.items():
                if _read(path) != kept:
                    _write(path, kept)
            for folder in sorted(self._missing, reverse=True):
                folder.rmdir()
        return all(_read(path) == kept for path, kept in self._kept.items())


def _read(path: Path) -> _FileState | None:
    """Return None if there is nothing. A folder is kept as a name only: a submodule is not ours to change."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return _FileState(mode, os.fsencode(os.readlink(path)))  # noqa: PTH115 - as it is written
    return _FileState(mode, path.read_bytes() if stat.S_ISREG(mode) else b"")


def _write(path: Path, kept: _FileState | None) -> None:
    path.unlink(missing_ok=True)
    if kept is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(kept.mode):
        path.symlink_to(os.fsdecode(kept.content))
    else:
        path.write_bytes(kept.content)
        path.chmod(stat.S_IMODE(kept.mode))
