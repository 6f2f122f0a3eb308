"""What holds whatever the caller says."""

from dataclasses import replace

import pytest

from gsd_review_broker.domain.model import Identity, Milliseconds, Review
from gsd_review_broker.domain.rules import claims, discussion, proposals, transitions, verdicts
from gsd_review_broker.domain.rules.verdicts import Judgement, Seen
from gsd_review_broker.domain.words import (
    Category,
    CounterPatchStatus,
    Disposition,
    EventType,
    Fence,
    Outcome,
    Priority,
    Status,
    Verdict,
)
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from tests.support.policies import review_policy
from tests.support.reviews import (
    DIGEST,
    LATER,
    NOW,
    OTHER,
    PERSON,
    POLICY,
    PROPOSER,
    REVIEWER,
    TIMEOUT,
    claimed,
    closed,
    counter_patch,
    created,
    finding,
    in_status,
    judged,
    message,
    revised,
    revision,
)


def refused(code: Code, call: object) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        call()  # type: ignore[operator]
    assert caught.value.code is code
    return caught.value


@pytest.mark.parametrize(
    ("agent_type", "phase", "expected"),
    [
        ("gsd-planner", "verify", Priority.CRITICAL),
        ("GSD-Planner", "1", Priority.CRITICAL),
        ("gsd-executor", "3-verify", Priority.LOW),
        ("gsd-executor", "3", Priority.NORMAL),
    ],
)
def test_priority_follows_from_agent_and_phase(agent_type: str, phase: str, expected: Priority) -> None:
    assert proposals.priority_of(agent_type, phase) is expected


def test_a_new_review_is_pending_in_round_one_and_its_event_tells_all() -> None:
    change = created(category=Category.CODE_CHANGE, project="shop")
    assert (change.review.status, change.review.round, change.review.version) == (Status.PENDING, 1, 1)
    (event,) = change.events
    assert event.event_type is EventType.REVIEW_CREATED
    assert event.actor == PROPOSER
    assert event.metadata["intent"] == "intent of revision 1"
    assert event.metadata["category"] == "code_change"
    assert change.revision == revision()


def test_the_generation_grows_when_a_claim_begins_and_when_it_ends_without_a_verdict() -> None:
    review = claimed()
    assert review.claim_generation == 1
    released = claims.release(review, claim_generation=1, now=LATER)
    assert released.review.claim_generation == 2
    assert released.review.claimed_by is None
    assert released.events[0].actor == REVIEWER
    again = claimed(released.review, by=OTHER)
    assert again.claim_generation == 3
    over = claims.take_over(again, person=PERSON, policy=POLICY, now=LATER)
    assert over.review.claim_generation == 5
    assert over.review.claimed_by == PERSON
    assert [event.event_type for event in over.events] == [EventType.REVIEW_RECLAIMED, EventType.REVIEW_CLAIMED]
    assert closed(over.review).review.claim_generation == 6


def test_a_verdict_keeps_the_claimant_and_the_generation_and_ends_the_deadline() -> None:
    review = judged(claimed(), Verdict.APPROVED, reason=None).review
    assert (review.claimed_by, review.claim_generation, review.claim_expires_at) == (REVIEWER, 1, None)
    assert review.digest == DIGEST


def test_closing_after_a_verdict_keeps_it_and_the_claim() -> None:
    review = closed(judged(claimed(), Verdict.APPROVED).review).review
    assert (review.outcome, review.verdict, review.claimed_by) == (Outcome.APPROVED, Verdict.APPROVED, REVIEWER)
    assert review.claim_generation == 1
    given_up = closed(judged(claimed(), Verdict.CHANGES_REQUESTED).review).review
    assert given_up.outcome is Outcome.CHANGES_REQUESTED


def test_withdrawing_what_nobody_claimed_leaves_the_generation() -> None:
    review = closed(created().review).review
    assert (review.outcome, review.claim_generation) == (Outcome.WITHDRAWN, 0)


def test_a_stale_generation_is_refused_and_recorded_in_every_state() -> None:
    for status in (Status.PENDING, Status.CLAIMED, Status.IN_REVIEW, Status.CLOSED):
        review = replace(in_status(status), claim_generation=7)
        change = judged(review, Verdict.APPROVED, claim_generation=3)
        assert change.refusal is not None
        assert change.refusal.code is Code.STALE_CLAIM
        assert change.events[0].event_type is EventType.VERDICT_REFUSED
        assert change.review.status is status
        assert replace(change.review, version=review.version, updated_at=review.updated_at) == review


