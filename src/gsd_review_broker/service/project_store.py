"""The store as the holder of a project's token sees it: other projects do not exist.

Every service of such a caller has this store instead of the whole one, so none of them has to remember the project.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.model import Identity, Milliseconds, Review, ReviewId
from gsd_review_broker.domain.rules.pool import Failure, Reviewer
from gsd_review_broker.domain.tally import EVERYTHING, Totals
from gsd_review_broker.domain.words import Status
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import (
    RANKS,
    FeedPosition,
    ListPosition,
    Reader,
    ReviewFilter,
    ReviewSummary,
    Store,
    Transaction,
)

T = TypeVar("T")
# No project has this name (service/validation.py).
_NOWHERE = " "
_LATEST = 2**62


class ProjectStore:
    def __init__(self, store: Store, project: str) -> None:
        self._store = store
        self._project = project

    @property
    def broker_id(self) -> str:
        return self._store.broker_id

    async def write(self, command: Callable[[Transaction], T]) -> T:
        return await self._store.write(lambda tx: command(cast("Transaction", _ProjectTransaction(tx, self._project))))

    async def read(self, query: Callable[[Reader], T]) -> T:
        return await self._store.read(lambda reader: query(cast("Reader", _ProjectReader(reader, self._project))))

    async def glance(self, query: Callable[[Reader], T]) -> T:
        return await self._store.glance(lambda reader: query(cast("Reader", _ProjectReader(reader, self._project))))

    async def archive(self, *, closed_before: Milliseconds, said_as: str, into: str) -> Any:
        raise whole_broker_only("archiving", self._project)


class _Forwarded:
    """A method of the whole store that is not narrowed."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, one: "_ProjectReader", owner: type) -> Any:
        return getattr(one.whole, self._name)


