"""The chain: how events are hashed, and how the hashes prove that no event was altered, added or removed."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gsd_review_broker.domain.json_text import canonical
from gsd_review_broker.domain.model import Event, NewEvent
from gsd_review_broker.domain.words import EventType

FIRST_HASH = "0" * 64


def chained(previous_hash: str, number: int, event: NewEvent, metadata: str) -> str:
    """The hash of an event: over the previous hash, its number and all its fields."""
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
    """One hash over all gaps. The newest checkpoint event records it, so that nobody can add a gap afterwards."""
    whole = hashlib.sha256()
    for gap in gaps:
        whole.update(f"{gap.first} {gap.last} {gap.previous_hash} {gap.hash}\n".encode())
    return whole.hexdigest()


def check_chain(
    chain: Iterable[Event], *, gaps: list[Gap], head: tuple[int, str], with_archives: bool
) -> Iterator[str]:
    """Stops at the first event that was altered: nothing can be proven about the events after it."""
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
