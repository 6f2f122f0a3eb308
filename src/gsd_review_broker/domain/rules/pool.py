"""The pool's reviewers: what they worked on, which reviews they failed on, and how tokens are shared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, assert_never

from gsd_review_broker.domain.model import Identity, Milliseconds, NewEvent, Review, ReviewId
from gsd_review_broker.domain.words import EndReason, EventType, ReviewerState, Status, Verdict, WorkOutcome

# After this many reviewers that stop without a verdict, a person is asked.
FAILURES_THAT_NEED_A_PERSON = 3


def outcome_of_verdict(verdict: Verdict) -> WorkOutcome | None:
    """What a verdict makes of the work on a review; a comment does not end it."""
    match verdict:
        case Verdict.APPROVED:
            return WorkOutcome.APPROVED
        case Verdict.CHANGES_REQUESTED:
            return WorkOutcome.CHANGES_REQUESTED
        case Verdict.COMMENT:
            return None
        case _:
            assert_never(verdict)


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
    # The broker that started it and supervises it; None for rows of schema 0001.
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
        """One of this many parts. The parts add up to the whole."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Blame:
    """What a failure on a review leaves behind, and why a person is asked, if one is."""

    failure: Failure
    asks: str | None


def is_left_to(reviewer: Reviewer, broker_id: str) -> bool:
    """May this broker, at its start, treat the reviewer as left behind by a broker? Other brokers stop their own."""
    return reviewer.broker_id in (None, broker_id)


def failed_on(
    reviewer: Reviewer,
    reason: EndReason,
    *,
    held: Sequence[ReviewId],
    worked_on: Sequence[ReviewId],
    next_up: Sequence[ReviewId],
) -> list[ReviewId]:
    """The reviews that it should have judged and did not.

    That is what it holds; else what it worked on last, if it hung there; else, if it did nothing at all, what it would
    have claimed first. A reviewer that was told to stop did not fail.
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
    """The failures including this one. After a person was asked and has looked, counting starts again."""
    failures = before.failures if before else 0
    if failures >= FAILURES_THAT_NEED_A_PERSON and review.needs_human is None:
        failures = 0
    return failures + 1


def blamed(review: Review, failures: int, *, last: str, pause: int, now: Milliseconds) -> Blame:
    failure = Failure(review_id=review.id, failures=failures, retry_at=Milliseconds(now + pause))
    asks = failures >= FAILURES_THAT_NEED_A_PERSON and review.needs_human is None and review.status is Status.PENDING
    reason = f"{failures} reviewers ended without a verdict, the last of them {last}" if asks else None
    return Blame(failure=failure, asks=reason)


def forgiven(failure: Failure | None, *, now: Milliseconds) -> Failure | None:
    """A verdict clears the failures. None if there are none."""
    if failure is None or not failure.failures:
        return None
    return replace(failure, failures=0, retry_at=now)


def outcome_of(review: Review, event: NewEvent) -> WorkOutcome | None:
    """How this event ended the claim; `review` is its state afterwards. None if the claim goes on."""
    if event.event_type is EventType.VERDICT_SUBMITTED:
        return outcome_of_verdict(Verdict(event.metadata["verdict"]))
    outcome = _ENDS.get(event.event_type)
    taken = outcome is WorkOutcome.RECLAIMED and review.is_claim_live
    return WorkOutcome.TAKEN_OVER if taken else outcome


def credited(reviewer: Reviewer, work: Work, outcome: WorkOutcome, *, now: Milliseconds) -> Reviewer:
    """The reviewer with one more verdict of its own."""
    if outcome not in JUDGED:
        return reviewer
    return replace(
        reviewer,
        reviews_completed=reviewer.reviews_completed + 1,
        reviews_approved=reviewer.reviews_approved + (outcome is WorkOutcome.APPROVED),
        review_milliseconds=reviewer.review_milliseconds + max(0, now - work.claimed_at),
    )


def shared(work: Sequence[Work], usage: Usage) -> list[Work]:
    """Shares a report of tokens among the reviews that the reviewer worked on since its last report.

    Some agents report only when they stop: then each review gets an equal share. Without such reviews, the report
    is about its last one. The last review comes first.
    """
    unbooked = [one for one in work if one.input_tokens is None] or list(work[:1])
    return [booked(one, usage.share(index, len(unbooked))) for index, one in enumerate(unbooked)]


def booked(had: Booked, usage: Usage) -> Booked:
    so_far = Usage(input_tokens=had.input_tokens or 0, output_tokens=had.output_tokens or 0, cost_usd=had.cost_usd)
    total = so_far + usage
    more: dict[str, Any] = {
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cost_usd": total.cost_usd,
    }
    return replace(had, **more)
