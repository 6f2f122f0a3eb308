"""What a change does to each path: the records of `git diff-tree --raw`, and how changes are put together."""

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

_METADATA = re.compile(rb":([0-7]{6}) ([0-7]{6}) ([0-9a-f]{40}|[0-9a-f]{64}) ([0-9a-f]{40}|[0-9a-f]{64}) [ACDMTU]")
_SHA1_LENGTH = 40


class Entry(NamedTuple):
    """One side of a record: mode and object id; all zeros where the path does not exist."""

    mode: bytes
    object_id: bytes

    @property
    def is_absent(self) -> bool:
        return not self.mode.strip(b"0")


class Step(NamedTuple):
    """What happens to one path."""

    old: Entry
    new: Entry


# The whole change: one step for each path.
Steps = dict[bytes, Step]


def parse_records(raw: bytes) -> Steps:
    """Read git's output of `-z --raw --no-renames --full-index`: metadata, NUL, path, NUL. Raises ValueError on
    anything else."""
    fields = raw.split(b"\0")
    if fields.pop() or len(fields) % 2:
        raise ValueError("git's raw records are cut short")
    steps = {path: _step(metadata) for metadata, path in zip(fields[::2], fields[1::2], strict=True)}
    if b"" in steps or len(steps) * 2 != len(fields):
        raise ValueError("git's raw records name a path twice, or none")
    return steps


def _step(metadata: bytes) -> Step:
    match = _METADATA.fullmatch(metadata)
    if match is None:
        raise ValueError(f"not a raw record of git: {metadata[:100]!r}")
    old_mode, new_mode, old_id, new_id = match.groups()
    return Step(Entry(old_mode, old_id), Entry(new_mode, new_id))


def raw_records(steps: Steps) -> bytes:
    """Write them as git prints them, sorted bytewise: a digest is made of this text."""
    return b"".join(sorted(_raw(path, step) for path, step in steps.items()))


def _raw(path: bytes, step: Step) -> bytes:
    old, new = step
    metadata = b" ".join((old.mode, new.mode, old.object_id, new.object_id, _letter(old, new)))
    return b":%b\0%b\0" % (metadata, path)


def _letter(old: Entry, new: Entry) -> bytes:
    if old.is_absent:
        return b"A"
    if new.is_absent:
        return b"D"
    # The kind of a file is in the first digits of its mode: a file, a link, a submodule.
    return b"M" if old.mode[:3] == new.mode[:3] else b"T"


def digest_of_sorted(records: bytes) -> str:
    """Return the name of a change, by its sorted records."""
    return "sha256:" + hashlib.sha256(records).hexdigest()


def composed(changes: Iterable[Steps]) -> Steps | None:
    """Join changes to a single one; None where one does not begin where the one before it ends."""
    whole: Steps = {}
    for steps in changes:
        for path, step in steps.items():
            before = whole.get(path)
            if before is not None and before.new != step.old:
                return None
            whole[path] = Step(before.old if before else step.old, step.new)
    return {path: step for path, step in whole.items() if step.old != step.new}


def path_key(path: bytes) -> str:
    """Return the key of a path's approvals: a path may be longer than an index takes, and need not be text."""
    return hashlib.sha256(path).hexdigest()


def object_format(object_id: str) -> str:
    """Say how git hashes in the repository of this object."""
    return "sha1" if len(object_id) == _SHA1_LENGTH else "sha256"


def blob_id(content: bytes, kind: str) -> str:
    """Return the id that git gives to a file with this content."""
    return hashlib.new(kind, b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
