"""The check of a diff: does it apply to HEAD, and what exactly would it change?

git applies the diff to an index that holds the touched paths alone, in an empty repository beside the real one. What
git makes of it is then compared with what the diff shows: the same content, from hunks at their own lines, with the
same modes, and no other path.
"""

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from gsd_review_broker.domain.gate.records import Entry, Step, blob_id, raw_records
from gsd_review_broker.domain.patch import reading, safety
from gsd_review_broker.domain.patch.reading import FilePatch
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.objects import (
    MOST_BYTES,
    SUBMODULE_MODE,
    BaseTree,
    IndexEntry,
    IsolatedRepository,
    Objects,
    TooLargeError,
    digest_of_records,
    index_bytes,
    make_empty_repository,
    make_isolated_repository,
    opened_objects,
    read_index,
)
from gsd_review_broker.git.program import Answer, run_git, text_of
from gsd_review_broker.ports.world import Applies, DoesNotApply, Offset

_APPLY = ("apply", "--whitespace=nowarn")
OBJECT_STORE = ("rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-object-format")
_OBJECT_ID = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_MOVED = re.compile(r"Hunk #(\d+) succeeded at \d+ \(offset (-?\d+) lines?\)\.")
_REGENERATE = "regenerate the diff against HEAD"


@dataclass(frozen=True, slots=True)
class _FileSection:
    """One file of the diff, in the direction in which it is applied."""

    file: FilePatch
    source: bytes | None
    target: bytes | None
    source_mode: str | None
    target_mode: str | None


class MisleadingDiffError(Exception):
    """git accepts the diff, but its result is not what the diff shows. The message tells the author why."""


class DiffCheck:
    """One check: a workspace, a diff, and a scratch folder that the caller makes and removes."""

    def __init__(self, workspace: str, folder: Path, diff: bytes, *, timeout: float, base: str = "HEAD") -> None:
        self._workspace, self._folder, self._diff, self._timeout = workspace, folder, diff, timeout
        self._base = base
        # A file, not a pipe: git may stop before it has read everything, and a closed pipe is not an answer.
        self._patch = folder / "diff"
        self._patch.write_bytes(diff)

    def run(self, *, already_applied: bool) -> Applies | DoesNotApply:
        """Against HEAD first; if that fails, against the work tree as it is.

        With `already_applied` the change is already in the tree, and only its digest is computed.
        """
        try:
            files = reading.read(self._diff)
        except reading.UnreadableDiffError as error:
            # A diff that cannot be read completely has no digest: the unread part could change anything.
            return Applies(digest=None) if already_applied else DoesNotApply(git_says=self._unreadable(str(error)))
        unclear = safety.unclear_sections(files)
        if unclear:
            return Applies(digest=None) if already_applied else DoesNotApply(git_says=unclear)
        try:
            on_head = self._on_head(files, reverse=already_applied)
        except MisleadingDiffError as error:
            # The work tree is not tried: a diff that HEAD takes in another sense than shown is not reviewed.
            return Applies(digest=None) if already_applied else DoesNotApply(git_says=str(error))
        if already_applied:
            return on_head if isinstance(on_head, Applies) else Applies(digest=None)
        if isinstance(on_head, Applies) or not self._fits_work_tree():
            return on_head
        return Applies(digest=None)

    def _unreadable(self, why: str) -> str:
        """Explain it in git's own words, if git cannot read it either."""
        answer = self._git(self._folder, "apply", "--numstat", "--", str(self._patch))
        return answer.why if answer.code != 0 else f"the diff cannot be read completely ({why}): {_REGENERATE}"

    def _on_head(self, files: tuple[FilePatch, ...], *, reverse: bool) -> Applies | DoesNotApply:
        commit, scratch = self._scratch()
        with opened_objects(scratch.folder, scratch.environment, scratch.object_format, self._timeout) as objects:
            sections = [_section(file, reverse=reverse) for file in files]
            try:
                answer = _OnHead(self, scratch, objects, sections, reverse=reverse).checked(commit)
            except TooLargeError:
                return DoesNotApply(git_says=f"the touched files hold more than {MOST_BYTES} bytes")
        # A change that HEAD has already is not made on HEAD.
        return replace(answer, base=commit) if isinstance(answer, Applies) and not reverse else answer

    def _scratch(self) -> tuple[str | None, IsolatedRepository]:
        """HEAD's commit (None before the first one), and a repository beside the real one."""
        answer = self._git(self._workspace, *OBJECT_STORE, "--verify", "--quiet", self._base)
        # A path may contain a line feed, so the lines are taken from the end.
        lines = text_of(answer.output).split("\n")
        commit = lines.pop() if _OBJECT_ID.fullmatch(lines[-1]) else None
        object_format = lines.pop()
        if not lines or object_format not in {"sha1", "sha256"}:
            raise BrokerError(
                Code.UNAVAILABLE,
                f"git does not answer in {self._workspace}: {answer.why}",
                "See that git runs there, then claim again.",
            )
        return commit, make_isolated_repository(self._folder, objects="\n".join(lines), object_format=object_format)

    def apply(self, scratch: IsolatedRepository, entries: dict[bytes, IndexEntry], *options: str) -> Answer:
        """git's answer about the diff, over an index with these entries."""
        scratch.index.write_bytes(index_bytes(entries, scratch.object_format))
        arguments = (*_APPLY, "--cached", *options, "--", str(self._patch))
        return self._git(scratch.folder, *arguments, environment=scratch.environment)

    def complaint(self, answer: Answer) -> str:
        return answer.why.replace(str(self._patch), "the diff")

    @property
    def diff(self) -> bytes:
        return self._diff

    def _fits_work_tree(self) -> bool:
        """Say whether every hunk fits the work tree at its own line. git is started in an empty repository, because the
        real one's configuration could name programs that filter files."""
        empty = make_empty_repository(self._folder / "apart", "sha1")
        environment = {"GIT_DIR": str(empty), "GIT_WORK_TREE": self._workspace}
        arguments = (*_APPLY, "--check", "--verbose", "--", str(self._patch))
        answer = self._git(self._workspace, *arguments, environment=environment)
        return answer.is_good and not any(map(_MOVED.fullmatch, answer.errors.split("\n")))

    def _git(self, folder: str | Path, *arguments: str, environment: dict[str, str] | None = None) -> Answer:
        return ask_git(folder, *arguments, environment=environment, timeout=self._timeout)