class _ProjectReader:
    """Has the reads that a project's caller needs. Each is narrowed to the project or forwarded; no other exists."""

    # These are asked with the id of a review that was found here before.
    revision = _Forwarded()
    events = _Forwarded()
    events_before = _Forwarded()
    messages = _Forwarded()
    last_message = _Forwarded()
    findings = _Forwarded()
    counter_patches = _Forwarded()
    open_counter_patch = _Forwarded()
    counter_patch_of = _Forwarded()
    work_on = _Forwarded()
    # These are about no review.
    last_event_id = _Forwarded()
    recall = _Forwarded()
    work_under_way = _Forwarded()
    work_of = _Forwarded()
    spent_since = _Forwarded()
    is_pool_paused = _Forwarded()
    landed_commit = _Forwarded()
    overrides_valid_at = _Forwarded()
    gate_override = _Forwarded()

    def __init__(self, reader: Reader, project: str) -> None:
        self.whole = reader
        self._project = project

    # Reviews.

    def review(self, review_id: ReviewId) -> Review | None:
        return self._own(self.whole.review(review_id))

    def ids_with_prefix(self, prefix: str, limit: int) -> list[ReviewId]:
        """Look at the first matches only."""
        found = self.whole.ids_with_prefix(prefix, 100 * limit)
        return [review_id for review_id in found if self.review(review_id) is not None][:limit]

    def reviews(self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int) -> list[Review]:
        own = self._filter(wanted)
        return self.whole.reviews(own, after=after, limit=limit) if own else []

    def summaries(self, wanted: ReviewFilter, *, after: ListPosition | None, limit: int) -> list[ReviewSummary]:
        own = self._filter(wanted)
        return self.whole.summaries(own, after=after, limit=limit) if own else []

    def feed(self, wanted: ReviewFilter, *, after: FeedPosition | None, limit: int) -> list[ReviewSummary]:
        own = self._filter(wanted)
        return self.whole.feed(own, after=after, limit=limit) if own else []

    # Counts.

    def totals(self, scope: str, *, most: int) -> Totals:
        return self.whole.totals(self._project if scope in {EVERYTHING, self._project} else _NOWHERE, most=most)

    def pending_by_priority(self) -> dict[str, int]:
        return self.whole.pending_by_priority(self._project)

    def pending_for_pool(self, _now: Milliseconds, *, at_most: int) -> int:
        return min(at_most, sum(self.pending_by_priority().values()))

    def oldest_pending_at(self) -> Milliseconds | None:
        """Look at the first of each priority; a list has the oldest first within each."""
        pending = ReviewFilter(status=Status.PENDING)
        first = [self.reviews(pending, after=(rank - 1, _LATEST, ""), limit=1) for rank in RANKS.values()]
        return min((review.created_at for page in first for review in page), default=None)

    def last_event_at(self) -> Milliseconds | None:
        latest = self.feed(ReviewFilter(), after=None, limit=1)
        return latest[0].updated_at if latest else None

    # The pool: reviewers that were started for this project.

    def reviewer(self, reviewer_id: Identity) -> Reviewer | None:
        reviewer = self.whole.reviewer(reviewer_id)
        return reviewer if reviewer is not None and reviewer.project == self._project else None

    def running_reviewers(self) -> list[Reviewer]:
        return [one for one in self.whole.running_reviewers() if one.project == self._project]

    def ended_reviewers(self, limit: int) -> list[Reviewer]:
        return [one for one in self.whole.ended_reviewers(limit) if one.project == self._project]

    def held_back(self, now: Milliseconds, limit: int) -> list[tuple[Failure, str | None]]:
        return [row for row in self.whole.held_back(now, limit) if self.review(row[0].review_id) is not None]

    # The gate: approvals of this project's reviews.

    def reviewed_change(self, review_id: ReviewId) -> ReviewedChange | None:
        return self.whole.reviewed_change(review_id) if self.review(review_id) is not None else None

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]:
        return self._changes(self.whole.approvals_beginning_at(path, old_id, limit))

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]:
        return self._changes(self.whole.approvals_on_path(path, limit))

    def approved_and_never_landed(self, limit: int) -> list[ReviewedChange]:
        return self._changes(self.whole.approved_and_never_landed(limit))

    def landed_commits(self, limit: int) -> list[LandedCommit]:
        return [one for one in self.whole.landed_commits(limit) if any(self.review(each) for each in one.reviews)]

    def landed_without_approval(self, _limit: int) -> list[LandedCommit]:
        """Return none: a commit without a review belongs to no project."""
        return []

    def latest_overrides(self, _limit: int) -> list[GateOverride]:
        return []

    def _own(self, review: Review | None) -> Review | None:
        return review if review is not None and review.project == self._project else None

    def _filter(self, wanted: ReviewFilter) -> ReviewFilter | None:
        """Narrow the filter to the project. None if it asks for another one."""
        return replace(wanted, project=self._project) if wanted.project in {None, self._project} else None

    def _changes(self, changes: list[ReviewedChange]) -> list[ReviewedChange]:
        return [change for change in changes if self.review(change.review_id) is not None]


class _ProjectTransaction(_ProjectReader):
    now = _Forwarded()
    save = _Forwarded()
    extend_claim = _Forwarded()
    take = _Forwarded()
    remember = _Forwarded()
    append = _Forwarded()
    save_reviewed_change = _Forwarded()
    save_landed = _Forwarded()

    def __init__(self, tx: Transaction, project: str) -> None:
        super().__init__(tx, project)
        self._tx = tx

    def lock_review(self, review_id: ReviewId) -> Review | None:
        return self._own(self._tx.lock_review(review_id))

    def lock_reviewer(self, reviewer_id: Identity) -> Reviewer | None:
        return self._tx.lock_reviewer(reviewer_id) if self.reviewer(reviewer_id) is not None else None


def whole_broker_only(action: str, project: str) -> BrokerError:
    return BrokerError(
        Code.FORBIDDEN,
        f"{action} is for the whole broker, and this token is for the project {project}",
        "Use a token without a project.",
    )
