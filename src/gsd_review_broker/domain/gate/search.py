"""Finding the approvals that may cover a commit: along the blobs, from what the commit begins with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gsd_review_broker.domain.gate.decision import Commit, without_exempt
from gsd_review_broker.domain.gate.ledger import Origin, ReviewedChange
from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.domain.gate.records import Steps, parse_records

# What is looked up for one question, and how many approvals of one place are considered. What lies beyond is told.
_MOST_LOOKUPS = 20_000
_MOST_IN_ONE_PLACE = 500
_MOST_APPROVALS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Newest first. Not complete: there are older approvals that were not looked at."""

    changes: tuple[ReviewedChange, ...]
    is_complete: bool


class Approvals(Protocol):
    """Where approvals are kept: the broker's store, or its file. The newest come first."""

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]: ...

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]: ...


def approvals(
    kept: Approvals, commits: Sequence[Commit], policy: GatePolicy, origin: Origin, *, thorough: bool
) -> Candidates:
    """Of this repository. Not thorough: by one path of each commit, enough where a commit is one whole review."""
    guarded = [without_exempt(commit.steps, policy) for commit in commits]
    places = [
        (path, step.old.object_id) for steps in guarded for path, step in sorted(steps.items())[: _depth(thorough)]
    ]
    matching: dict[str, ReviewedChange] = {}
    seen: set[tuple[bytes, bytes]] = set()
    is_complete = True
    while places and len(seen) < _MOST_LOOKUPS and len(matching) < _MOST_APPROVALS:
        place = places.pop()
        if place in seen:
            continue
        seen.add(place)
        changes = kept.approvals_beginning_at(*place, _MOST_IN_ONE_PLACE)
        is_complete = is_complete and len(changes) < _MOST_IN_ONE_PLACE
        for change in changes:
            if change.review_id in matching or not change.origin.is_same(origin):
                continue
            matching[change.review_id] = change
            if thorough:
                places += [(path, step.new.object_id) for path, step in parse_records(change.records).items()]
    ordered = sorted(matching.values(), key=lambda change: (-(change.approved_at or 0), change.review_id))
    return Candidates(changes=tuple(ordered), is_complete=is_complete and not places)


def _depth(thorough: bool) -> int | None:
    return None if thorough else 1


def of_same_paths(kept: Approvals, steps: Steps, origin: Origin, policy: GatePolicy) -> Candidates:
    """Approvals of exactly these paths, whatever their content. Those that have not landed come first."""
    changes = kept.approvals_on_path(min(steps), _MOST_IN_ONE_PLACE)
    same = [
        change
        for change in changes
        if change.origin.is_same(origin)
        and without_exempt(parse_records(change.records), policy).keys() == steps.keys()
    ]
    same.sort(key=lambda change: (change.landed_at is not None, -(change.approved_at or 0)))
    return Candidates(changes=tuple(same), is_complete=len(changes) < _MOST_IN_ONE_PLACE)
