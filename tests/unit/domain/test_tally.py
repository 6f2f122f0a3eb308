"""What each event counts for, from events that the rules themselves made."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain.model import Change, Identity, Milliseconds, NewEvent, Review
from gsd_review_broker.domain.rules import claims, discussion
from gsd_review_broker.domain.tally import (
    Counted,
    Measured,
    Tally,
    Totals,
    display_name,
    kind_of,
    progress_of,
    scopes_of,
    tally_of,
    time_in,
)
from gsd_review_broker.domain.words import Category, EventType, Status, Verdict
from tests.support.policies import review_policy
from tests.support.reviews import (
    DIGEST,
    LATER,
    NOW,
    PERSON,
    POLICY,
    REVIEWER,
    closed,
    counter_patch,
    created,
    finding,
    in_status,
    judged,
    message,
    revised,
)


def after(seconds: float) -> Milliseconds:
    return Milliseconds(NOW + int(seconds * 1000))


def tallied(before: Review | None, change: Change) -> Tally:
    return tally_of(before and progress_of(before), change.events)


def counts(tally: Tally) -> dict[tuple[str, Any], int]:
    """What changed, with keys of several parts taken apart."""
    totals = Totals()
    totals.add(tally)
    return {
        (what, tuple(json.loads(key)) if key.startswith("[") else key): by
        for (what, key), by in totals.counts.items()
        if by
    }


def moved(before: Status, to: Status) -> dict[tuple[str, Any], int]:
    """What is pending waits in the queue of its priority."""
    queued = (to is Status.PENDING) - (before is Status.PENDING)
    waits = {(Counted.QUEUE, "normal"): queued} if queued else {}
    return {(Counted.STATUS, before): -1, (Counted.STATUS, to): 1, **waits}


def happened(event_type: EventType) -> dict[tuple[str, Any], int]:
    return {(Counted.EVENT, event_type): 1}


def claim_at(review: Review, seconds: float, *, by: Identity = REVIEWER) -> Change:
    return claims.claim(review, reviewer=by, digest=DIGEST, policy=POLICY, now=after(seconds))


@pytest.mark.parametrize(
    ("category", "key"), [(None, "uncategorized"), *((category, category.value) for category in Category)]
)
def test_a_new_review_counts_for_its_category_and_as_pending(category: Category | None, key: str) -> None:
    tally = tallied(None, created(category=category, project="p"))
    assert counts(tally) == {
        **happened(EventType.REVIEW_CREATED),
        (Counted.CATEGORY, key): 1,
        (Counted.STATUS, "pending"): 1,
        (Counted.QUEUE, "normal"): 1,
    }
    assert tally.samples == []


@pytest.mark.parametrize(
    ("agent_type", "phase", "priority"), [("gsd-planner", "1", "critical"), ("x", "verify-work", "low")]
)
def test_a_review_waits_in_the_queue_of_its_priority_until_it_is_claimed(
    agent_type: str, phase: str, priority: str
) -> None:
    new = created(agent_type=agent_type, phase=phase)
    totals = Totals()
    totals.add(tallied(None, new))
    assert totals.counts[Counted.QUEUE, priority] == 1
    totals.add(tallied(new.review, claim_at(new.review, 1)))
    assert totals.counts[Counted.QUEUE, priority] == 0


def test_the_first_claim_tells_how_long_it_took_and_how_long_the_review_was_pending() -> None:
    review = created().review
    tally = tallied(review, claim_at(review, 7))
    assert counts(tally) == {**happened(EventType.REVIEW_CLAIMED), **moved(Status.PENDING, Status.CLAIMED)}
    assert sorted(tally.samples) == [(time_in(Status.PENDING), 7_000), (Measured.TIME_TO_CLAIM, 7_000)]


def test_only_the_first_claim_counts_as_the_time_to_claim() -> None:
    review = claim_at(created().review, 1).review
    back = claims.release(review, claim_generation=1, now=after(3))
    again = claim_at(back.review, 10)
    assert tallied(review, back).samples == [(time_in(Status.CLAIMED), 2_000)]
    assert tallied(back.review, again).samples == [(time_in(Status.PENDING), 7_000)]


def test_a_verdict_counts_for_the_reviewer_for_the_pair_and_as_the_last_one() -> None:
    review = claim_at(created().review, 1).review
    change = judged(review, Verdict.APPROVED, now=after(5))
    tally = tallied(review, change)
    assert counts(tally) == {
        **happened(EventType.VERDICT_SUBMITTED),
        **moved(Status.CLAIMED, Status.APPROVED),
        (Counted.VERDICT, "approved"): 1,
        (Counted.LAST_VERDICT, "approved"): 1,
        (Counted.REVIEWER, ("codex-r1", "approved")): 1,
        (Counted.PAIR, ("gsd-executor", "codex-r1", "approved")): 1,
    }
    assert sorted(tally.samples) == [
        (Measured.ROUNDS, 1),
        (time_in(Status.CLAIMED), 4_000),
        (Measured.TIME_TO_VERDICT, 5_000),
    ]


def test_a_later_verdict_takes_the_place_of_the_earlier_one_and_is_not_the_first() -> None:
    rejected = judged(claim_at(created().review, 1).review, Verdict.CHANGES_REQUESTED, now=after(2)).review
    again = claim_at(revised(rejected, now=after(3)).review, 4).review
    tally = tallied(again, judged(again, Verdict.APPROVED, now=after(9)))
    assert counts(tally)[Counted.LAST_VERDICT, "changes_requested"] == -1
    assert counts(tally)[Counted.LAST_VERDICT, "approved"] == 1
    assert sorted(tally.samples) == [(Measured.ROUNDS, 2), (time_in(Status.CLAIMED), 5_000)]


def test_a_rejection_tells_nothing_of_the_rounds_to_approval() -> None:
    review = claim_at(created().review, 1).review
    tally = tallied(review, judged(review, Verdict.CHANGES_REQUESTED))
    assert Measured.ROUNDS not in dict(tally.samples)
    assert counts(tally)[Counted.PAIR, ("gsd-executor", "codex-r1", "changes_requested")] == 1


def test_an_auto_rejection_is_nobodys_verdict() -> None:
    review = created().review
    tally = tallied(review, claims.auto_reject(review, git_says="no", now=after(2)))
    assert counts(tally) == {
        **happened(EventType.REVIEW_AUTO_REJECTED),
        **moved(Status.PENDING, Status.CHANGES_REQUESTED),
    }
    assert tally.samples == [(time_in(Status.PENDING), 2_000)]


def test_a_comment_counts_for_the_reviewer_and_is_no_verdict() -> None:
    review = claim_at(created().review, 1).review
    tally = tallied(review, judged(review, Verdict.COMMENT))
    assert counts(tally) == {
        **happened(EventType.VERDICT_COMMENT),
        (Counted.VERDICT, "comment"): 1,
        (Counted.REVIEWER, ("codex-r1", "comment")): 1,
    }
    assert tally.samples == []


def test_closing_tells_how_long_it_all_took() -> None:
    review = claim_at(created().review, 1).review
    tally = tallied(review, closed(review, now=after(60)))
    assert counts(tally) == {**happened(EventType.REVIEW_CLOSED), **moved(Status.CLAIMED, Status.CLOSED)}
    assert sorted(tally.samples) == [(Measured.DURATION, 60_000), (time_in(Status.CLAIMED), 59_000)]


def test_closing_keeps_the_last_verdict() -> None:
    review = in_status(Status.APPROVED)
    assert not [key for key in counts(tallied(review, closed(review))) if key[0] == Counted.LAST_VERDICT]


def test_the_first_message_opens_the_discussion_and_the_next_moves_nothing() -> None:
    review = claim_at(created().review, 1).review
    first = discussion.send_message(review, message=message(review), policy=POLICY, now=after(4))
    tally = tallied(review, first)
    assert counts(tally) == {**happened(EventType.MESSAGE_SENT), **moved(Status.CLAIMED, Status.IN_REVIEW)}
    assert tally.samples == [(time_in(Status.CLAIMED), 3_000)]
    second = discussion.send_message(first.review, message=message(review), policy=POLICY, now=after(9))
    assert counts(tallied(first.review, second)) == happened(EventType.MESSAGE_SENT)
    assert tallied(first.review, second).samples == []


def test_a_revision_goes_back_to_the_queue_and_keeps_the_last_verdict() -> None:
    review = in_status(Status.CHANGES_REQUESTED)
    tally = tallied(review, revised(review, now=Milliseconds(LATER + 8_000)))
    assert counts(tally) == {**happened(EventType.REVIEW_REVISED), **moved(Status.CHANGES_REQUESTED, Status.PENDING)}
    assert tally.samples == [(time_in(Status.CHANGES_REQUESTED), 8_000)]


def test_a_take_over_is_a_reclaim_and_a_claim_with_no_time_between() -> None:
    review = claim_at(created().review, 1).review
    tally = tallied(review, claims.take_over(review, person=PERSON, policy=POLICY, now=after(6)))
    assert counts(tally) == {**happened(EventType.REVIEW_RECLAIMED), **happened(EventType.REVIEW_CLAIMED)}
    # The second claim is not the review's first.
    assert tally.samples == [(time_in(Status.CLAIMED), 5_000), (time_in(Status.PENDING), 0)]


def _refused(review: Review) -> Change:
    return judged(review, Verdict.APPROVED, claim_generation=review.claim_generation - 1)


def _rejected_patch(review: Review) -> Change:
    return discussion.reject_counter_patch(review, caller=None, reason=None, now=LATER)


def _offered(review: Review) -> Change:
    offer = judged(review, Verdict.COMMENT, counter_patch=counter_patch(review))
    return replace(offer, events=offer.events[1:])


def _resolved(review: Review) -> Change:
    settled = {"disposition": "fixed", "note": None, "open_finding_count": 0}
    return discussion.resolve_finding(review, finding=finding(review), **settled, actor=REVIEWER, now=LATER)


@pytest.mark.parametrize(
    ("change", "event_type"),
    [
        (_refused, EventType.VERDICT_REFUSED),
        (_rejected_patch, EventType.COUNTER_PATCH_REJECTED),
        (_offered, EventType.COUNTER_PATCH_OFFERED),
        (_resolved, EventType.FINDING_RESOLVED),
    ],
)
def test_what_moves_no_state_is_counted_and_nothing_else(change, event_type: EventType) -> None:
    review = in_status(Status.CLAIMED, with_counter_patch=True)
    tally = tallied(review, change(review))
    assert counts(tally) == happened(event_type)
    assert tally.samples == []


def test_a_persons_call_and_its_end_are_counted_beside_the_verdict() -> None:
    review = judged(in_status(Status.CLAIMED), Verdict.CHANGES_REQUESTED, policy=review_policy(max_rounds=1))
    assert counts(tallied(in_status(Status.CLAIMED), review))[Counted.EVENT, "human_requested"] == 1
    waiting = replace(claim_at(revised(review.review).review, 9, by=PERSON).review, needs_human="why")
    answer = discussion.send_message(waiting, message=message(waiting, sender=PERSON), policy=POLICY, now=after(10))
    assert counts(tallied(waiting, answer))[Counted.EVENT, "human_cleared"] == 1


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    review = created().review
    claim = claim_at(review, -30)
    verdict = judged(claim.review, Verdict.APPROVED, now=after(-60))
    end = closed(verdict.review, now=after(-90))
    totals = Totals()
    for before, change in [(None, created()), (review, claim), (claim.review, verdict), (verdict.review, end)]:
        totals.add(tallied(before, change))
    times = {name: spread for name, spread in totals.spreads.items() if name != Measured.ROUNDS}
    assert len(times) == 6
    assert {(spread.least, spread.most, spread.total) for spread in times.values()} == {(0, 0, 0)}


@pytest.mark.parametrize(
    ("reviewer", "shown", "kind"),
    [
        ("codex-r1-0a1b2c3d", "codex-r1", "codex"),
        ("claude-r12-ffffffff", "claude-r12", "claude"),
        ("my-own-agent-r3-00000000", "my-own-agent-r3", "my-own-agent"),
        ("human:ada", "human:ada", "human"),
        # Only what the pool would call its own is taken apart.
        ("codex-r1", "codex-r1", "codex-r1"),
        ("codex", "codex", "codex"),
        ("codex-r1-0A1B2C3D", "codex-r1-0A1B2C3D", "codex-r1-0A1B2C3D"),
        ("codex-r1-0a1b2c3d4", "codex-r1-0a1b2c3d4", "codex-r1-0a1b2c3d4"),
        ("-r1-0a1b2c3d", "-r1-0a1b2c3d", "-r1-0a1b2c3d"),
        ("codex-r1-0a1b2c3d\n", "codex-r1-0a1b2c3d\n", "codex-r1-0a1b2c3d\n"),
        ("", "", ""),
    ],
)
def test_a_reviewer_is_counted_by_its_display_name_and_paired_by_its_kind(reviewer: str, shown: str, kind: str) -> None:
    assert (display_name(reviewer), kind_of(reviewer)) == (shown, kind)


def test_starts_of_one_program_are_counted_together() -> None:
    totals = Totals()
    for start in ("codex-r1-0a1b2c3d", "codex-r1-11111111"):
        review = claim_at(created().review, 1, by=Identity(start)).review
        totals.add(tallied(review, judged(review, Verdict.APPROVED)))
    assert totals.counts[Counted.REVIEWER, '["codex-r1","approved"]'] == 2
    assert totals.counts[Counted.PAIR, '["gsd-executor","codex","approved"]'] == 2


@given(st.text(), st.text())
def test_no_two_names_share_a_key(one: str, other: str) -> None:
    """However names are spelled, each reviewer's verdicts are its own."""

    def keys(name: str) -> set[tuple[str, str]]:
        review = replace(in_status(Status.CLAIMED), claimed_by=Identity(name))
        return set(tallied(review, judged(review, Verdict.COMMENT, reviewer_id=None)).counts)

    assert (keys(one) == keys(other)) == (display_name(one) == display_name(other))


def test_totals_of_several_tallies_do_not_depend_on_their_order() -> None:
    tallies = [tallied(None, created(category=Category.HANDOFF))]
    review = created().review
    tallies += [tallied(review, claim_at(review, seconds)) for seconds in (1, 5, 3)]
    forwards, backwards = Totals(), Totals()
    for tally in tallies:
        forwards.add(tally)
    for tally in reversed(tallies):
        backwards.add(tally)
    assert forwards == backwards
    assert forwards.spreads[Measured.TIME_TO_CLAIM].total == 9_000


def test_an_event_without_a_new_state_leaves_the_review_where_it_is() -> None:
    review = in_status(Status.CLAIMED)
    bare = NewEvent(
        event_type=EventType.GATE_REFUSED,
        actor=REVIEWER,
        review_id=review.id,
        old_status=None,
        new_status=None,
        timestamp=LATER,
    )
    assert counts(tally_of(progress_of(review), [bare])) == happened(EventType.GATE_REFUSED)


@pytest.mark.parametrize(("project", "scopes"), [(None, ("",)), ("", ("",)), ("p", ("", "p"))])
def test_a_review_counts_for_everything_and_for_its_project(project: str | None, scopes: tuple[str, ...]) -> None:
    assert scopes_of(project) == scopes
