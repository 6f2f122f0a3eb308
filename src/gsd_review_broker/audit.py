"""The audit's chain: how events are hashed, and what proves a database whole.

`check` is what the tests after a fault run and `tandem audit verify` share (invariants I2 to I6). It reads everything
as streams, in the order of the chain and then review by review, so that it needs no more memory for a million reviews
than for ten.
"""

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gsd_review_broker.model import Event, EventType, NewEvent, Review, Status, same_identity
from gsd_review_broker.rules.transitions import FACTS
from gsd_review_broker.tally import Progress, Tally, Totals, observe, scopes_of

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


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """A run of events that was moved into an archive, and the hashes between which the chain goes on."""

    first: int
    last: int
    previous_hash: str
    hash: str


def seal(gaps: Iterable[Gap]) -> str:
    """One hash over all gaps. The newest checkpoint says it, so that a gap cannot be made afterwards."""
    whole = hashlib.sha256()
    for gap in gaps:
        whole.update(f"{gap.first} {gap.last} {gap.previous_hash} {gap.hash}\n".encode())
    return whole.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A review as it is stored, with the hashes of its contents in the order in which they came."""

    review: Review
    contents: dict[EventType, list[str]]


def check(
    chain: Iterable[Event],
    *,
    gaps: Iterable[Gap],
    head: tuple[int, str],
    by_review: Iterable[Event],
    stored: Iterable[Stored],
    totals: dict[str, Totals] | None,
    with_archives: bool = False,
) -> list[str]:
    """What is wrong, in words that name the first bad event; nothing wrong is an empty list.

    `by_review` are the same events review by review, `stored` the reviews in the same order of ids. Without `totals`
    the statistics are not compared: they count archived reviews too. With its archives the chain has no gaps."""
    problems = list(check_chain(chain, gaps=list(gaps), head=head, with_archives=with_archives))
    if problems:
        return problems
    counted: dict[str, Totals] = defaultdict(Totals)
    problems += check_reviews(by_review, stored, counted)
    if totals is not None:
        problems += _compare_totals(counted, totals)
    return problems


def check_chain(
    chain: Iterable[Event], *, gaps: list[Gap], head: tuple[int, str], with_archives: bool
) -> Iterator[str]:
    """Stops at the first event that is not what it was: after it nothing can be told."""
    over = {} if with_archives else {gap.first: gap for gap in gaps}
    number, previous = 0, FIRST_HASH
    sealed = seal([])
    for event in chain:
        while gap := over.pop(number + 1, None):
            if gap.previous_hash != previous:
                yield f"gap: the archived events {gap.first} to {gap.last} do not continue event {number}"
                return
            number, previous = gap.last, gap.hash
        if event.id != number + 1:
            yield f"gap: event {number + 1} is missing, the next is {event.id}"
            return
        if event.previous_hash != previous or event.hash != recomputed(event):
            yield f"event {event.id} was altered: its hash does not fit"
            return
        number, previous = event.id, event.hash
        if event.event_type is EventType.AUDIT_CHECKPOINT:
            sealed = event.metadata.get("gaps_hash", "")
    if (number, previous) != head:
        yield f"gap: the chain ends at event {number}, its head says {head[0]}"
    elif over or sealed != seal(gaps):
        yield "the record of archived events was altered: it is not what the newest checkpoint says"


def recomputed(event: Event) -> str:
    return chained(event.previous_hash, event.id, event, canonical(event.metadata))


def check_reviews(by_review: Iterable[Event], stored: Iterable[Stored], counted: dict[str, Totals]) -> Iterator[str]:
    """Replay each review's events and compare with what is stored; count them on the way."""
    rows = iter(stored)
    row = next(rows, None)
    for review_id, events in itertools.groupby(by_review, key=lambda event: event.review_id):
        if review_id is None:
            continue
        state, problems = _replayed(events, counted)
        yield from problems
        while row is not None and row.review.id < review_id:
            yield f"review {row.review.id} is stored, and no event tells of it"
            row = next(rows, None)
        if row is None or row.review.id != review_id:
            yield f"review {review_id} has events and is not stored"
            continue
        yield from _compare(state, row)
        row = next(rows, None)
    while row is not None:
        yield f"review {row.review.id} is stored, and no event tells of it"
        row = next(rows, None)