class _OnHead:
    def __init__(
        self,
        check: DiffCheck,
        scratch: IsolatedRepository,
        objects: Objects,
        sections: list[_FileSection],
        *,
        reverse: bool,
    ) -> None:
        self._check, self._scratch, self._objects = check, scratch, objects
        self._sections, self._reverse = sections, reverse

    def checked(self, commit: str | None) -> Applies | DoesNotApply:
        paths = {path for section in self._sections for path in (section.source, section.target) if path is not None}
        before = BaseTree(self._objects, commit).entries(paths)
        for entry in before.values():
            if entry.mode != SUBMODULE_MODE:
                self._objects.verify(entry.object_id)
        answer = self._check.apply(self._scratch, before, *(("--reverse",) if self._reverse else ()))
        if not answer.is_good:
            return DoesNotApply(git_says=self._check.complaint(answer))
        after = read_index(self._scratch.index.read_bytes(), self._scratch.object_format)
        return self._compared(before, after)

    def _compared(self, before: dict[bytes, IndexEntry], after: dict[bytes, IndexEntry]) -> Applies:
        self._require_shown(before, after)
        moved = [section for section in self._sections if not self._is_as_shown(section, before, after)]
        offsets = self._offsets(moved, before) if moved else ()
        old, new = (after, before) if self._reverse else (before, after)
        steps = {
            path: Step(self._side(old.get(path)), self._side(new.get(path)))
            for path in old.keys() | new.keys()
            if old.get(path) != new.get(path)
        }
        digest = digest_of_records(steps)
        if digest is None:
            raise MisleadingDiffError("the diff changes nothing")
        return Applies(digest=digest, offsets=offsets, records=raw_records(steps))

    def _side(self, entry: IndexEntry | None) -> Entry:
        absent = IndexEntry("000000", "0" * hashlib.new(self._scratch.object_format).digest_size * 2)
        mode, object_id = entry or absent
        return Entry(mode.encode("ascii"), object_id.encode("ascii"))

    def _require_shown(self, before: dict[bytes, IndexEntry], after: dict[bytes, IndexEntry]) -> None:
        """Refuse an outcome with a path or a mode that the diff does not show."""
        expected = dict(before)
        for section in self._sections:
            source = None if section.source is None else before.get(section.source)
            if source is not None and section.source_mode not in {None, source.mode}:
                raise MisleadingDiffError(
                    f"{section.file.path} has mode {source.mode} and not {section.source_mode}: {_REGENERATE}"
                )
            if section.source is not None and section.source != section.target and not section.file.copied:
                expected.pop(section.source, None)
            if section.target is not None:
                default = source.mode if source else "100644"
                expected[section.target] = IndexEntry(section.target_mode or default, "")
        outcome = {path: entry.mode for path, entry in after.items()}
        if outcome != {path: entry.mode for path, entry in expected.items()}:
            raise MisleadingDiffError(f"git's result differs from what the diff shows: {_REGENERATE}")

    def _is_as_shown(
        self, section: _FileSection, before: dict[bytes, IndexEntry], after: dict[bytes, IndexEntry]
    ) -> bool:
        """Say whether the outcome follows from the hunks at their own lines. The stored blob is hashed again."""
        if section.target is None:
            return True
        outcome = after[section.target]
        if outcome.mode != SUBMODULE_MODE:
            self._objects.verify(outcome.object_id)
        if section.file.binary:
            # git compares both sides of a binary patch with the ids in its header.
            return True
        source = None if section.source is None else before[section.source]
        if not section.file.hunks:
            return source is None or source.object_id == outcome.object_id
        content = reading.applied(self._check.diff, section.file, self._content(source), reverse=self._reverse)
        return content is not None and self._content_id(content, outcome.mode) == outcome.object_id

    def _content(self, entry: IndexEntry | None) -> bytes:
        if entry is None:
            return b""
        if entry.mode == SUBMODULE_MODE:
            return f"Subproject commit {entry.object_id}\n".encode()
        return self._objects.read(entry.object_id, "blob")

    def _content_id(self, content: bytes, mode: str) -> str:
        if mode == SUBMODULE_MODE:
            return content.decode("utf-8", "replace").removeprefix("Subproject commit ").strip()
        return blob_id(content, self._scratch.object_format)

    def _offsets(self, moved: list[_FileSection], before: dict[bytes, IndexEntry]) -> tuple[Offset, ...]:
        """Say where git put the hunks, if each file is an honest diff against an older blob of this repository."""
        answer = self._check.apply(self._scratch, before, "--check", "--verbose")
        reported = _reported(answer.errors, self._sections)
        for section in moved:
            offsets = [offset for offset in reported if offset.path == section.file.path]
            if self._reverse or not offsets or not self._is_honest(section.file):
                place = ", ".join(f"hunk {offset.hunk} by {offset.offset:+d} lines" for offset in offsets[:5])
                raise MisleadingDiffError(
                    f"{section.file.path} applies only away from its own line numbers "
                    f"({place or 'its headers contradict each other'}): {_REGENERATE}"
                )
        return tuple(reported)

    def _is_honest(self, file: FilePatch) -> bool:
        """Say whether the repository has the blob that the diff names, and every hunk applies there at its own line."""
        older = self._objects.blob_named(file.base_id) if file.base_id else None
        return older is not None and reading.applied(self._check.diff, file, older) is not None


