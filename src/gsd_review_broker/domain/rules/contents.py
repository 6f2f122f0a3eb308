"""Hashes of content that is too large for an event. They reveal a change of the stored rows."""

import hashlib
from typing import Any

from gsd_review_broker.domain.json_text import canonical, compact
from gsd_review_broker.domain.model import AffectedFile, CounterPatch, Message, Revision


def hash_of_revision(revision: Revision) -> str:
    fields = [
        revision.number,
        revision.intent,
        revision.description,
        int(revision.skip_diff_validation),
        files_text(revision.affected_files),
        revision.author,
        revision.written_by,
    ]
    return _hash(fields, revision.diff)


def hash_of_message(message: Message) -> str:
    fields = [
        message.round,
        message.sender_role,
        message.sender,
        message.body,
        message.path,
        message.line,
        message.in_reply_to,
        message.metadata,
    ]
    return _hash(fields, None)


def hash_of_counter_patch(patch: CounterPatch) -> str:
    return _hash([patch.revision, patch.round, patch.offered_by, files_text(patch.affected_files)], patch.diff)


def files_text(files: tuple[AffectedFile, ...]) -> str:
    """The files as they are stored."""
    rows = [(f.path, f.operation, f.added, f.removed, f.old_path, f.binary, f.old_mode, f.new_mode) for f in files]
    return compact(rows)


def _hash(fields: list[Any], diff: bytes | None) -> str:
    # A lone surrogate in a caller's text must not prevent hashing.
    whole = hashlib.sha256(canonical(fields).encode("utf-8", "surrogatepass"))
    if diff is not None:
        whole.update(b"\0")
        whole.update(diff)
    return whole.hexdigest()
