"""Does a review's newest revision apply to its repository? The one place that asks git this question.

The content of a revision never changes, so the number of the revision names it. The repository does change: a claim or
a verdict therefore demands a new answer, and a page may show one that is a few seconds old.
"""

import asyncio
from collections import OrderedDict

from gsd_review_broker.domain.model import Milliseconds, Review, ReviewId, Revision
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.observe import telemetry
from gsd_review_broker.ports.world import Applies, DoesNotApply, Offset
from gsd_review_broker.service.core import Core

_FRESH_MILLISECONDS = 5_000
_MOST_REMEMBERED = 256
_OFFSETS_PATIENCE_SECONDS = 2.0

_Key = tuple[ReviewId, int]
# git's answer, or why there is none.
Answer = Applies | DoesNotApply | BrokerError


class Applicability:
    def __init__(self, core: Core) -> None:
        self._core = core
        # One question to git for all callers that ask about the same content at the same time.
        self._running: dict[_Key, asyncio.Task[Answer]] = {}
        self._answers: OrderedDict[_Key, tuple[Milliseconds, Answer]] = OrderedDict()

    async def demand(self, review: Review) -> Applies | DoesNotApply:
        """Ask git now; raise if git cannot be asked. Never called inside a transaction."""
        if not review.has_diff:
            return Applies(digest=None)
        # Shielded: a caller that goes away leaves the answer to those who stay.
        answer = await asyncio.shield(self._task(review))
        if isinstance(answer, BrokerError):
            # A new error for each caller: front ends add to it.
            raise BrokerError(answer.code, answer.message, answer.next or answer.hint)
        return answer

    async def of(self, review: Review, *, patience: float) -> Answer | None:
        """Return the last answer if it is fresh, else a new one; None if git takes longer than `patience` seconds."""
        if not review.has_diff:
            return Applies(digest=None)
        known = self._answers.get((review.id, review.revision))
        if known is not None and self._core.clock.steady() - known[0] < _FRESH_MILLISECONDS:
            return known[1]
        task = self._task(review)
        await asyncio.wait({task}, timeout=patience)
        return task.result() if task.done() else None

    async def offsets(self, review: Review) -> tuple[Offset, ...]:
        """Return how far the hunks of an older diff are from their own lines, by the last answer.

        After a restart git is asked again while the review is under review.
        """
        known = self._answers.get((review.id, review.revision))
        answer = known[1] if known is not None else None
        if answer is None and review.digest is not None and review.is_claim_live:
            answer = await self.of(review, patience=_OFFSETS_PATIENCE_SECONDS)
        return answer.offsets if isinstance(answer, Applies) else ()

    def last(self, review_id: ReviewId) -> Applies | None:
        """Return what git said last about this review, if it applied."""
        answers = (answer for (known, _), (_, answer) in reversed(self._answers.items()) if known == review_id)
        answer = next(answers, None)
        return answer if isinstance(answer, Applies) else None

    def _task(self, review: Review) -> asyncio.Task[Answer]:
        key = review.id, review.revision
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._ask(review))
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return task

    async def _ask(self, review: Review) -> Answer:
        try:
            revision = await self._core.store.glance(
                lambda reader: reader.revision(review.id, review.revision, with_diff=True)
            )
            answer = await self._check(review, revision)
        except BrokerError as error:
            answer = error
        self._answers[review.id, review.revision] = self._core.clock.steady(), answer
        self._answers.move_to_end((review.id, review.revision))
        if len(self._answers) > _MOST_REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    async def _check(self, review: Review, revision: Revision | None) -> Applies | DoesNotApply:
        if revision is None or revision.diff is None:
            raise BrokerError(Code.NOT_FOUND, f"review {review.id} is gone", "It was closed and archived.")
        skips = revision.skip_diff_validation
        if review.workspace is None and skips:
            return Applies(digest=None)
        with telemetry.span("git.check", review_id=review.id):
            checked = await self._core.repository.check(review.workspace, revision.diff, already_applied=skips)
        if isinstance(checked, Applies) and not revision.affected_files and not skips:
            return DoesNotApply(git_says="git takes this diff, but the broker cannot tell what it touches: remake it")
        return checked
