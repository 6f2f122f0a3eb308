"""What callers see of the reviewer pool."""

from typing import TypedDict


class ReviewerRow(TypedDict):
    """A reviewer that the broker started."""

    id: str
    display_name: str
    agent: str
    model: str | None
    project: str | None
    state: str
    pid: int
    current_review: str | None
    doing: str | None
    started_at: str
    last_activity_at: str | None
    ended_at: str | None
    end_reason: str | None
    exit_code: int | None
    reviews_completed: int
    avg_review_seconds: float | None
    approval_rate_pct: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class ReviewerList(TypedDict):
    reviewers: list[ReviewerRow]


class SpawnedReviewer(TypedDict):
    reviewer_id: str
    display_name: str
    pid: int


class KilledReviewer(TypedDict):
    reviewer_id: str
    display_name: str
    state: str


class ReviewerLog(TypedDict):
    reviewer_id: str
    display_name: str
    text: str
    left_out: bool


class WorkRow(TypedDict):
    reviewer_id: str
    claim_generation: int
    claimed_at: str
    ended_at: str | None
    outcome: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class HeldBackRow(TypedDict):
    """A pending review that the pool leaves alone after failures."""

    review_id: str
    failures: int
    # When the pool tries again; null if it waits for a person.
    retry_at: str | None
    needs_human: str | None


class LoginState(TypedDict):
    """How the pool's agent is logged in, as far as it can be seen, and the variables that reach it."""

    known: bool
    seen: str | None
    advice: str
    passed: list[str]
    present: list[str]


class PoolState(TypedDict):
    enabled: bool
    paused: bool
    agent: str
    model: str | None
    max_pool_size: int
    pending: int
    held_back: list[HeldBackRow]
    spawns_today: int
    max_spawns_per_day: int
    tokens_today: int
    max_tokens_per_day: int | None
    next_spawn_at: str | None
    problem: str | None
    login: LoginState
    reviewers: list[ReviewerRow]