@dataclass(slots=True)
class _Replayed:
    """What the events say that a review must be."""

    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    status: Status | None = None
    version: int = 0
    verdict_reason: str | None = None
    message_count: int = 0
    progress: Progress | None = None
    contents: dict[EventType, list[str]] = field(default_factory=lambda: defaultdict[EventType, list[str]](list))


_GIVES_REASON = {EventType.VERDICT_SUBMITTED, EventType.VERDICT_COMMENT, EventType.REVIEW_AUTO_REJECTED}
_CLEARS_REASON = {
    EventType.REVIEW_RELEASED,
    EventType.REVIEW_RECLAIMED,
    EventType.REVIEW_REVISED,
    EventType.COUNTER_PATCH_ACCEPTED,
}
# Under which event a revision's content is kept, however it came to be.
_REVISIONS = {EventType.REVIEW_CREATED, EventType.REVIEW_REVISED, EventType.COUNTER_PATCH_ACCEPTED}


def _replayed(events: Iterable[Event], counted: dict[str, Totals]) -> tuple[_Replayed, list[str]]:
    state, problems, tally = _Replayed(), list[str](), Tally()
    for event in events:
        problems += _step(state, event)
        state.progress = observe(state.progress, event, tally)
        problems += _advance(state, event)
    project = state.progress.project if state.progress else None
    for scope in scopes_of(project):
        counted[scope].add(tally)
    return state, problems


def _advance(state: _Replayed, event: Event) -> list[str]:
    before = state.facts.get("claim_generation", 0)
    for name in FACTS:
        if name in event.metadata and not (name == "verdict" and event.event_type is EventType.VERDICT_COMMENT):
            state.facts[name] = event.metadata[name]
    if event.event_type in _GIVES_REASON:
        state.verdict_reason = event.metadata.get("reason")
    elif event.event_type in _CLEARS_REASON:
        state.verdict_reason = None
    content = event.metadata.get("content_hash")
    if content is not None:
        kind = EventType.REVIEW_REVISED if event.event_type in _REVISIONS else event.event_type
        state.contents[kind].append(content)
    state.message_count += event.event_type is EventType.MESSAGE_SENT
    state.status, state.version = event.new_status, state.version + 1
    if state.facts.get("claim_generation", 0) < before:
        return [f"event {event.id}: the claim generation of review {event.review_id} shrank"]
    return []


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


def _compare(state: _Replayed, row: Stored) -> Iterator[str]:
    review = row.review
    told = {
        **state.facts,
        "status": state.status,
        "version": state.version,
        "verdict_reason": state.verdict_reason,
        "message_count": state.message_count,
    }
    if state.progress is not None:
        told |= {"entered_at": state.progress.entered_at, "last_verdict": state.progress.last_verdict}
    for name, value in told.items():
        if getattr(review, name) != value:
            yield f"review {review.id}: {name} is stored as {getattr(review, name)!r}, its events say {value!r}"
    for kind, what in CONTENTS.items():
        said, found = state.contents[kind], row.contents.get(kind, [])
        for number, (expected, actual) in enumerate(itertools.zip_longest(said, found), 1):
            if expected != actual:
                yield f"review {review.id}: {what} {number} is not what its event says"


# What is kept beside a review, by the event that tells of it.
CONTENTS = {
    EventType.REVIEW_REVISED: "revision",
    EventType.MESSAGE_SENT: "message",
    EventType.COUNTER_PATCH_OFFERED: "counter-patch",
}


def _compare_totals(counted: dict[str, Totals], stored: dict[str, Totals]) -> Iterator[str]:
    for scope in sorted(counted.keys() | stored.keys()):
        where = f"project {scope}" if scope else "all projects"
        told, kept = counted.get(scope) or Totals(), stored.get(scope) or Totals()
        for name, key in sorted(told.counts.keys() | kept.counts.keys()):
            said, found = told.counts.get((name, key), 0), kept.counts.get((name, key), 0)
            if said != found:
                yield f"statistics of {where}: {name} {key} is {found}, the events say {said}"
        for name in sorted(told.spreads.keys() | kept.spreads.keys()):
            if told.spreads.get(name) != kept.spreads.get(name):
                yield f"statistics of {where}: {name} is not what the events say"
