"""The audit's chain: how events are hashed, and what proves a database whole.

`check` is what the tests after a fault run and `tandem audit verify` share (invariants I2 to I6).
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gsd_review_broker.model import Event, EventType, NewEvent, Review, ReviewId, Status, same_identity
from gsd_review_broker.rules.transitions import FACTS

FIRST_HASH = "0" * 64


def canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def chained(previous_hash: str, number: int, event: NewEvent, metadata: str) -> str:
    """The hash of an event: over the one before it, its number and all that it says."""
    said = canonical(
        [
            previous_hash,
            number,
            event.review_id,
            event.event_type,
            event.actor,
            event.old_status,
            event.new_status,
            event.timestamp,
            metadata,
        ]
    )
    return hashlib.sha256(said.encode("utf-8")).hexdigest()


@dataclass(slots=True)
class _Replayed:
    """What the events say that a review must be."""

    facts: dict[str, Any]
    status: Status | None
    version: int
    verdict_reason: str | None = None
    closed: bool = False


_GIVES_REASON = {EventType.VERDICT_SUBMITTED, EventType.VERDICT_COMMENT, EventType.REVIEW_AUTO_REJECTED}
_CLEARS_REASON = {
    EventType.REVIEW_RELEASED,
    EventType.REVIEW_RECLAIMED,
    EventType.REVIEW_REVISED,
    EventType.COUNTER_PATCH_ACCEPTED,
}


def check(
    events: Iterable[Event],
    *,
    stored: Callable[[ReviewId], Review | None],
    review_count: int,
    head: tuple[int, str],
) -> list[str]:
    """What is wrong, in words that name the first bad event; nothing wrong is an empty list."""
    problems: list[str] = []
    replayed: dict[ReviewId, _Replayed] = {}
    number, previous = 0, FIRST_HASH
    for event in events:
        if event.id != number + 1:
            return [*problems, f"gap: event {number + 1} is missing, the next is {event.id}"]
        if event.previous_hash != previous or event.hash != _recomputed(previous, event):
            return [*problems, f"event {event.id} was altered: its hash does not fit"]
        number, previous = event.id, event.hash
        problems += _replay(replayed, event)
    if (number, previous) != head:
        problems.append(f"gap: the chain ends at event {number}, its head says {head[0]}")
    if len(replayed) != review_count:
        problems.append(f"{review_count} reviews are stored, and events tell of {len(replayed)}")
    for review_id, state in replayed.items():
        problems += _compare(review_id, state, stored(review_id))
    return problems


def _recomputed(previous: str, event: Event) -> str:
    return chained(previous, event.id, event, canonical(event.metadata))


def _replay(replayed: dict[ReviewId, _Replayed], event: Event) -> list[str]:
    if event.review_id is None:
        return []
    state = replayed.get(event.review_id)
    if state is None:
        state = replayed[event.review_id] = _Replayed(facts={}, status=None, version=0)
    problems = _step(state, event)
    before = state.facts.get("claim_generation", 0)
    for name in FACTS:
        if name in event.metadata and not (name == "verdict" and event.event_type is EventType.VERDICT_COMMENT):
            state.facts[name] = event.metadata[name]
    if state.facts.get("claim_generation", 0) < before:
        problems.append(f"event {event.id}: the claim generation of review {event.review_id} shrank")
    if event.event_type in _GIVES_REASON:
        state.verdict_reason = event.metadata.get("reason")
    elif event.event_type in _CLEARS_REASON:
        state.verdict_reason = None
    state.status, state.version = event.new_status, state.version + 1
    return problems


def _step(state: _Replayed, event: Event) -> list[str]:
    problems: list[str] = []
    if event.old_status != state.status:
        problems.append(
            f"event {event.id}: review {event.review_id} was {state.status}, the event says {event.old_status}"
        )
    if event.event_type is EventType.REVIEW_CLAIMED and state.status is not Status.PENDING:
        problems.append(f"event {event.id}: review {event.review_id} was claimed while {state.status}")
    if event.event_type is EventType.VERDICT_SUBMITTED and event.metadata.get("verdict") == "approved":
        if same_identity(event.actor, state.facts.get("author")):
            problems.append(f"event {event.id}: {event.actor} approved what it alone stands behind")
        if event.metadata.get("digest") != state.facts.get("digest"):
            problems.append(f"event {event.id}: the approved digest is not the current revision's")
    return problems


def _compare(review_id: ReviewId, state: _Replayed, review: Review | None) -> list[str]:
    if review is None:
        return [f"review {review_id} has events and is not stored"]
    told = {
        **state.facts,
        "status": state.status,
        "version": state.version,
        "verdict_reason": state.verdict_reason,
    }
    return [
        f"review {review_id}: {name} is stored as {getattr(review, name)!r}, its events say {value!r}"
        for name, value in told.items()
        if getattr(review, name) != value
    ]
