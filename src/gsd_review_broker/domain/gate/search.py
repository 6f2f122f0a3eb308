"""Finding the approvals that may cover a commit: along the blobs, from what the commit begins with."""

import hashlib
from collections.abc import Sequence
from typing import Protocol

from gsd_review_broker.domain.gate.decision import Commit, without_exempt
from gsd_review_broker.domain.gate.ledger import Origin, ReviewedChange
from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.domain.gate.records import Steps, parse_records

# What is looked up for one question, and how many approvals of one place are considered.
_MOST_LOOKUPS = 20_000
_MOST_IN_ONE_PLACE = 50
_MOST_APPROVALS = 500


class Approvals(Protocol):
    """Where approvals are kept: the broker's store, or its file."""

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]: ...

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]: ...


def approvals(
    kept: Approvals, commits: Sequence[Commit], policy: GatePolicy, origin: Origin, *, thorough: bool
) -> list[ReviewedChange]:
    """Of this repository. Not thorough: by one path of each commit, enough where a commit is one whole review."""
    guarded = [without_exempt(commit.steps, policy) for commit in commits]
    places = [
        (path, step.old.object_id) for steps in guarded for path, step in sorted(steps.items())[: _depth(thorough)]
    ]
    found: dict[str, ReviewedChange] = {}
    seen: set[tuple[bytes, bytes]] = set()
    while places and len(seen) < _MOST_LOOKUPS and len(found) < _MOST_APPROVALS:
        place = places.pop()
        if place in seen:
            continue
        seen.add(place)
        for change in kept.approvals_beginning_at(*place, _MOST_IN_ONE_PLACE):
            if change.review_id in found or not change.origin.is_same(origin):
                continue
            found[change.review_id] = change
            if thorough:
                places += [(path, step.new.object_id) for path, step in parse_records(change.records).items()]
    return sorted(found.values(), key=lambda change: (-(change.approved_at or 0), change.review_id))


def _depth(thorough: bool) -> int | None:
    return None if thorough else 1


def of_same_paths(kept: Approvals, steps: Steps, origin: Origin, policy: GatePolicy) -> list[ReviewedChange]:
    """Approvals of exactly these paths, whatever their content; the newest first."""
    first = min(steps)
    return sorted(
        (
            change
            for change in kept.approvals_on_path(first, _MOST_IN_ONE_PLACE)
            if change.origin.is_same(origin)
            and without_exempt(parse_records(change.records), policy).keys() == steps.keys()
        ),
        key=lambda change: -(change.approved_at or 0),
    )


def digest(records: bytes) -> str:
    """Of records that are sorted already (git.digest makes the same of git's own output)."""
    return "sha256:" + hashlib.sha256(records).hexdigest()
