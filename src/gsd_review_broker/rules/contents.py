"""What an event says of content that is too large for it: a hash, by which a change of the stored rows shows."""

import hashlib

from gsd_review_broker.model import CounterPatch, Message, Revision


def hash_of_revision(revision: Revision) -> str:
    return _hash(revision.intent, revision.description, revision.diff, str(int(revision.skip_diff_validation)))


def hash_of_message(message: Message) -> str:
    return _hash(message.sender, message.body, message.path, str(message.line))


def hash_of_counter_patch(patch: CounterPatch) -> str:
    return _hash(patch.offered_by, patch.diff)


def _hash(*parts: str | bytes | None) -> str:
    """Each part with its length before it, so that no two contents read the same."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        whole.update(b"-" if data is None else b"%d:%b" % (len(data), data))
    return whole.hexdigest()
