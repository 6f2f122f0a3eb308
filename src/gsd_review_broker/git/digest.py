"""What exactly a change is: git's raw records, and the digest over them.

Everything that compares an approval with content uses this module: the claim, `tandem apply`, the demo, the gate and
its hook. It uses the standard library only, because a hook runs for a few milliseconds.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gsd_review_broker.domain.gate.records import digest_of_sorted
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.program import run_git, text_of

# Submodules count whatever .gitmodules or the configuration says; nothing is converted, detected or abbreviated.
RAW = (
    "-r", "-z", "--raw", "--no-renames", "--full-index", "--no-abbrev", "--ignore-submodules=none",
    "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative",
)  # fmt: skip
_METADATA = re.compile(rb":[0-7]{6} [0-7]{6} ([0-9a-f]{40}|[0-9a-f]{64}) ([0-9a-f]{40}|[0-9a-f]{64}) [ACDMTU]")


class Record(NamedTuple):
    """One changed path: `:old-mode new-mode old-id new-id status`, and the path as git stores it."""

    metadata: bytes
    path: bytes


def records_of(raw: bytes) -> list[Record]:
    """The records in git's output, in git's order. Output that is cut short or of another form is an error."""
    fields = raw.split(b"\0")
    if fields.pop() or len(fields) % 2:
        raise ValueError("git's raw records are cut short")
    records = [Record(*pair) for pair in zip(fields[::2], fields[1::2], strict=True)]
    for record in records:
        if not _METADATA.fullmatch(record.metadata) or not record.path:
            raise ValueError(f"not a raw record of git: {record.metadata[:100]!r}")
    return records


def digest_of_records(records: Iterable[Record]) -> str | None:
    """Over the records sorted bytewise, each its metadata, NUL, its path, NUL. None if there are none: the digest of
    nothing would equal that of every other change that git shows as nothing."""
    lines = sorted(b"%b\0%b\0" % record for record in records)
    return digest_of_sorted(b"".join(lines)) if lines else None


def range_records(folder: str | Path, old: str, new: str, *, environment: dict[str, str] | None = None) -> list[Record]:
    """What changes from one commit or tree to another. Use full object names: a branch may move."""
    return _records(folder, "diff-tree", *RAW, "--end-of-options", old, new, "--", environment=environment)


def commit_records(folder: str | Path, commit: str, *, environment: dict[str, str] | None = None) -> list[Record]:
    """What a commit changes against its first parent; a commit without a parent creates all that it holds.

    The parent is read from the commit object itself: what a graft or a shallow boundary says of it does not count."""
    content = _must(folder, "cat-file", "commit", commit, environment=environment)
    headers = content.partition(b"\n\n")[0].split(b"\n")
    parents = [text_of(line.removeprefix(b"parent ")) for line in headers if line.startswith(b"parent ")]
    parent = parents[0] if parents else empty_tree(folder, environment=environment)
    return range_records(folder, parent, commit, environment=environment)


def empty_tree(folder: str | Path, *, environment: dict[str, str] | None = None) -> str:
    """The empty tree's id in the repository's object format. git knows the object without storing it."""
    return text_of(_must(folder, "hash-object", "-t", "tree", "--stdin", environment=environment))


def _records(folder: str | Path, *arguments: str, environment: dict[str, str] | None) -> list[Record]:
    try:
        return records_of(_must(folder, *arguments, environment=environment))
    except ValueError as error:
        raise _unavailable(arguments[0], str(error)) from error


def _must(folder: str | Path, *arguments: str, environment: dict[str, str] | None) -> bytes:
    answer = run_git(folder, *arguments, environment=environment)
    # git may exit with 0 although it could not read everything; then it prints an error.
    if not answer.is_good:
        raise _unavailable(arguments[0], answer.why)
    return answer.output


def _unavailable(command: str, why: str) -> BrokerError:
    return BrokerError(Code.UNAVAILABLE, f"git {command} failed: {why}", "Look at the repository, then call again.")
