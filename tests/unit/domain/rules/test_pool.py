"""Who failed on what, when a person is asked, when it is forgiven, how tokens are shared."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain.model import Identity, Milliseconds, Review, ReviewId
from gsd_review_broker.domain.rules import claims, pool
from gsd_review_broker.domain.rules.pool import Failure, Reviewer, Usage, Work
from gsd_review_broker.domain.words import EndReason, ReviewerState, Status, Verdict, WorkOutcome
from tests.support.policies import review_policy
from tests.support.reviews import LATER, NOW, PERSON, created, in_status, judged

HELD, LAST, NEXT = (ReviewId(letter * 16) for letter in "abc")


def reviewer(**fields: Any) -> Reviewer:
    given = {
        "id": Identity("codex-r1-0a1b2c3d"),
        "display_name": "codex-r1",
        "agent": "codex",
        "model": None,
        "project": None,
        "state": ReviewerState.ACTIVE,
        "host": "here",
        "pid": 7,
        "process_start": None,
        "started_at": NOW,
    }
    return Reviewer(**{**given, **fields})


def work(**fields: Any) -> Work:
    given = {"review_id": HELD, "claim_generation": 1, "reviewer_id": reviewer().id, "claimed_at": NOW}
    return Work(**{**given, **fields})


@pytest.mark.parametrize(
    ("reason", "completed", "holds", "worked", "failed"),
    [
        (EndReason.EXITED, 0, True, True, [HELD]),
        (EndReason.EXITED, 3, True, True, [HELD]),
        (EndReason.EXITED, 0, False, False, [NEXT]),
        (EndReason.EXITED, 1, False, True, []),
        (EndReason.HUNG, 0, True, True, [HELD]),
        (EndReason.HUNG, 0, False, True, [LAST]),
        (EndReason.HUNG, 0, False, False, []),
        (EndReason.IDLE, 0, False, False, [NEXT]),
        (EndReason.IDLE, 1, False, True, []),
        (EndReason.IDLE, 0, False, True, []),
        (EndReason.TTL, 0, True, True, []),
        (EndReason.MANUAL, 0, True, True, []),
        (EndReason.BROKER_STOPPED, 0, True, True, []),
        (EndReason.BROKER_DIED, 0, True, True, []),
    ],
)
def test_who_failed_on_what(
    reason: EndReason, completed: int, holds: bool, worked: bool, failed: list[ReviewId]
) -> None:
    assert failed == pool.failed_on(
        reviewer(reviews_completed=completed),
        reason,
        held=[HELD] if holds else [],
        worked_on=[LAST] if worked else [],
        next_up=[NEXT],
    )


def blame(review: Review, before: int | None) -> tuple[Failure, str | None]:
    failure = None if before is None else Failure(review_id=review.id, failures=before, retry_at=NOW)
    failures = pool.failures_after(review, failure)
    return pool.blamed(review, failures, last="codex-r1, exit code 1", pause=failures * 1_000, now=NOW)


@pytest.mark.parametrize(("before", "failures"), [(None, 1), (0, 1), (1, 2)])
def test_a_failure_is_counted_and_the_review_left_alone_for_a_while(before: int | None, failures: int) -> None:
    failure, reason = blame(created().review, before)
    assert (failure.failures, failure.retry_at) == (failures, NOW + failures * 1_000)
    assert reason is None


def test_after_the_third_a_person_is_asked() -> None:
    _, reason = blame(created().review, 2)
    assert reason == "3 reviewers ended without a verdict, the last of them codex-r1, exit code 1"


def test_a_person_is_not_asked_twice_and_not_about_what_somebody_has() -> None:
    asked = replace(created().review, needs_human="3 reviewers ended")
    failure, reason = blame(asked, 3)
    assert (failure.failures, reason) == (4, None)
    assert blame(in_status(Status.CLAIMED), 2)[1] is None


def test_when_a_person_has_looked_it_begins_again() -> None:
    failure, reason = blame(created().review, 3)
    assert (failure.failures, reason) == (1, None)


def test_what_is_judged_is_forgiven() -> None:
    failure = Failure(review_id=HELD, failures=2, retry_at=LATER)
    assert pool.forgiven(failure, now=NOW) == Failure(review_id=HELD, failures=0, retry_at=NOW)
    assert pool.forgiven(replace(failure, failures=0), now=NOW) is None
    assert pool.forgiven(None, now=NOW) is None


@pytest.mark.parametrize("verdict", [Verdict.APPROVED, Verdict.CHANGES_REQUESTED])
def test_a_verdict_ends_the_work_and_is_credited(verdict: Verdict) -> None:
    change = judged(in_status(Status.CLAIMED), verdict)
    outcome = pool.outcome_of(change.review, change.events[0])
    assert outcome == WorkOutcome(verdict.value)
    credited = pool.credited(reviewer(), work(), outcome, now=LATER)
    assert credited.reviews_completed == 1
    assert credited.reviews_approved == (verdict is Verdict.APPROVED)
    assert credited.review_milliseconds == LATER - NOW


def test_what_was_no_verdict_is_not_credited_and_time_never_runs_back() -> None:
    assert pool.credited(reviewer(), work(), WorkOutcome.RELEASED, now=LATER) == reviewer()
    late = work(claimed_at=LATER)
    assert pool.credited(reviewer(), late, WorkOutcome.APPROVED, now=NOW).review_milliseconds == 0


def test_how_work_ends() -> None:
    claimed = in_status(Status.CLAIMED)
    ends = {
        WorkOutcome.RECLAIMED: claims.reclaim(claimed, reason="late", now=NOW),
        WorkOutcome.TAKEN_OVER: claims.take_over(claimed, person=PERSON, policy=review_policy(), now=NOW),
    }
    for outcome, change in ends.items():
        assert pool.outcome_of(change.review, change.events[0]) is outcome
    comment = judged(claimed, Verdict.COMMENT)
    assert pool.outcome_of(comment.review, comment.events[0]) is None


COSTS = st.none() | st.floats(0, 100)
USAGES = st.builds(Usage, input_tokens=st.integers(0, 10**9), output_tokens=st.integers(0, 10**9), cost_usd=COSTS)


@given(USAGES, st.integers(1, 20), st.integers(0, 5))
def test_shares_add_up_to_the_whole_and_go_to_what_has_none(usage: Usage, unbooked: int, before: int) -> None:
    had = Usage(input_tokens=5, output_tokens=5, cost_usd=None)
    known = [pool.booked(work(claim_generation=number), had) for number in range(before)]
    fresh = [work(claim_generation=100 + number) for number in range(unbooked)]
    shared = pool.shared([*known, *fresh], usage)
    assert {one.claim_generation for one in shared} == {one.claim_generation for one in fresh}
    assert sum(one.input_tokens or 0 for one in shared) == usage.input_tokens
    assert sum(one.output_tokens or 0 for one in shared) == usage.output_tokens
    assert sum(one.cost_usd or 0 for one in shared) == pytest.approx(usage.cost_usd or 0)
    assert max(one.input_tokens or 0 for one in shared) - min(one.input_tokens or 0 for one in shared) <= 1


def test_where_all_is_booked_the_last_review_takes_it() -> None:
    had = Usage(input_tokens=1, output_tokens=2, cost_usd=0.5)
    newest, older = (pool.booked(work(claim_generation=number), had) for number in (2, 1))
    (shared,) = pool.shared([newest, older], Usage(input_tokens=10, output_tokens=0, cost_usd=None))
    assert (shared.claim_generation, shared.input_tokens, shared.output_tokens, shared.cost_usd) == (2, 11, 2, 0.5)
    assert pool.shared([], had) == []


def test_a_reviewer_has_the_sum_of_its_reports() -> None:
    report = Usage(input_tokens=10, output_tokens=1, cost_usd=0.25)
    once = pool.booked(reviewer(), report)
    twice = pool.booked(once, report)
    assert (twice.input_tokens, twice.output_tokens, twice.cost_usd) == (20, 2, 0.5)
    assert Milliseconds(twice.started_at) == NOW


@pytest.mark.parametrize(("broker", "ours"), [(None, True), ("me", True), ("another", False)])
def test_only_this_brokers_reviewers_are_left_to_it(broker: str | None, ours: bool) -> None:
    assert pool.is_left_to(reviewer(broker_id=broker), "me") is ours
