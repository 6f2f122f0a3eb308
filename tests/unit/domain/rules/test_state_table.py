"""Every row of the contract's state table, and every pair that is not in it."""

from collections.abc import Callable

import pytest

from gsd_review_broker.domain.model import Change, Review
from gsd_review_broker.domain.rules import claims, discussion, transitions
from gsd_review_broker.domain.rules.transitions import STEPS, Command
from gsd_review_broker.domain.words import Disposition, Role, Status, Verdict
from gsd_review_broker.errors import BrokerError, Code, Next
from tests.support.reviews import (
    DIGEST,
    LATER,
    OTHER,
    PERSON,
    POLICY,
    REVIEWER,
    claimed,
    closed,
    counter_patch,
    finding,
    in_status,
    judged,
    message,
    revised,
    revision,
)

PENDING, CLAIMED, IN_REVIEW = Status.PENDING, Status.CLAIMED, Status.IN_REVIEW
APPROVED, CHANGES_REQUESTED, CLOSED = Status.APPROVED, Status.CHANGES_REQUESTED, Status.CLOSED

# Written out from the contract, not taken from the rules: (command, from) -> to.
TABLE: dict[tuple[Command, Status], Status] = {
    (Command.CLAIM, PENDING): CLAIMED,
    (Command.AUTO_REJECT, PENDING): CHANGES_REQUESTED,
    (Command.SEND_MESSAGE, CLAIMED): IN_REVIEW,
    (Command.SEND_MESSAGE, IN_REVIEW): IN_REVIEW,
    (Command.SEND_MESSAGE, APPROVED): APPROVED,
    (Command.SEND_MESSAGE, CHANGES_REQUESTED): CHANGES_REQUESTED,
    (Command.APPROVE, CLAIMED): APPROVED,
    (Command.APPROVE, IN_REVIEW): APPROVED,
    # The same verdict again is answered again; it leads nowhere.
    (Command.APPROVE, APPROVED): APPROVED,
    (Command.REQUEST_CHANGES, CLAIMED): CHANGES_REQUESTED,
    (Command.REQUEST_CHANGES, IN_REVIEW): CHANGES_REQUESTED,
    (Command.REQUEST_CHANGES, CHANGES_REQUESTED): CHANGES_REQUESTED,
    (Command.COMMENT, CLAIMED): CLAIMED,
    (Command.COMMENT, IN_REVIEW): IN_REVIEW,
    (Command.RELEASE, CLAIMED): PENDING,
    (Command.RELEASE, IN_REVIEW): PENDING,
    (Command.RECLAIM, CLAIMED): PENDING,
    (Command.RECLAIM, IN_REVIEW): PENDING,
    (Command.TAKE_OVER, CLAIMED): CLAIMED,
    (Command.TAKE_OVER, IN_REVIEW): CLAIMED,
    (Command.REVISE, CHANGES_REQUESTED): PENDING,
    (Command.ACCEPT_COUNTER_PATCH, CLAIMED): PENDING,
    (Command.ACCEPT_COUNTER_PATCH, IN_REVIEW): PENDING,
    (Command.ACCEPT_COUNTER_PATCH, CHANGES_REQUESTED): PENDING,
    (Command.REJECT_COUNTER_PATCH, CLAIMED): CLAIMED,
    (Command.REJECT_COUNTER_PATCH, IN_REVIEW): IN_REVIEW,
    (Command.REJECT_COUNTER_PATCH, CHANGES_REQUESTED): CHANGES_REQUESTED,
    (Command.RESOLVE_FINDING, PENDING): PENDING,
    (Command.RESOLVE_FINDING, CLAIMED): CLAIMED,
    (Command.RESOLVE_FINDING, IN_REVIEW): IN_REVIEW,
    (Command.RESOLVE_FINDING, APPROVED): APPROVED,
    (Command.RESOLVE_FINDING, CHANGES_REQUESTED): CHANGES_REQUESTED,
    (Command.CLOSE, PENDING): CLOSED,
    (Command.CLOSE, CLAIMED): CLOSED,
    (Command.CLOSE, IN_REVIEW): CLOSED,
    (Command.CLOSE, APPROVED): CLOSED,
    (Command.CLOSE, CHANGES_REQUESTED): CLOSED,
}

