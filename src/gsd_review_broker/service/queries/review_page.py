"""What the page of one review shows, read in one snapshot; and the audit, newest first."""

from collections.abc import Callable
from dataclasses import dataclass

from gsd_review_broker.domain import audit
from gsd_review_broker.domain.gate.records import parse_records
from gsd_review_broker.domain.model import (
    ApprovalPolicy,
    CounterPatch,
    Event,
    Finding,
    Identity,
    Message,
    Milliseconds,
    Review,
    ReviewId,
    Revision,
)
from gsd_review_broker.domain.rules.verdicts import texts_of
from gsd_review_broker.domain.words import Status
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Reader
from gsd_review_broker.ports.world import Applies
from gsd_review_broker.service.applies import Answer, Applicability
from gsd_review_broker.service.approvals import missing_in
from gsd_review_broker.service.core import Core, find_review
from gsd_review_broker.service.queries.reviews import is_own_event
from gsd_review_broker.service.wire.reviews import AuditLog, EventResult, event_result

# A page reads no more than this of either; the audit and the tools have everything.
MOST_MESSAGES = 500
MOST_EVENTS = 200
# A page waits this long for git; the next request has the answer.
_PATIENCE_SECONDS = 0.4
# A viewer asked for lines that only git has.
_BASE_PATIENCE_SECONDS = 10.0
# A larger file is not shown whole.
LARGEST_BASE = 1024 * 1024
# A search goes back this far at a time, and then returns where to go on.
_LOOKED_AT = 5_000
_CHAIN_LOOKED_AT = 1_000
_EVENTS_OF_HISTORY = 2_000
_AT_ONCE = 500
_MOST_POINTS = 200
# Moments, and how many reviews were pending from then on.
QueuePoints = list[tuple[Milliseconds, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewFacts:
    review: Review
    # The revision that is shown, and all revisions; none with its diff.
    content: Revision
    revisions: tuple[Revision, ...]
    findings: tuple[Finding, ...]
    messages: tuple[Message, ...]
    counter_patches: tuple[CounterPatch, ...]
    events: tuple[EventResult, ...]
    now: Milliseconds
    # Who approved this content, and what the policy still asks for; None where it asks for one reviewer.
    approved_by: tuple[str, ...] = ()
    missing: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChainStatus:
    checked: int
    problem: str | None


class ReviewPageQueries:
    def __init__(self, core: Core, applies: Applicability) -> None:
        self._core = core
        self._applies = applies

    @property
    def now(self) -> Milliseconds:
        return self._core.clock.now()

    async def review(self, review_id: str, revision: int | None = None) -> ReviewFacts:
        now = self.now
        return await self._core.store.read(
            lambda reader: _facts(reader, review_id, revision, now, self._core.policy.approvals)
        )

    async def find(self, review_id: str) -> Review:
        return await self._core.find(review_id)

    async def diff(self, review_id: ReviewId, number: int) -> bytes | None:
        return (await self._core.store.read(lambda reader: _content(reader, review_id, number, with_diff=True))).diff

    async def base_of(self, review: Review, number: int, name: bytes) -> bytes:
        """Read a file as it was in the base on which git checked this revision, if that is known."""
        step = parse_records(await self._records(review, number)).get(name)
        if step is None or step.old.is_absent or review.workspace is None:
            raise _no_base(review, number)
        return await self._core.repository.blob(review.workspace, step.old.object_id.decode("ascii"), most=LARGEST_BASE)

    async def _records(self, review: Review, number: int) -> bytes:
        """Read the records of the claim; before a claim, those of what git says now."""
        change = await self._core.store.read(lambda reader: reader.reviewed_change(review.id))
        if change is not None and change.revision == number:
            return change.records
        if number != review.revision or review.status in {Status.APPROVED, Status.CLOSED}:
            raise _no_base(review, number)
        answer = await self._applies.of(review, patience=_BASE_PATIENCE_SECONDS)
        if not isinstance(answer, Applies) or answer.records is None:
            raise _no_base(review, number)
        return answer.records

    async def saw(self, person: str, review: Review) -> None:
        """Extend the deadline of a person who reads what they claimed."""
        await self._core.saw(Identity(person), review)

    async def applies(self, review: Review) -> Answer | None:
        """Does the newest revision apply now? Once the review is approved or closed, git need not be asked."""
        if review.status in {Status.APPROVED, Status.CLOSED}:
            return Applies(digest=review.digest)
        return await self._applies.of(review, patience=_PATIENCE_SECONDS)

    # The audit.

    async def last_event_id(self) -> int:
        return await self._core.store.glance(lambda reader: reader.last_event_id())

    async def chain(self) -> ChainStatus:
        """Are the newest events unaltered? `tandem audit verify` checks all of them."""
        return await self._core.store.read(_chain)

    async def queue_history(self) -> QueuePoints:
        now = self.now
        only_own = self._core.project is not None
        return await self._core.store.read(lambda reader: queue_history(reader, now, only_own=only_own))

    async def recent_events(
        self,
        *,
        review_id: str | None,
        before: int | None,
        limit: int,
        wanted: Callable[[EventResult], bool],
    ) -> AuditLog:
        """Newest first. `next_cursor` says where to go on, also when a search has looked at enough for one call."""
        review = await self._core.find(review_id) if review_id else None
        only_own = review is None and self._core.project is not None
        return await self._core.store.read(
            lambda reader: _recent(reader, review.id if review else None, before, limit, wanted, only_own=only_own)
        )


def _facts(
    reader: Reader, review_id: str, revision: int | None, now: Milliseconds, policy: ApprovalPolicy
) -> ReviewFacts:
    review = find_review(reader, review_id)
    found = missing_in(reader, review, policy)
    number = review.revision if revision is None else revision
    revisions = tuple(_content(reader, review.id, each, with_diff=False) for each in range(1, review.revision + 1))
    if not 1 <= number <= review.revision:
        raise _no_revision(review.id, number)
    events = reader.events_before(review_id=review.id, before=None, limit=MOST_EVENTS)
    return ReviewFacts(
        review=review,
        content=revisions[number - 1],
        revisions=revisions,
        findings=tuple(reader.findings(review.id)),
        messages=tuple(reader.messages(review.id, round_=None, after=0, limit=MOST_MESSAGES)),
        counter_patches=tuple(reader.counter_patches(review.id)),
        events=tuple(event_result(event) for event in reversed(events)),
        now=now,
        approved_by=found[0].approvers if found else (),
        missing=tuple(texts_of(found[1])) if found else None,
    )


def _chain(reader: Reader) -> ChainStatus:
    events = reader.events(
        review_id=None, after=max(0, reader.last_event_id() - _CHAIN_LOOKED_AT), limit=_CHAIN_LOOKED_AT
    )
    before: Event | None = None
    for event in events:
        # Archived events leave a gap; the chain continues behind it.
        follows = before is None or before.id + 1 < event.id or event.previous_hash == before.hash
        if not follows or event.hash != audit.recomputed(event):
            return ChainStatus(len(events), f"event {event.id} was altered: its hash does not fit")
        before = event
    return ChainStatus(len(events), None)


def _content(reader: Reader, review_id: ReviewId, number: int, *, with_diff: bool) -> Revision:
    content = reader.revision(review_id, number, with_diff=with_diff)
    if content is None:
        raise _no_revision(review_id, number)
    return content


def _no_base(review: Review, number: int) -> BrokerError:
    return BrokerError(
        Code.NOT_FOUND,
        f"the broker does not know the base of revision {number} of review {review.id}",
        "Only lines that the diff shows can be seen: git has not checked it, or it does not apply to HEAD.",
    )


def _no_revision(review_id: ReviewId, number: int) -> BrokerError:
    return BrokerError(Code.NOT_FOUND, f"review {review_id} has no revision {number}", "Its page lists those it has.")


def _recent(
    reader: Reader,
    review_id: ReviewId | None,
    before: int | None,
    limit: int,
    wanted: Callable[[EventResult], bool],
    *,
    only_own: bool,
) -> AuditLog:
    found: list[EventResult] = []
    looked_at = 0
    while True:
        events = reader.events_before(review_id=review_id, before=before, limit=_AT_ONCE)
        for event in events:
            before = event.id
            shown = event_result(event)
            if wanted(shown) and (not only_own or is_own_event(reader, event)):
                found.append(shown)
            if len(found) == limit:
                return {"events": found, "next_cursor": before if before > 1 else None}
        looked_at += len(events)
        if len(events) < _AT_ONCE:
            return {"events": found, "next_cursor": None}
        if looked_at >= _LOOKED_AT:
            return {"events": found, "next_cursor": before}


def queue_history(reader: Reader, now: Milliseconds, *, only_own: bool = False) -> QueuePoints:
    """Return how many reviews were waiting for a reviewer over time, oldest first; the last point is now."""
    pending = sum(reader.pending_by_priority().values())
    points: QueuePoints = [(now, pending)]
    for event in reader.events_before(review_id=None, before=None, limit=_EVENTS_OF_HISTORY):
        if only_own and not is_own_event(reader, event):
            continue
        change = (event.new_status is Status.PENDING) - (event.old_status is Status.PENDING)
        if change:
            points.append((event.timestamp, pending))
            pending = max(0, pending - change)
    points.reverse()
    return _thinned(points)


def _thinned(points: QueuePoints) -> QueuePoints:
    if len(points) <= _MOST_POINTS:
        return points
    step = len(points) / _MOST_POINTS
    kept = [points[int(index * step)] for index in range(_MOST_POINTS)]
    return [*kept, points[-1]]
