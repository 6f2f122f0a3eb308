"""The approval policy: when approvals count, and what is missing until then."""

import pytest

from gsd_review_broker.domain.model import ApprovalPolicy, Change, Identity, Review
from gsd_review_broker.domain.rules import transitions, verdicts
from gsd_review_broker.domain.rules.verdicts import (
    ApprovalsSoFar,
    Judgement,
    missing_approvals,
    refuse_useless_approver,
    texts_of,
    vendor_of,
)
from gsd_review_broker.domain.words import EventType, Status, Verdict
from gsd_review_broker.errors import BrokerError, Code
from tests.support.policies import approval_policy, review_policy
from tests.support.reviews import LATER, REVIEWER, claimed, created

CODEX, CODEX2, CLAUDE = Identity("codex-r1-0a1b2c3d"), Identity("codex-r2-0a1b2c3d"), Identity("claude-laptop")
ADA = Identity("human:ada")
TWO = approval_policy(required=2)
TWO_VENDORS = approval_policy(required=2, distinct_vendors=True)
OPENCODE = Identity("opencode-r1")
UNKNOWN = "the vendor of opencode-r1 is unknown; a reviewer's name has to begin with claude, codex, gemini or gpt"
ONE_VENDOR = approval_policy(required=1, distinct_vendors=True, human_paths=("docs/",))
PERSON_FOR_DOCS = approval_policy(human_paths=("docs/",))


def by(*approvers: Identity, touched: tuple[str, ...] = ()) -> ApprovalsSoFar:
    return ApprovalsSoFar(approvers=approvers, touched=touched)


@pytest.mark.parametrize(
    ("policy", "so_far", "lacking"),
    [
        (approval_policy(), by(CODEX), ()),
        (approval_policy(), by(), ("1 more approval",)),
        (TWO, by(), ("2 more approvals",)),
        (TWO, by(CODEX), ("1 more approval",)),
        (TWO, by(CODEX, Identity("CODEX-R1-0A1B2C3D")), ("1 more approval",)),
        (TWO, by(CODEX, CODEX2), ()),
        (TWO_VENDORS, by(CODEX), ("1 more approval",)),
        (TWO_VENDORS, by(CODEX, CODEX2), ("an approval from another vendor than openai",)),
        (TWO_VENDORS, by(CODEX, CLAUDE), ()),
        (TWO_VENDORS, by(ADA, Identity("human:bo")), ()),
        (TWO_VENDORS, by(CODEX, OPENCODE), (f"an approval from another vendor than openai ({UNKNOWN})",)),
        (TWO_VENDORS, by(ADA, OPENCODE), (f"an approval from another vendor than human:ada ({UNKNOWN})",)),
        (TWO_VENDORS, by(OPENCODE), ("1 more approval",)),
        (TWO_VENDORS, by(CODEX, OPENCODE, CLAUDE), ()),
        (
            TWO_VENDORS,
            by(OPENCODE, Identity("cursor")),
            (f"approvals from 2 vendors ({UNKNOWN.replace('opencode-r1', 'cursor, opencode-r1')})",),
        ),
        (ONE_VENDOR, by(OPENCODE, touched=("docs/a.md",)), ("a person's approval, for docs/a.md",)),
        (PERSON_FOR_DOCS, by(CODEX, touched=("src/a.py",)), ()),
        (PERSON_FOR_DOCS, by(CODEX, touched=("src/a.py", "docs/a.md")), ("a person's approval, for docs/a.md",)),
        (PERSON_FOR_DOCS, by(ADA, touched=("docs/a.md",)), ()),
        (PERSON_FOR_DOCS, by(touched=("docs/a.md",)), ("1 more approval", "a person's approval, for docs/a.md")),
    ],
)
def test_the_policy_says_what_is_missing(
    policy: ApprovalPolicy, so_far: ApprovalsSoFar, lacking: tuple[str, ...]
) -> None:
    assert tuple(texts_of(missing_approvals(policy, so_far))) == lacking


@pytest.mark.parametrize(
    ("name", "vendor"),
    [(CODEX, "openai"), (CLAUDE, "anthropic"), ("Gemini", "google"), ("gpt-6", "openai"), (ADA, "human:ada")],
)
def test_a_vendor_is_known_by_the_first_word_of_the_name(name: Identity, vendor: str) -> None:
    assert vendor_of(name) == vendor


@pytest.mark.parametrize("name", ["opencode-x", "command-r1-0a1b2c3d", "cursor", "claudette", "-claude", "ada"])
def test_another_name_tells_no_vendor(name: Identity) -> None:
    assert vendor_of(name) is None


