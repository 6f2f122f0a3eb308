"""The pool's reviewers: what they worked on, which reviews they failed on, and how tokens are shared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gsd_review_broker.domain.model import Identity, Milliseconds, NewEvent, Review, ReviewId, values_of
from gsd_review_broker.domain.words import EndReason, EventType, ReviewerState, Status, WorkOutcome

# After this many reviewers that stop without a verdict, a person is asked.
FAILURES_THAT_NEED_A_PERSON = 3


JUDGED = frozenset({WorkOutcome.APPROVED, WorkOutcome.CHANGES_REQUESTED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Reviewer:
    """One process of the pool, from its start to its end, with what it did."""

    id: Identity
    display_name: str
    agent: str
    model: str | None
    project: str | None
    state: ReviewerState
    # What identifies the process: machine, pid and start time.
    host: str
    pid: int
    process_start: str | None
    started_at: Milliseconds
    # The broker that started it and supervises it; None: unknown.
    broker_id: str | None = None
    drained_at: Milliseconds | None = None
    ended_at: Milliseconds | None = None
    end_reason: EndReason | None = None
    exit_code: int | None = None
    reviews_completed: int = 0
    reviews_approved: int = 0
    # From claim to verdict, over all its reviews.
    review_milliseconds: int = 0
    # None if the agent does not report it.
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One claim of a pool's reviewer: when, how it ended, what it cost."""

    review_id: ReviewId
    claim_generation: int
    reviewer_id: Identity
    claimed_at: Milliseconds
    ended_at: Milliseconds | None = None
    outcome: WorkOutcome | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """How often reviewers stopped without a verdict on a review, and when the pool may try again."""

    review_id: ReviewId
    failures: int
    retry_at: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """The tokens and cost that an agent reports."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: "Usage") -> "Usage":
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=sum(costs) if costs else None,
        )

    def share(self, index: int, of: int) -> "Usage":
        """Return one of `of` parts. The parts add up to the whole."""
        return Usage(
            input_tokens=self.input_tokens * (index + 1) // of - self.input_tokens * index // of,
            output_tokens=self.output_tokens * (index + 1) // of - self.output_tokens * index // of,
            cost_usd=None if self.cost_usd is None else self.cost_usd / of,
        )


_ENDS = {
    EventType.REVIEW_RELEASED: WorkOutcome.RELEASED,
    EventType.REVIEW_RECLAIMED: WorkOutcome.RECLAIMED,
    EventType.COUNTER_PATCH_ACCEPTED: WorkOutcome.SUPERSEDED,
    EventType.REVIEW_CLOSED: WorkOutcome.WITHDRAWN,
}
Booked = TypeVar("Booked", Reviewer, Work)


def is_left_to(reviewer: Reviewer, broker_id: str) -> bool:
    """Check whether this broker, at its start, stops the reviewer. Other brokers stop their own."""
    return reviewer.broker_id in (None, broker_id)


def failed_on(
    reviewer: Reviewer,
    reason: EndReason,
    *,
    held: Sequence[ReviewId],
    worked_on: Sequence[ReviewId],
    next_up: Sequence[ReviewId],
) -> list[ReviewId]:
    """Find the reviews that the reviewer should have judged and did not.

    These are the ones that it holds; else, if it hung, those that it worked on last; else, if it did nothing at all,
    those that it would have claimed first. A reviewer that was told to stop did not fail.
    """
    match reason:
        case EndReason.EXITED:
            return list(held) or ([] if reviewer.reviews_completed else list(next_up))
        case EndReason.HUNG:
            return list(held) or list(worked_on)
        case EndReason.IDLE:
            # It did not even begin, although there was work.
            return [] if reviewer.reviews_completed or worked_on else list(next_up)
        case _:
            return []


def failures_after(review: Review, before: Failure | None) -> int:
    """Count the failures with this one. After a person has answered, counting starts again."""
    failures = before.failures if before else 0
    if failures >= FAILURES_THAT_NEED_A_PERSON and review.needs_human is None:
        failures = 0
    return failures + 1


def blamed(review: Review, failures: int, *, last: str, pause: int, now: Milliseconds) -> tuple[Failure, str | None]:
    """Record a failure. The text says why a person is asked, if one is."""
    failure = Failure(review_id=review.id, failures=failures, retry_at=Milliseconds(now + pause))
    asks = failures >= FAILURES_THAT_NEED_A_PERSON and review.needs_human is None and review.status is Status.PENDING
    reason = f"{failures} reviewers ended without a verdict, the last of them {last}" if asks else None
    return failure, reason


def forgiven(failure: Failure | None, *, now: Milliseconds) -> Failure | None:
    """Clear the failures after a verdict. None if there are none."""
    if failure is None or not failure.failures:
        return None
    return replace(failure, failures=0, retry_at=now)


def outcome_of(review: Review, event: NewEvent) -> WorkOutcome | None:
    """Return how this event ended the claim; `review` is the state afterwards. None if the claim goes on."""
    if event.event_type is EventType.VERDICT_SUBMITTED:
        return WorkOutcome(event.metadata["verdict"])
    outcome = _ENDS.get(event.event_type)
    taken = outcome is WorkOutcome.RECLAIMED and review.is_claim_live
    return WorkOutcome.TAKEN_OVER if taken else outcome


def credited(reviewer: Reviewer, work: Work, outcome: WorkOutcome, *, now: Milliseconds) -> Reviewer:
    if outcome not in JUDGED:
        return reviewer
    return replace(
        reviewer,
        reviews_completed=reviewer.reviews_completed + 1,
        reviews_approved=reviewer.reviews_approved + (outcome is WorkOutcome.APPROVED),
        review_milliseconds=reviewer.review_milliseconds + max(0, now - work.claimed_at),
    )


def shared(work: Sequence[Work], usage: Usage) -> list[Work]:
    """Share reported tokens equally among the reviews since the last report; the last review comes first.

    Some agents report only when they stop. Without such a review, the report is about the last one.
    """
    unbooked = [one for one in work if one.input_tokens is None] or list(work[:1])
    return [booked(one, usage.share(index, len(unbooked))) for index, one in enumerate(unbooked)]


def booked(had: Booked, usage: Usage) -> Booked:
    so_far = Usage(input_tokens=had.input_tokens or 0, output_tokens=had.output_tokens or 0, cost_usd=had.cost_usd)
    return replace(had, **values_of(so_far + usage))