def _section(file: FilePatch, *, reverse: bool) -> _FileSection:
    if reverse:
        return _FileSection(file, file.new_name, file.old_name, file.new_mode, file.old_mode)
    return _FileSection(file, file.old_name, file.new_name, file.old_mode, file.new_mode)


def _reported(errors: str, sections: list[_FileSection]) -> list[Offset]:
    """git goes through the files in the diff's order and says what it does with each hunk. A name cannot pass for
    such a line: git quotes line feeds."""
    offsets: list[Offset] = []
    number = -1
    for line in errors.split("\n"):
        if line.startswith("Checking patch "):
            number += 1
        match = _MOVED.fullmatch(line)
        if match is not None and 0 <= number < len(sections):
            offsets.append(Offset(path=sections[number].file.path, hunk=int(match[1]), offset=int(match[2])))
    return offsets


def ask_git(folder: str | Path, *arguments: str, timeout: float, environment: dict[str, str] | None = None) -> Answer:
    try:
        return run_git(folder, *arguments, environment=environment, timeout=timeout)
    except FileNotFoundError as error:
        missing = "git" if shutil.which("git") is None else folder
        raise _no_git(f"{missing} was not found") from error
    except subprocess.TimeoutExpired as error:
        raise _no_git(f"git {arguments[0]} took longer than {timeout:g} s") from error


def _no_git(why: str) -> BrokerError:
    return BrokerError(Code.UNAVAILABLE, why, "The review stays as it is; see that git works, then call again.")