def test_a_generation_that_has_not_begun_is_refused_too() -> None:
    review = claimed()
    change = judged(review, Verdict.APPROVED, claim_generation=review.claim_generation + 1)
    assert change.refusal is not None
    assert change.refusal.code is Code.STALE_CLAIM
    refused(Code.STALE_CLAIM, lambda: claims.release(review, claim_generation=review.claim_generation + 1, now=LATER))


def test_the_right_generation_with_another_name_is_not_the_claimant() -> None:
    change = judged(claimed(), Verdict.APPROVED, reviewer_id=OTHER)
    assert change.refusal is not None
    assert change.refusal.code is Code.NOT_CLAIMANT
    assert change.events[0].actor == OTHER


def test_a_verdict_by_the_claimants_name_alone_is_enough() -> None:
    change = judged(claimed(), Verdict.APPROVED, claim_generation=None, reviewer_id=Identity("Codex-R1"))
    assert change.review.status is Status.APPROVED


def test_a_bare_verdict_is_refused_with_a_hint_unless_the_fence_is_managed_and_nobody_manages_the_claim() -> None:
    bare = {"claim_generation": None, "reviewer_id": None}
    error = refused(Code.INVALID_ARGUMENT, lambda: judged(claimed(), Verdict.APPROVED, **bare))
    assert error.next == NextStep(Next.NAME_THE_CLAIM)
    allowed = judged(claimed(), Verdict.APPROVED, policy=review_policy(fence=Fence.MANAGED), **bare)
    assert allowed.review.status is Status.APPROVED
    pool = {"policy": review_policy(fence=Fence.MANAGED), "pool_managed": True}
    refused(Code.INVALID_ARGUMENT, lambda: judged(claimed(), Verdict.APPROVED, **bare, **pool))


@pytest.mark.parametrize("verdict", [Verdict.CHANGES_REQUESTED, Verdict.COMMENT])
@pytest.mark.parametrize("reason", [None, "", " \n\t"])
def test_only_an_approval_may_be_without_a_reason(verdict: Verdict, reason: str | None) -> None:
    refused(Code.INVALID_ARGUMENT, lambda: judged(claimed(), verdict, reason=reason))


def test_the_same_verdict_again_is_answered_without_an_event_and_with_its_first_reason() -> None:
    review = judged(claimed(), Verdict.CHANGES_REQUESTED, reason="first").review
    again = judged(review, Verdict.CHANGES_REQUESTED, reason="second")
    assert again.events == ()
    assert again.review.verdict_reason == "first"


def test_a_comment_changes_no_state_keeps_the_verdict_empty_and_extends_the_deadline() -> None:
    change = judged(claimed(), Verdict.COMMENT, reason="hm")
    assert (change.review.status, change.review.verdict, change.review.verdict_reason) == (Status.CLAIMED, None, "hm")
    assert change.review.claim_expires_at == LATER + TIMEOUT
    twice = judged(change.review, Verdict.COMMENT, reason="hm")
    assert twice.events[0].event_type is EventType.VERDICT_COMMENT


def test_nobody_judges_what_they_alone_stand_behind() -> None:
    review = created().review
    refused(Code.SELF_REVIEW, lambda: claims.may_claim(review, reviewer=Identity("GSD-executor"), now=NOW))
    sneaked = claimed(review, by=PROPOSER)
    change = judged(sneaked, Verdict.APPROVED)
    assert change.refusal is not None
    assert change.refusal.code is Code.SELF_REVIEW
    refused(
        Code.SELF_REVIEW, lambda: claims.take_over(claimed(author_is_person()), person=PERSON, policy=POLICY, now=NOW)
    )


def author_is_person() -> Review:
    return created(revision=revision(author=PERSON), proposer_id=PERSON).review


def test_whoever_uploaded_the_newest_revision_may_not_judge_it_either() -> None:
    review = judged(claimed(), Verdict.CHANGES_REQUESTED).review
    revised_by_other = revised(review, revision=revision(2, author=OTHER)).review
    refused(Code.SELF_REVIEW, lambda: claims.may_claim(revised_by_other, reviewer=OTHER, now=LATER))


def test_only_a_person_takes_over() -> None:
    refused(Code.FORBIDDEN, lambda: claims.take_over(claimed(), person=OTHER, policy=POLICY, now=LATER))


