"""The reviews that need a person, why, and since when; and those that go on without one."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from gsd_review_broker.domain.model import Identity, Message, Milliseconds, Review
from gsd_review_broker.domain.text import is_human, same_identity
from gsd_review_broker.domain.words import EventType, Role, Status
from gsd_review_broker.ports.store import Reader, ReviewFilter
from gsd_review_broker.service.core import Core

# Pending this long means that no reviewer is available.
STUCK_AFTER_MILLISECONDS = 15 * 60_000
# An agent that answers at all answers sooner than this.
UNANSWERED_AFTER_MILLISECONDS = 10 * 60_000
# Cap; the overflow is not counted.
_MOST = 200
_LATELY = 50
_UNDER_WAY = (Status.CLAIMED, Status.IN_REVIEW, Status.CHANGES_REQUESTED)


class Need(StrEnum):
    """Why a review is in the inbox, the most pressing reason first."""

    ASKED = "asked"
    QUESTION = "question"
    VERDICT = "verdict"
    PROPOSAL = "proposal"
    STUCK = "stuck"


_ORDER = {need: rank for rank, need in enumerate(Need)}


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxEntry:
    review: Review
    need: Need
    why: str
    since: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbox:
    entries: tuple[InboxEntry, ...]
    under_way: tuple[Review, ...]
    is_empty_broker: bool


class Inboxes:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def of(self, person: str) -> Inbox:
        now = self._core.clock.now()
        return await self._core.store.read(lambda reader: _inbox(reader, Identity(person), now))


def _inbox(reader: Reader, person: Identity, now: Milliseconds) -> Inbox:
    by_review: dict[str, InboxEntry] = {}
    for entry in _needs(reader, person, now):
        known = by_review.get(entry.review.id)
        if known is None or _ORDER[entry.need] < _ORDER[known.need]:
            by_review[entry.review.id] = entry
    entries = sorted(by_review.values(), key=lambda entry: (_ORDER[entry.need], entry.since))
    going = [review for status in (*_UNDER_WAY, Status.PENDING) for review in _listed(reader, status)]
    quiet = [review for review in going if review.id not in by_review]
    quiet.sort(key=lambda review: -review.updated_at)
    nothing_ever = not entries and not quiet and reader.last_event_id() == 0
    return Inbox(entries=tuple(entries), under_way=tuple(quiet), is_empty_broker=nothing_ever)


def _listed(reader: Reader, status: Status) -> list[Review]:
    return reader.reviews(ReviewFilter(status=status), after=None, limit=_MOST)


def _needs(reader: Reader, person: Identity, now: Milliseconds) -> Iterator[InboxEntry]:
    for review in reader.reviews(ReviewFilter(needs_human=True, only_live=True), after=None, limit=_MOST):
        why = review.needs_human or ""
        yield InboxEntry(review=review, need=Need.ASKED, why=why, since=_asked_at(reader, review))
    for review in _listed(reader, Status.PENDING):
        if now - review.updated_at >= STUCK_AFTER_MILLISECONDS:
            why = "pending, and not claimed"
            yield InboxEntry(review=review, need=Need.STUCK, why=why, since=review.updated_at)
    for status in _UNDER_WAY:
        for review in _listed(reader, status):
            yield from _of_both_sides(reader, review, person, now)
    for review in reader.reviews(ReviewFilter(status=Status.APPROVED, proposer_id=person), after=None, limit=_MOST):
        why = "your proposal is approved: apply and close it"
        yield InboxEntry(review=review, need=Need.PROPOSAL, why=why, since=review.updated_at)


def _asked_at(reader: Reader, review: Review) -> Milliseconds:
    for event in reader.events_before(review_id=review.id, before=None, limit=_LATELY):
        if event.event_type is EventType.HUMAN_REQUESTED:
            return event.timestamp
    return review.updated_at


def _of_both_sides(reader: Reader, review: Review, person: Identity, now: Milliseconds) -> Iterator[InboxEntry]:
    last = reader.last_message(review.id)
    # Any later event is an answer.
    if last is not None and last.created_at == review.updated_at and not is_human(last.sender):
        why = _unanswered(review, last, person, now)
        if why is not None:
            yield InboxEntry(review=review, need=Need.QUESTION, why=why, since=last.created_at)
    if review.is_claim_live and same_identity(review.claimed_by, person):
        since = review.claimed_at or review.updated_at
        yield InboxEntry(review=review, need=Need.VERDICT, why="you claimed it: it waits for your verdict", since=since)
    if review.status is Status.CHANGES_REQUESTED and same_identity(review.proposer, person):
        why = "changes were requested in your proposal"
        yield InboxEntry(review=review, need=Need.PROPOSAL, why=why, since=review.updated_at)


def _unanswered(review: Review, last: Message, person: Identity, now: Milliseconds) -> str | None:
    """Say why the message needs a person: it is addressed to one, or an agent's question got no answer."""
    addressee = review.claimed_by if last.sender_role is Role.PROPOSER else review.proposer
    if same_identity(addressee, person):
        return f"{last.sender} waits for your answer"
    if "?" in last.body and now - last.created_at >= UNANSWERED_AFTER_MILLISECONDS:
        return f"{last.sender} asked, and {addressee or 'the reviewer'} has not answered"
    return None
