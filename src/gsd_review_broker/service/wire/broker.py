"""The broker itself: its status, its pool, its tokens, its archive, and what its gate recorded."""

from collections.abc import Sequence
from typing import Any, TypedDict

from gsd_review_broker.domain.caller import Token
from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.domain.rules.pool import FAILURES_THAT_NEED_A_PERSON, Failure, Reviewer, Work
from gsd_review_broker.service.wire.encoding import iso, moment


class BrokerStatus(TypedDict):
    version: str
    serves: str
    uptime_seconds: int
    queue: dict[str, int]
    oldest_pending_at: str | None
    last_activity_at: str | None
    waiting: int
    reviewers: "list[ReviewerRow]"


class Pruned(TypedDict):
    closed_before: str
    archive: str
    reviews: int
    more: bool


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


class TokenRow(TypedDict):
    name: str
    role: str
    identity: str
    project: str | None
    state: str
    created_at: str | None
    created_by: str
    expires_at: str | None
    revoked_at: str | None


class NewToken(TokenRow):
    token: str


class TokenList(TypedDict):
    tokens: list[TokenRow]


def reviewer_row(
    reviewer: Reviewer, under_way: Sequence[Work], *, doing: str | None, last_activity_at: Milliseconds | None
) -> ReviewerRow:
    completed = reviewer.reviews_completed
    held = [work.review_id for work in under_way if work.reviewer_id == reviewer.id]
    return {
        "id": reviewer.id,
        "display_name": reviewer.display_name,
        "agent": reviewer.agent,
        "model": reviewer.model,
        "project": reviewer.project,
        "state": reviewer.state.value,
        "pid": reviewer.pid,
        "current_review": held[0] if held else None,
        "doing": doing,
        "started_at": iso(reviewer.started_at),
        "last_activity_at": moment(last_activity_at or reviewer.ended_at),
        "ended_at": moment(reviewer.ended_at),
        "end_reason": reviewer.end_reason.value if reviewer.end_reason else None,
        "exit_code": reviewer.exit_code,
        "reviews_completed": completed,
        "avg_review_seconds": round(reviewer.review_milliseconds / completed / 1000, 3) if completed else None,
        "approval_rate_pct": round(100 * reviewer.reviews_approved / completed, 1) if completed else None,
        "input_tokens": reviewer.input_tokens,
        "output_tokens": reviewer.output_tokens,
        "cost_usd": reviewer.cost_usd,
    }


def held_back_row(failure: Failure, needs_human: str | None) -> HeldBackRow:
    waits_for_person = failure.failures >= FAILURES_THAT_NEED_A_PERSON and needs_human is not None
    return {
        "review_id": failure.review_id,
        "failures": failure.failures,
        "retry_at": None if waits_for_person else moment(failure.retry_at),
        "needs_human": needs_human,
    }


def work_row(work: Work) -> WorkRow:
    return {
        "reviewer_id": work.reviewer_id,
        "claim_generation": work.claim_generation,
        "claimed_at": iso(work.claimed_at),
        "ended_at": moment(work.ended_at),
        "outcome": work.outcome.value if work.outcome else None,
        "input_tokens": work.input_tokens,
        "output_tokens": work.output_tokens,
        "cost_usd": work.cost_usd,
    }


def token_row(token: Token, now: Milliseconds) -> TokenRow:
    return {
        "name": token.name,
        "role": token.role.value,
        "identity": token.identity,
        "project": token.project,
        "state": token.state(now).value,
        "created_at": moment(token.created_at),
        "created_by": token.created_by,
        "expires_at": moment(token.expires_at),
        "revoked_at": moment(token.revoked_at),
    }


def landed_row(row: LandedCommit) -> dict[str, Any]:
    return {
        "commit": row.commit_id,
        "branch": row.branch,
        "subject": row.subject,
        "because": row.because.value if row.because else None,
        "reviews": list(row.reviews),
        "landed_at": iso(row.landed_at),
    }


def approval_document(approved: ReviewedChange) -> dict[str, Any] | None:
    """Return what a receipt says; None if the repository had no root commit, by which clones know it."""
    if approved.repository is None or approved.approved_at is None:
        return None
    return {
        "repository": approved.repository,
        "digest": approved.digest,
        "review_id": approved.review_id,
        "revision": approved.revision,
        "proposer": approved.proposer,
        "reviewer": approved.reviewer,
        "verdict": "approved",
        "approved_at": iso(approved.approved_at),
    }


def override_document(landed: LandedCommit, override: GateOverride) -> dict[str, Any] | None:
    """Return what the receipt of an override says about the one commit that it let through."""
    if override.repository is None:
        return None
    return {
        "repository": override.repository,
        "commit": landed.commit_id,
        "digest": landed.digest,
        "override": override.id,
        "person": override.person,
        "reason": override.reason,
        "verdict": "overridden",
        "landed_at": iso(landed.landed_at),
        "until": iso(override.until),
    }
