"""Statistics, made of the counters that the store updates with every change."""

import json
from collections.abc import Iterable
from typing import TypedDict

from gsd_review_broker.domain.tally import UNCATEGORIZED, Counted, Histogram, Measured, Totals, time_in
from gsd_review_broker.domain.words import Category, EventType, Status, Verdict

# At most this many reviewers and pairs are listed; each may have three verdicts.
_MOST_TOLD = 200
MOST_COUNTS = 3 * _MOST_TOLD
_MILLISECONDS = 1000
_LEAVABLE = [status for status in Status if status is not Status.CLOSED]


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


def stats_of(totals: Totals) -> ReviewStats:
    approved = totals.counts[Counted.LAST_VERDICT, Verdict.APPROVED]
    rejected = totals.counts[Counted.LAST_VERDICT, Verdict.CHANGES_REQUESTED]
    claim, verdict = totals.spreads[Measured.TIME_TO_CLAIM], totals.spreads[Measured.TIME_TO_VERDICT]
    duration, rounds = totals.spreads[Measured.DURATION], totals.spreads[Measured.ROUNDS]
    states = {status.value: totals.spreads[time_in(status)] for status in _LEAVABLE}
    return {
        "total_reviews": totals.counts[Counted.EVENT, EventType.REVIEW_CREATED],
        "by_status": {status.value: totals.counts[Counted.STATUS, status] for status in Status},
        "by_category": {name: totals.counts[Counted.CATEGORY, name] for name in (*Category, UNCATEGORIZED)},
        "approval_rate_pct": rate(approved, approved + rejected),
        "rejection_rate_pct": rate(rejected, approved + rejected),
        "avg_time_to_claim_seconds": _seconds(claim.average()),
        "avg_time_to_verdict_seconds": _seconds(verdict.average()),
        "avg_review_duration_seconds": _seconds(duration.average()),
        "avg_time_in_state_seconds": {name: _seconds(spread.average()) for name, spread in states.items()},
        "percentiles": {
            "time_to_claim_seconds": _percentiles(claim),
            "time_to_verdict_seconds": _percentiles(verdict),
            "review_duration_seconds": _percentiles(duration),
            "time_in_state_seconds": {name: _percentiles(spread) for name, spread in states.items()},
        },
        "rounds_to_approval": _rounds(rounds),
        "verdicts": {verdict.value: totals.counts[Counted.VERDICT, verdict] for verdict in Verdict},
        "claims": totals.counts[Counted.EVENT, EventType.REVIEW_CLAIMED],
        "reclaims": totals.counts[Counted.EVENT, EventType.REVIEW_RECLAIMED],
        "auto_rejections": totals.counts[Counted.EVENT, EventType.REVIEW_AUTO_REJECTED],
        "refused_verdicts": totals.counts[Counted.EVENT, EventType.VERDICT_REFUSED],
        "by_reviewer": _by_reviewer(totals),
        "by_pair": _by_pair(totals),
    }


def rate(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / _MILLISECONDS, 3)


def _percentiles(spread: Histogram) -> Percentiles:
    half, most = spread.percentiles(50, 95)
    return {"p50": _seconds(half), "p95": _seconds(most)}


def _rounds(spread: Histogram) -> Spread:
    average = spread.average()
    half, most = spread.percentiles(50, 95)
    return {"average": None if average is None else round(average, 2), "p50": half, "p95": most}


def _by_reviewer(totals: Totals) -> list[ReviewerVerdicts]:
    rows: dict[str, ReviewerVerdicts] = {}
    for (reviewer, verdict), value in _counted(totals, Counted.REVIEWER):
        row = rows.setdefault(reviewer, {"reviewer": reviewer, "approved": 0, "changes_requested": 0, "comment": 0})
        row[Verdict(verdict).value] = value
    return sorted(rows.values(), key=lambda row: -row["approved"] - row["changes_requested"] - row["comment"])


def _by_pair(totals: Totals) -> list[PairVerdicts]:
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for (proposer, reviewer, verdict), value in _counted(totals, Counted.PAIR):
        counts.setdefault((proposer, reviewer), {})[verdict] = value
    rows = [_pair(proposer, reviewer, verdicts) for (proposer, reviewer), verdicts in counts.items()]
    return sorted(rows, key=lambda row: -row["approved"] - row["changes_requested"])


def _pair(proposer: str, reviewer: str, verdicts: dict[str, int]) -> PairVerdicts:
    approved, rejected = verdicts.get(Verdict.APPROVED, 0), verdicts.get(Verdict.CHANGES_REQUESTED, 0)
    return {
        "proposer": proposer,
        "reviewer": reviewer,
        "approved": approved,
        "changes_requested": rejected,
        "approval_rate_pct": rate(approved, approved + rejected),
    }


def _counted(totals: Totals, what: Counted) -> Iterable[tuple[list[str], int]]:
    """Counts with the parts of their key. If there were too many to read, the last name may lack a verdict; it is left
    out.
    """
    rows: list[tuple[list[str], int]] = [
        (json.loads(key), value) for (name, key), value in totals.counts.items() if name == what
    ]
    cut = rows[-1][0][:-1] if len(rows) >= MOST_COUNTS else None
    return [row for row in rows if row[0][:-1] != cut]
