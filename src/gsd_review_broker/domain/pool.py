"""The words of the pool: a reviewer whose process the broker started, what it worked on, what failed."""

from dataclasses import dataclass
from typing import assert_never

from gsd_review_broker.domain.model import Identity, Milliseconds, ReviewId
from gsd_review_broker.domain.words import EndReason, ReviewerState, Verdict, WorkOutcome

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