def test_a_review_with_a_proposer_id_belongs_to_it_or_to_a_person() -> None:
    owned = created(proposer_id=Identity("p1"), revision=revision(author=Identity("p1"))).review
    review = judged(claimed(owned), Verdict.CHANGES_REQUESTED).review
    for caller in (None, OTHER):
        refused(Code.FORBIDDEN, lambda caller=caller: revised(review, caller=caller))
        refused(Code.FORBIDDEN, lambda caller=caller: closed(review, caller=caller))
    assert revised(review, caller=Identity("P1")).review.status is Status.PENDING
    assert closed(review, caller=PERSON).events[0].actor == PERSON


def test_a_revision_clears_claimant_and_verdict_and_begins_a_round() -> None:
    review = judged(claimed(), Verdict.CHANGES_REQUESTED).review
    after = revised(review).review
    assert (after.revision, after.round, after.claim_generation) == (2, 2, 2)
    assert (after.claimed_by, after.verdict, after.verdict_reason, after.digest) == (None, None, None, None)
    assert after.reserved_for is None


def test_a_revision_after_an_auto_reject_stays_in_its_round() -> None:
    review = claims.auto_reject(created().review, git_says="error: patch failed", now=NOW).review
    assert (review.verdict, review.verdict_reason) == (Verdict.CHANGES_REQUESTED, "Auto-rejected: error: patch failed")
    assert (review.claimed_by, review.claim_generation, review.round) == (None, 0, 1)
    # Nobody gave it.
    assert (review.last_verdict, review.first_verdict_at) == (None, None)
    after = revised(review).review
    assert (after.round, after.claim_generation, after.revision) == (1, 0, 2)


def test_a_revision_is_kept_for_the_reviewer_who_is_still_there() -> None:
    review = revised(judged(claimed(), Verdict.CHANGES_REQUESTED).review, reviewer_alive=True).review
    error = refused(Code.ALREADY_CLAIMED, lambda: claims.may_claim(review, reviewer=OTHER, now=LATER))
    assert "60 s" in error.message
    assert claims.may_claim(review, reviewer=REVIEWER, now=LATER)
    assert claims.may_claim(review, reviewer=OTHER, now=Milliseconds(LATER + 60_000))
    assert claimed(review).reserved_for is None


def test_only_the_live_claimant_extends_its_deadline() -> None:
    review = claimed()
    later = claims.extend(review, caller=REVIEWER, policy=POLICY, now=LATER)
    assert later is not None
    assert later.claim_expires_at == LATER + TIMEOUT
    assert claims.extend(review, caller=OTHER, policy=POLICY, now=LATER) is None
    assert claims.extend(in_status(Status.APPROVED), caller=REVIEWER, policy=POLICY, now=LATER) is None


def test_a_claim_is_unused_until_its_claimant_does_something() -> None:
    review = claimed()
    assert claims.is_unused(review, POLICY)
    assert review.claimed_at is not None
    # In the same millisecond too.
    used = claims.extend(review, caller=REVIEWER, policy=POLICY, now=review.claimed_at)
    assert used is not None
    assert not claims.is_unused(used, POLICY)
    assert not claims.is_unused(replace(review, verdict_reason="hm"), POLICY)
    assert not any(claims.is_unused(in_status(status), POLICY) for status in Status if status is not Status.CLAIMED)


def test_releasing_with_an_old_generation_or_nothing_claimed_is_refused() -> None:
    refused(Code.STALE_CLAIM, lambda: claims.release(claimed(), claim_generation=0, now=LATER))
    refused(Code.INVALID_TRANSITION, lambda: claims.release(created().review, claim_generation=0, now=LATER))


def test_a_verdict_when_nothing_is_claimed_is_no_transition() -> None:
    for verdict in (Verdict.APPROVED, Verdict.COMMENT):
        refused(
            Code.INVALID_TRANSITION,
            lambda verdict=verdict: judged(created().review, verdict, claim_generation=None, reviewer_id=OTHER),
        )
    refused(Code.INVALID_TRANSITION, lambda: judged(created().review, Verdict.APPROVED, claim_generation=0))


def test_the_first_message_opens_the_discussion_and_the_claimants_extends_its_deadline() -> None:
    review = claimed()
    change = discussion.send_message(review, message=message(review), policy=POLICY, now=LATER)
    assert change.review.status is Status.IN_REVIEW
    assert change.review.claim_expires_at == LATER + TIMEOUT
    assert change.events[0].metadata["body_preview"] == "why so?"
    from_other = discussion.send_message(review, message=message(review, sender=PROPOSER), policy=POLICY, now=LATER)
    assert from_other.review.claim_expires_at == review.claim_expires_at


