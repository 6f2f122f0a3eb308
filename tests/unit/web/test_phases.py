"""The progress of phases and plans, counted from rows of the feed."""

from typing import Any, cast

from gsd_review_broker.service.wire.reviews import FeedRow
from gsd_review_broker.web.pages.reviews import progress_of


def row(phase: str, plan: str | None, status: str, verdict: str | None = None, project: str | None = None) -> FeedRow:
    values: dict[str, Any] = {"phase": phase, "plan": plan, "status": status, "verdict": verdict, "project": project}
    return cast("FeedRow", values)


def counted(*rows: FeedRow) -> list[tuple[str | None, str, str | None, int, int, int]]:
    return [(one.project, one.phase, one.plan, one.approved, one.to_fix, one.open) for one in progress_of(rows)]


def test_reviews_are_counted_by_project_phase_and_plan() -> None:
    assert counted(
        row("02", None, "pending"),
        row("01", "01-01", "closed", "approved"),
        row("01", "01-01", "approved", "approved"),
        row("01", "01-01", "changes_requested", "changes_requested"),
        row("01", "01-01", "in_review"),
        row("01", "01-01", "pending", project="other"),
    ) == [(None, "01", "01-01", 2, 1, 1), (None, "02", None, 0, 0, 1), ("other", "01", "01-01", 0, 0, 1)]


def test_what_was_withdrawn_is_not_counted() -> None:
    assert counted(row("01", "01-01", "closed")) == []


def test_a_plan_leads_to_its_reviews() -> None:
    (plan,) = progress_of([row("01", "01-01", "pending")])
    assert plan.link == "/reviews?q=01+01-01"
