"""The audit: a hash chain of events, and their replay, which must give what is stored.

`check` serves both `tandem audit verify` and the tests after a fault run (invariants I2 to I6). It reads everything as
streams, in the order of the chain and then review by review, so a million reviews need no more memory than ten.
"""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gsd_review_broker.domain.model import CounterPatch, Event, Finding, Milliseconds, NewEvent, Review
from gsd_review_broker.domain.rules.proposals import FIXED
from gsd_review_broker.domain.rules.transitions import FACTS
from gsd_review_broker.domain.tally import Progress, Tally, Totals, observe, scopes_of
from gsd_review_broker.domain.text import canonical, same_identity
from gsd_review_broker.domain.words import CounterPatchStatus, Disposition, EventType, Status

FIRST_HASH = "0" * 64


def chained(previous_hash: str, number: int, event: NewEvent, metadata: str) -> str:
    """Hash an event: the previous hash, its number and all its fields."""
    text = canonical(
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
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """A run of events that was moved into an archive, and the hashes between which the chain goes on."""

    first: int
    last: int
    previous_hash: str
    hash: str


def seal(gaps: Iterable[Gap]) -> str:
    """Hash all gaps. The newest checkpoint event records this hash, so that no gap can be added afterwards."""
    whole = hashlib.sha256()
    for gap in gaps:
        whole.update(f"{gap.first} {gap.last} {gap.previous_hash} {gap.hash}\n".encode())
    return whole.hexdigest()


def check_chain(
    chain: Iterable[Event], *, gaps: list[Gap], head: tuple[int, str], with_archives: bool
) -> Iterator[str]:
    """Check up to the first event that was altered: nothing can be proven about the events after it."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A stored review, and the rows beside it. Contents are hashes, in the order in which they came."""

    review: Review
    contents: dict[EventType, list[str]]
    counter_patches: list[CounterPatch]
    findings: list[Finding]


# The rows stored beside a review, by the event that records them.
CONTENTS = {
    EventType.REVIEW_REVISED: "revision",
    EventType.MESSAGE_SENT: "message",
    EventType.COUNTER_PATCH_OFFERED: "counter-patch",
}
_GIVES_REASON = {EventType.VERDICT_SUBMITTED, EventType.VERDICT_COMMENT, EventType.REVIEW_AUTO_REJECTED}
_CLEARS_REASON = {
    EventType.REVIEW_RELEASED,
    EventType.REVIEW_RECLAIMED,
    EventType.REVIEW_REVISED,
    EventType.COUNTER_PATCH_ACCEPTED,
}
# Each of these brings a revision, and the hash of its content.
_REVISIONS = {EventType.REVIEW_CREATED, EventType.REVIEW_REVISED, EventType.COUNTER_PATCH_ACCEPTED}
# Recorded for a finding each time it is raised, and afterwards until it is resolved.
_WORDS = ("severity", "title", "body", "suggestion", "confidence")


@dataclass(slots=True)
class _Replayed:
    """A review in the state that its events give."""

    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    moments: dict[str, Milliseconds | None] = field(default_factory=dict[str, Milliseconds | None])
    status: Status | None = None
    version: int = 0
    verdict_reason: str | None = None
    message_count: int = 0
    progress: Progress | None = None
    contents: dict[EventType, list[str]] = field(default_factory=lambda: defaultdict[EventType, list[str]](list))
    counter_patches: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    findings: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


def check_reviews(by_review: Iterable[Event], stored: Iterable[Stored], counted: dict[str, Totals]) -> Iterator[str]:
    """Replay and count each review's events, and compare the result with the stored review."""
    rows = iter(stored)
    row = next(rows, None)
    for review_id, events in itertools.groupby(by_review, key=lambda event: event.review_id or ""):
        state, problems = _replayed(events, counted)
        yield from problems
        while row is not None and row.review.id < review_id:
            yield f"review {row.review.id} is stored and has no events"
            row = next(rows, None)
        if row is None or row.review.id != review_id:
            yield f"review {review_id} has events and is not stored"
            continue
        yield from _compare(state, row)
        row = next(rows, None)
    while row is not None:
        yield f"review {row.review.id} is stored and has no events"
        row = next(rows, None)


def _replayed(events: Iterable[Event], counted: dict[str, Totals]) -> tuple[_Replayed, list[str]]:
    state, problems, tally = _Replayed(), list[str](), Tally()
    for event in events:
        problems += _step(state, event)
        state.progress = observe(state.progress, event, tally)
        problems += _advance(state, event)
        _keep_beside(state, event)
    project = state.progress.project if state.progress else None
    for scope in scopes_of(project):
        counted[scope].add(tally)
    return state, problems


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
            problems.append(f"event {event.id}: {event.actor} approved its own work")
        if event.metadata.get("digest") != state.facts.get("digest"):
            problems.append(f"event {event.id}: the approved digest is not the current revision's")
    return problems


def _advance(state: _Replayed, event: Event) -> list[str]:
    before = state.facts.get("claim_generation", 0)
    known = (*FACTS, *FIXED) if event.event_type is EventType.REVIEW_CREATED else FACTS
    for name in known:
        if name in event.metadata and not (name == "verdict" and event.event_type is EventType.VERDICT_COMMENT):
            state.facts[name] = event.metadata[name]
    if event.event_type in _GIVES_REASON:
        state.verdict_reason = event.metadata.get("reason")
    elif event.event_type in _CLEARS_REASON:
        state.verdict_reason = None
    state.message_count += event.event_type is EventType.MESSAGE_SENT
    state.status, state.version = event.new_status, state.version + 1
    _note_moment(state, event)
    if state.facts.get("claim_generation", 0) < before:
        return [f"event {event.id}: the claim generation of review {event.review_id} shrank"]
    return []


def _note_moment(state: _Replayed, event: Event) -> None:
    moments, now = state.moments, event.timestamp
    moments["updated_at"] = now
    match event.event_type:
        case EventType.REVIEW_CREATED:
            moments["created_at"] = now
        case EventType.REVIEW_CLAIMED:
            moments["claimed_at"] = now
            moments.setdefault("first_claimed_at", now)
        case EventType.VERDICT_SUBMITTED:
            moments.setdefault("first_verdict_at", now)
        case EventType.MESSAGE_SENT:
            moments["last_message_at"] = now
        case EventType.REVIEW_CLOSED:
            moments["closed_at"] = now
        case _:
            pass
    if state.facts.get("claimed_by") is None:
        moments["claimed_at"] = None


def _keep_beside(state: _Replayed, event: Event) -> None:
    """Replay the rows beside the review: contents, counter-patches and findings."""
    metadata = event.metadata
    if "content_hash" in metadata:
        kind = EventType.REVIEW_REVISED if event.event_type in _REVISIONS else event.event_type
        state.contents[kind].append(metadata["content_hash"])
    settled = metadata.get("counter_patch_status")
    if settled is not None and state.counter_patches and state.counter_patches[-1][0] == CounterPatchStatus.PENDING:
        reason = metadata.get("reason") if event.event_type is EventType.COUNTER_PATCH_REJECTED else None
        offered = event.event_type is EventType.COUNTER_PATCH_OFFERED
        state.counter_patches[-1] = (CounterPatchStatus.SUPERSEDED if offered else settled, reason)
    if event.event_type is EventType.COUNTER_PATCH_OFFERED:
        state.counter_patches.append((CounterPatchStatus.PENDING, None))
    if event.event_type is EventType.FINDING_RESOLVED:
        finding = state.findings.setdefault(metadata["finding_id"], {})
        finding |= {"disposition": metadata["disposition"], "note": metadata["reason"]}
    elif event.event_type in {EventType.VERDICT_SUBMITTED, EventType.VERDICT_COMMENT}:
        for remark in metadata.get("findings", ()):
            words = {name: remark[name] for name in _WORDS}
            state.findings[remark["finding_id"]] = words | {"disposition": Disposition.OPEN, "note": None}


def _compare(state: _Replayed, row: Stored) -> Iterator[str]:
    review = row.review
    replayed = {
        **state.facts,
        **state.moments,
        "status": state.status,
        "version": state.version,
        "verdict_reason": state.verdict_reason,
        "message_count": state.message_count,
    }
    if state.progress is not None:
        replayed |= {"entered_at": state.progress.entered_at, "last_verdict": state.progress.last_verdict}
    for name, value in replayed.items():
        if getattr(review, name) != value:
            yield f"review {review.id}: {name} is stored as {getattr(review, name)!r}, its events say {value!r}"
    for kind, what in CONTENTS.items():
        yield from _compare_rows(review, what, state.contents[kind], row.contents.get(kind, []))
    settled = [(patch.status, patch.reason) for patch in row.counter_patches]
    yield from _compare_rows(review, "counter-patch", state.counter_patches, settled)
    findings = {finding.id: finding for finding in row.findings}
    for finding_id in sorted(state.findings.keys() | findings.keys()):
        finding, words = findings.get(finding_id), state.findings.get(finding_id)
        if finding is None or words is None or any(getattr(finding, name) != words[name] for name in words):
            yield f"review {review.id}: finding {finding_id} is not what its events say"
    if list(state.findings) != list(findings) and state.findings.keys() == findings.keys():
        yield f"review {review.id}: its findings are not in the order of its events"


def _compare_rows(review: Review, what: str, replayed: list[Any], stored: list[Any]) -> Iterator[str]:
    for number, (expected, actual) in enumerate(itertools.zip_longest(replayed, stored), 1):
        if expected != actual:
            yield f"review {review.id}: {what} {number} is not what its events say"


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
    """Return what is wrong, as sentences that name the first bad event.

    `by_review` holds the same events grouped by review; `stored` holds the reviews in the same order of ids. Without
    `totals` the statistics are not compared: they include archived reviews. With its archives the chain has no gaps.
    """
    problems = list(check_chain(chain, gaps=list(gaps), head=head, with_archives=with_archives))
    if problems:
        return problems
    counted: dict[str, Totals] = defaultdict(Totals)
    problems += check_reviews(by_review, stored, counted)
    if totals is not None:
        problems += _compare_totals(counted, totals)
    return problems


def _compare_totals(counted: dict[str, Totals], stored: dict[str, Totals]) -> Iterator[str]:
    for scope in sorted(counted.keys() | stored.keys()):
        where = f"project {scope}" if scope else "all projects"
        replayed, recorded = counted.get(scope) or Totals(), stored.get(scope) or Totals()
        for name, key in sorted(replayed.counts.keys() | recorded.counts.keys()):
            expected, actual = replayed.counts.get((name, key), 0), recorded.counts.get((name, key), 0)
            if expected != actual:
                yield f"statistics of {where}: {name} {key} is {actual}, the events say {expected}"
        for name in sorted(replayed.spreads.keys() | recorded.spreads.keys()):
            if replayed.spreads.get(name) != recorded.spreads.get(name):
                yield f"statistics of {where}: {name} is not what the events say"