def test_a_counter_patch_comes_with_a_request_or_a_comment_and_not_with_an_approval() -> None:
    review = claimed()
    refused(Code.INVALID_ARGUMENT, lambda: judged(review, Verdict.APPROVED, counter_patch=counter_patch(review)))
    offered = judged(review, Verdict.CHANGES_REQUESTED, counter_patch=counter_patch(review))
    assert offered.review.counter_patch_status is CounterPatchStatus.PENDING
    assert [event.event_type for event in offered.events] == [
        EventType.VERDICT_SUBMITTED,
        EventType.COUNTER_PATCH_OFFERED,
    ]
    assert offered.counter_patch_settled is None


def test_a_second_counter_patch_supersedes_the_first() -> None:
    first = judged(claimed(), Verdict.COMMENT, counter_patch=counter_patch(claimed())).review
    second = judged(first, Verdict.CHANGES_REQUESTED, counter_patch=counter_patch(first))
    assert second.counter_patch_settled == (CounterPatchStatus.SUPERSEDED, None)


def test_accepting_makes_the_counter_patch_the_newest_revision_with_both_on_record() -> None:
    review = in_status(Status.CHANGES_REQUESTED, with_counter_patch=True)
    change = discussion.accept_counter_patch(
        review,
        patch=counter_patch(review),
        revision=revision(),
        caller=None,
        findings=(),
        reviewer_alive=True,
        policy=POLICY,
        now=LATER,
    )
    assert change.revision is not None
    assert (change.revision.number, change.revision.author, change.revision.written_by) == (2, PROPOSER, REVIEWER)
    assert (change.review.round, change.review.claim_generation) == (2, 2)
    assert change.review.counter_patch_status is CounterPatchStatus.ACCEPTED
    assert change.review.reserved_for == REVIEWER
    # Two identities stand behind it: who accepted it and who wrote it may approve it.
    assert claims.may_claim(change.review, reviewer=REVIEWER, now=LATER)
    refused(Code.SELF_REVIEW, lambda: claims.may_claim(change.review, reviewer=PROPOSER, now=LATER))


def test_accepting_or_rejecting_without_an_open_counter_patch_is_no_transition() -> None:
    review = in_status(Status.CLAIMED)
    accept = {"revision": revision(), "caller": None, "findings": (), "reviewer_alive": False}
    accept["policy"] = POLICY
    refused(Code.INVALID_TRANSITION, lambda: discussion.accept_counter_patch(review, patch=None, now=LATER, **accept))
    refused(
        Code.INVALID_TRANSITION, lambda: discussion.reject_counter_patch(review, caller=None, reason=None, now=LATER)
    )


def test_a_revision_or_an_end_supersedes_an_open_counter_patch() -> None:
    review = in_status(Status.CHANGES_REQUESTED, with_counter_patch=True)
    for change in (revised(review), closed(review)):
        assert change.review.counter_patch_status is CounterPatchStatus.SUPERSEDED
        assert change.counter_patch_settled == (CounterPatchStatus.SUPERSEDED, None)


def test_an_approval_takes_an_open_counter_patch_off_the_table() -> None:
    review = in_status(Status.CLAIMED, with_counter_patch=True)
    change = judged(review, Verdict.APPROVED)
    assert change.review.counter_patch_status is CounterPatchStatus.SUPERSEDED
    assert change.counter_patch_settled == (CounterPatchStatus.SUPERSEDED, None)


def test_new_content_is_not_kept_for_who_stands_behind_it() -> None:
    review = judged(claimed(), Verdict.CHANGES_REQUESTED).review
    own = revised(review, revision=revision(2, author=REVIEWER), reviewer_alive=True)
    assert own.review.reserved_for is None


def test_a_rejected_finding_needs_a_reason_and_none_is_reopened_by_hand() -> None:
    review = claimed()
    for disposition, note in ((Disposition.REJECTED, " "), (Disposition.REJECTED, None), (Disposition.OPEN, "x")):
        refused(
            Code.INVALID_ARGUMENT,
            lambda disposition=disposition, note=note: discussion.resolve_finding(
                review,
                finding=finding(review),
                disposition=disposition,
                note=note,
                open_finding_count=0,
                actor=PROPOSER,
                now=LATER,
            ),
        )
    change = discussion.resolve_finding(
        review,
        finding=finding(review),
        disposition=Disposition.REJECTED,
        note="it is meant so",
        open_finding_count=0,
        actor=PROPOSER,
        now=LATER,
    )
    assert change.findings[0].disposition is Disposition.REJECTED
    assert change.events[0].metadata["reason"] == "it is meant so"