def test_the_second_approval_is_not_asked_of_a_reviewer_whose_vendor_is_unknown() -> None:
    with pytest.raises(BrokerError, match=UNKNOWN) as refused:
        refuse_useless_approver(created().review, OPENCODE, TWO_VENDORS, by(CODEX))
    assert refused.value.code is Code.INVALID_TRANSITION
    refuse_useless_approver(created().review, OPENCODE, TWO_VENDORS, by())
    refuse_useless_approver(created().review, CLAUDE, TWO_VENDORS, by(OPENCODE))
    refuse_useless_approver(created().review, OPENCODE, TWO, by(CODEX))


def judged(
    review: Review, policy: ApprovalPolicy, so_far: ApprovalsSoFar, verdict: Verdict = Verdict.APPROVED
) -> Change:
    reason = None if verdict is Verdict.APPROVED else "no"
    return verdicts.give_verdict(
        review,
        Judgement(verdict=verdict, reason=reason, reviewer_id=REVIEWER, claim_generation=review.claim_generation),
        counter_patch=None,
        findings=(),
        open_finding_count=0,
        pool_managed=False,
        policy=review_policy(approvals=policy),
        now=LATER,
        so_far=so_far,
    )


def kinds(change: Change) -> list[EventType]:
    return [event.event_type for event in change.events]


def test_an_approval_that_is_not_enough_is_kept_and_the_claim_goes_back() -> None:
    review = claimed()
    change = judged(review, TWO, by())
    assert kinds(change) == [EventType.VERDICT_COMMENT, EventType.REVIEW_RELEASED]
    assert change.events[0].metadata["missing"] == ["1 more approval"]
    after = change.review
    assert (after.status, after.verdict, after.claimed_by) == (Status.PENDING, None, None)
    assert after.claim_generation == review.claim_generation + 1
    assert verdicts.approvers_in(change.events, after, review.digest) == (REVIEWER,)


def test_an_approval_of_other_content_does_not_count() -> None:
    change = judged(claimed(), TWO, by())
    assert verdicts.approvers_in(change.events, change.review, "sha256:other") == ()
    comment = judged(claimed(), TWO, by(), Verdict.COMMENT)
    assert verdicts.approvers_in(comment.events, comment.review, comment.review.digest) == ()


def test_the_approval_that_meets_the_policy_makes_it_approved() -> None:
    change = judged(claimed(), TWO, by(CLAUDE))
    assert kinds(change) == [EventType.VERDICT_SUBMITTED]
    assert (change.review.status, change.review.verdict) == (Status.APPROVED, Verdict.APPROVED)


def test_one_reviewer_may_still_request_changes() -> None:
    assert judged(claimed(), TWO, by(CLAUDE), Verdict.CHANGES_REQUESTED).review.status is Status.CHANGES_REQUESTED


def test_a_person_is_called_when_only_a_person_is_missing() -> None:
    change = judged(claimed(), PERSON_FOR_DOCS, by(touched=("docs/a.md",)))
    assert kinds(change)[-1] is EventType.HUMAN_REQUESTED
    assert change.review.needs_human == "the policy needs a person's approval, for docs/a.md"
    already = transitions.call_human(claimed(), reason="stuck", now=LATER).review
    again = judged(already, PERSON_FOR_DOCS, by(touched=("docs/a.md",)))
    assert again.review.needs_human == "stuck"


@pytest.mark.parametrize(
    ("reviewer", "policy", "so_far", "refused"),
    [
        (CODEX, TWO, by(), False),
        (CODEX, TWO, by(CODEX), True),
        (CODEX2, TWO, by(CODEX), False),
        (CODEX2, TWO_VENDORS, by(CODEX), True),
        (CLAUDE, TWO_VENDORS, by(CODEX), False),
        (ADA, TWO_VENDORS, by(CODEX), False),
        (CLAUDE, PERSON_FOR_DOCS, by(CODEX, touched=("docs/a",)), True),
        (ADA, PERSON_FOR_DOCS, by(CODEX, touched=("docs/a",)), False),
        (ADA, PERSON_FOR_DOCS, by(ADA, touched=("docs/a",)), True),
    ],
)
def test_who_cannot_add_what_is_missing_does_not_claim(
    reviewer: Identity, policy: ApprovalPolicy, so_far: ApprovalsSoFar, refused: bool
) -> None:
    if not refused:
        refuse_useless_approver(created().review, reviewer, policy, so_far)
        return
    with pytest.raises(BrokerError) as error:
        refuse_useless_approver(created().review, reviewer, policy, so_far)
    assert error.value.code is Code.INVALID_TRANSITION