DO: dict[Command, Callable[[Review], Change]] = {
    Command.CLAIM: lambda review: claims.claim(review, reviewer=REVIEWER, digest=DIGEST, policy=POLICY, now=LATER),
    Command.AUTO_REJECT: lambda review: claims.auto_reject(review, git_says="no", now=LATER),
    Command.SEND_MESSAGE: lambda review: discussion.send_message(
        review, message=message(review), policy=POLICY, now=LATER
    ),
    Command.APPROVE: lambda review: judged(review, Verdict.APPROVED),
    Command.REQUEST_CHANGES: lambda review: judged(review, Verdict.CHANGES_REQUESTED),
    Command.COMMENT: lambda review: judged(review, Verdict.COMMENT),
    Command.RELEASE: lambda review: claims.release(review, claim_generation=review.claim_generation, now=LATER),
    Command.RECLAIM: lambda review: claims.reclaim(review, reason="late", now=LATER),
    Command.TAKE_OVER: lambda review: claims.take_over(review, person=PERSON, policy=POLICY, now=LATER),
    Command.REVISE: revised,
    Command.ACCEPT_COUNTER_PATCH: lambda review: discussion.accept_counter_patch(
        review,
        patch=counter_patch(review),
        revision=revision(review.revision),
        caller=None,
        findings=(),
        reviewer_alive=False,
        policy=POLICY,
        now=LATER,
    ),
    Command.REJECT_COUNTER_PATCH: lambda review: discussion.reject_counter_patch(
        review, caller=None, reason="no", now=LATER
    ),
    Command.RESOLVE_FINDING: lambda review: discussion.resolve_finding(
        review,
        finding=finding(review),
        disposition=Disposition.FIXED,
        note=None,
        open_finding_count=0,
        actor=OTHER,
        now=LATER,
    ),
    Command.CLOSE: closed,
}

_BY_NOBODY_WHO_CALLS = {command.value for command in (Command.AUTO_REJECT, Command.RECLAIM, Command.TAKE_OVER)}
_AGAIN = {APPROVED: {Command.APPROVE.value}, CHANGES_REQUESTED: {Command.REQUEST_CHANGES.value}}
ALL_PAIRS = [(command, status) for command in Command for status in Status]


def the_review(status: Status) -> Review:
    return in_status(status, with_counter_patch=status not in {PENDING, CLOSED})


@pytest.mark.parametrize(("command", "source"), ALL_PAIRS, ids=lambda value: value.name)
def test_each_command_does_from_each_state_what_the_table_says(command: Command, source: Status) -> None:
    review = the_review(source)
    target = TABLE.get((command, source))
    if target is not None:
        assert DO[command](review).review.status is target
        return
    with pytest.raises(BrokerError) as refused:
        DO[command](review)
    assert refused.value.code is Code.INVALID_TRANSITION
    assert source.value in refused.value.message
    wanted = STEPS[command].target
    if wanted is not None and wanted is not source and review.claimed_by is not None:
        assert wanted.value in refused.value.message


@pytest.mark.parametrize("status", list(Status))
def test_a_refusal_says_what_is_possible_now(status: Status) -> None:
    review = the_review(status)
    command = Command.REVISE if status is not CHANGES_REQUESTED else Command.CLAIM
    with pytest.raises(BrokerError) as refused:
        DO[command](review)
    if status is CLOSED:
        assert "final" in refused.value.hint
    else:
        possible = {command.value for command, source in TABLE if source is status} - _BY_NOBODY_WHO_CALLS
        assert refused.value.next is not None
        assert refused.value.next.kind is Next.POSSIBLE_NOW
        # What was just refused is not offered, and neither is the same verdict again.
        assert set(refused.value.next.commands) == possible - _AGAIN.get(status, set())


@pytest.mark.parametrize(("command", "source"), sorted(TABLE), ids=lambda value: value.name)
def test_each_step_is_told_by_events_that_lead_from_the_old_state_to_the_new(command: Command, source: Status) -> None:
    review = the_review(source)
    change = DO[command](review)
    states = [source, *(event.new_status for event in change.events)]
    assert [event.old_status for event in change.events] == states[:-1]
    assert states[-1] is TABLE[command, source]
    assert change.review.version == review.version + len(change.events)
    assert change.review.claim_generation >= review.claim_generation


def test_the_rules_own_table_holds_no_step_beyond_the_contracts() -> None:
    own = {(command, source) for command, step in STEPS.items() for source in step.sources}
    repeated = {(Command.APPROVE, APPROVED), (Command.REQUEST_CHANGES, CHANGES_REQUESTED)}
    assert own == set(TABLE) - repeated


def test_closed_is_final() -> None:
    assert transitions.possible_now(CLOSED) == []


def test_the_reviewer_who_closes_is_forbidden() -> None:
    with pytest.raises(BrokerError) as refused:
        closed(in_status(APPROVED), closer_role=Role.REVIEWER)
    assert refused.value.code is Code.FORBIDDEN


def test_a_claimed_review_is_not_claimed_twice() -> None:
    review = claimed()
    with pytest.raises(BrokerError) as refused:
        claims.may_claim(review, reviewer=OTHER, now=LATER)
    assert refused.value.code is Code.ALREADY_CLAIMED
    assert claims.may_claim(review, reviewer=REVIEWER, now=LATER) is False