def test_from_the_last_round_on_a_person_is_asked_once() -> None:
    review = judged(claimed(replace(created().review, round=4)), Verdict.CHANGES_REQUESTED).review
    assert review.needs_human is None
    change = revised(review)
    assert change.review.needs_human is not None
    assert change.events[-1].event_type is EventType.HUMAN_REQUESTED
    once_more = judged(claimed(change.review), Verdict.CHANGES_REQUESTED)
    assert [event.event_type for event in once_more.events] == [EventType.VERDICT_SUBMITTED]


def test_a_finding_that_comes_back_a_third_time_asks_for_a_person() -> None:
    review = claimed()
    back = finding(review, times_raised=3)
    change = judged(review, Verdict.CHANGES_REQUESTED, findings=(back,), open_finding_count=1)
    assert change.review.needs_human is not None
    assert back.title in change.review.needs_human
    assert change.review.open_finding_count == 1


def test_a_persons_word_clears_the_request() -> None:
    review = replace(claimed(by=PERSON), needs_human="round 5")
    approved = judged(review, Verdict.APPROVED)
    assert approved.review.needs_human is None
    assert approved.events[-1].event_type is EventType.HUMAN_CLEARED
    said = discussion.send_message(review, message=message(review, sender=PERSON), policy=POLICY, now=LATER)
    assert said.review.needs_human is None
    machine = replace(claimed(), needs_human="round 5")
    assert judged(machine, Verdict.APPROVED).review.needs_human == "round 5"


# A verdict together with the claim that it needs.


def test_a_claim_followed_by_a_verdict_is_one_change_with_both_events_and_the_rows_of_the_verdict() -> None:
    begun = claims.claim(created().review, reviewer=PERSON, digest=DIGEST, policy=POLICY, now=LATER)
    remark, patch = finding(begun.review), counter_patch(begun.review)
    verdict = judged(begun.review, Verdict.CHANGES_REQUESTED, findings=(remark,), counter_patch=patch)
    change = transitions.followed_by(begun, verdict)
    assert [event.event_type for event in change.events] == [
        EventType.REVIEW_CLAIMED,
        EventType.VERDICT_SUBMITTED,
        EventType.COUNTER_PATCH_OFFERED,
    ]
    assert (change.findings, change.counter_patch) == ((remark,), patch)
    assert (change.events[0].old_status, change.events[-1].new_status) == (Status.PENDING, Status.CHANGES_REQUESTED)
    assert (change.review.claimed_by, change.review.claim_generation) == (PERSON, 1)


def test_a_claims_deadline_is_the_policys_from_now() -> None:
    assert claims.deadline(review_policy(claim_timeout=60_000), NOW) == NOW + 60_000


@pytest.mark.parametrize(
    ("seen", "approves", "why"),
    [
        (Seen(), True, None),
        (Seen(revision=1, digest=DIGEST, is_complete=True), True, None),
        (Seen(revision=1, is_complete=True), False, None),
        (Seen(revision=2), False, "you read revision 2"),
        (Seen(revision=1, is_complete=True), True, "showed no digest"),
        (Seen(digest="sha256:other"), False, "its base has changed"),
    ],
)
def test_a_person_judges_what_was_seen(seen: Seen, approves: bool, why: str | None) -> None:
    def compared() -> None:
        verdicts.refuse_other_revision(claimed(), seen)
        verdicts.refuse_other_digest(claimed(), seen, approves=approves)

    if why is None:
        compared()
    else:
        assert why in refused(Code.CONFLICT, compared).message


def test_what_has_no_digest_is_not_approved_as_one_that_was_seen() -> None:
    review = replace(claimed(), digest=None)
    verdicts.refuse_other_digest(review, Seen(is_complete=True), approves=True)
    error = refused(Code.CONFLICT, lambda: verdicts.refuse_other_digest(review, Seen(digest=DIGEST), approves=True))
    assert "without a digest" in error.message


def test_fence_and_identity_are_refused_without_looking_at_what_the_verdict_contains() -> None:
    def judge(review: Review, **by: object) -> Identity:
        judgement = Judgement(verdict=Verdict.COMMENT, reason=None, **by)
        return verdicts.refuse_verdict(review, judgement, pool_managed=False, policy=POLICY)

    assert judge(claimed(), reviewer_id=REVIEWER) == REVIEWER
    refused(Code.STALE_CLAIM, lambda: judge(claimed(), claim_generation=7))
    refused(Code.NOT_CLAIMANT, lambda: judge(claimed(), reviewer_id=OTHER))
    refused(Code.INVALID_TRANSITION, lambda: judge(created().review, reviewer_id=REVIEWER))
    refused(Code.INVALID_ARGUMENT, lambda: judge(claimed()))
