"""What callers see of statistics."""

from typing import TypedDict


class Percentiles(TypedDict):
    p50: float | None
    p95: float | None


class Spread(Percentiles):
    average: float | None


class TimePercentiles(TypedDict):
    time_to_claim_seconds: Percentiles
    time_to_verdict_seconds: Percentiles
    review_duration_seconds: Percentiles
    time_in_state_seconds: dict[str, Percentiles]


class ReviewerVerdicts(TypedDict):
    reviewer: str
    approved: int
    changes_requested: int
    comment: int


class PairVerdicts(TypedDict):
    proposer: str
    reviewer: str
    approved: int
    changes_requested: int
    approval_rate_pct: float | None


class ReviewStats(TypedDict):
    total_reviews: int
    by_status: dict[str, int]
    by_category: dict[str, int]
    approval_rate_pct: float | None
    rejection_rate_pct: float | None
    avg_time_to_claim_seconds: float | None
    avg_time_to_verdict_seconds: float | None
    avg_review_duration_seconds: float | None
    avg_time_in_state_seconds: dict[str, float | None]
    percentiles: TimePercentiles
    rounds_to_approval: Spread
    verdicts: dict[str, int]
    claims: int
    reclaims: int
    auto_rejections: int
    refused_verdicts: int
    by_reviewer: list[ReviewerVerdicts]
    by_pair: list[PairVerdicts]
