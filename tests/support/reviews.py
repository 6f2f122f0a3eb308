"""Reviews in any state, made by the rules themselves."""

from typing import Any

from gsd_review_broker.domain.model import (
    AffectedFile,
    Change,
    CounterPatch,
    Finding,
    Identity,
    Message,
    Milliseconds,
    Origin,
    Review,
    ReviewId,
    Revision,
)
from gsd_review_broker.domain.rules import claims, discussion, proposals, verdicts
from gsd_review_broker.domain.rules.verdicts import Judgement
from gsd_review_broker.domain.words import (
    Anchor,
    CounterPatchStatus,
    Disposition,
    Operation,
    Role,
    Severity,
    Side,
    Status,
    Verdict,
)
from tests.support.policies import review_policy

NOW = Milliseconds(1_800_000_000_000)
LATER = Milliseconds(NOW + 5_000)
POLICY = review_policy()
TIMEOUT = POLICY.claim_timeout
PROPOSER = Identity("gsd-executor")
REVIEWER = Identity("codex-r1")
OTHER = Identity("claude-r2")
PERSON = Identity("human:ada")
DIGEST = "sha256:" + "a" * 64


def revision(number: int = 1, *, author: Identity = PROPOSER, diff: bytes | None = None) -> Revision:
    return Revision(
        review_id=ReviewId("a1b2c3d4e5f60718"),
        number=number,
        intent=f"intent of revision {number}",
        description=None,
        diff=diff,
        skip_diff_validation=False,
        affected_files=(),
        author=author,
        written_by=author,
        created_at=NOW,
    )


def created(**fields: Any) -> Change:
    """The fields of an Origin, and `revision` and `now` beside them."""
    first, now = fields.pop("revision", None) or revision(), fields.pop("now", NOW)
    origin_fields = {"agent_type": str(PROPOSER), "agent_role": Role.PROPOSER, "phase": "1"}
    return proposals.create(origin=Origin(**{**origin_fields, **fields}), revision=first, now=now)


def claimed(review: Review | None = None, *, by: Identity = REVIEWER, now: Milliseconds = NOW) -> Review:
    review = review or created().review
    return claims.claim(review, reviewer=by, digest=DIGEST, policy=POLICY, now=now).review


def message(review: Review, *, sender: Identity = REVIEWER, role: Role = Role.REVIEWER) -> Message:
    return Message(
        review_id=review.id,
        round=review.round,
        sender_role=role,
        sender=sender,
        body="why so?",
        path=None,
        line=None,
        in_reply_to=None,
        metadata=None,
        created_at=NOW,
    )


def judged(review: Review, verdict: Verdict, **fields: Any) -> Change:
    """Arguments of the judgement and of the rule."""
    arguments: dict[str, Any] = {"reason": "because", "claim_generation": review.claim_generation, **fields}
    parts = {name: arguments.pop(name) for name in ("reason", "reviewer_id", "claim_generation") if name in arguments}
    content: dict[str, Any] = {
        "counter_patch": None,
        "findings": (),
        "open_finding_count": 0,
        "pool_managed": False,
        "policy": POLICY,
        "now": LATER,
    }
    return verdicts.give_verdict(review, Judgement(verdict=verdict, **parts), **{**content, **arguments})


def revised(review: Review, **fields: Any) -> Change:
    arguments: dict[str, Any] = {
        "revision": revision(review.revision + 1),
        "caller": None,
        "findings": (),
        "reviewer_alive": False,
        "policy": POLICY,
        "now": LATER,
    }
    return proposals.revise(review, **{**arguments, **fields})


def closed(review: Review, **fields: Any) -> Change:
    arguments: dict[str, Any] = {"closer_role": Role.PROPOSER, "caller": None, "reason": None, "now": LATER}
    return proposals.close(review, **{**arguments, **fields})


def in_status(status: Status, *, with_counter_patch: bool = False) -> Review:
    """A review that came to this state in the usual way."""
    review = created().review
    if status is Status.PENDING:
        return review
    review = claimed(review)
    if with_counter_patch:
        review = judged(review, Verdict.COMMENT, counter_patch=counter_patch(review)).review
    if status is Status.CLAIMED:
        return review
    if status is Status.IN_REVIEW:
        return discussion.send_message(review, message=message(review), policy=POLICY, now=LATER).review
    if status is Status.CLOSED:
        return closed(review).review
    verdict = Verdict.APPROVED if status is Status.APPROVED else Verdict.CHANGES_REQUESTED
    return judged(review, verdict).review


def counter_patch(review: Review) -> CounterPatch:
    return CounterPatch(
        review_id=review.id,
        revision=review.revision,
        round=review.round,
        diff=b"a better one",
        affected_files=(AffectedFile(path="x", operation=Operation.MODIFY, added=1, removed=1),),
        offered_by=review.claimed_by or REVIEWER,
        status=CounterPatchStatus.PENDING,
        reason=None,
        created_at=NOW,
    )


def finding(review: Review, **fields: Any) -> Finding:
    arguments: dict[str, Any] = {
        "id": "f0123456789ab",
        "review_id": review.id,
        "raised_by": REVIEWER,
        "position": 1,
        "raised_in_round": review.round,
        "raised_at_revision": review.revision,
        "times_raised": 1,
        "path": "x",
        "line_start": 1,
        "line_end": 1,
        "side": Side.NEW,
        "severity": Severity.HIGH,
        "title": "off by one",
        "body": "the last is left out",
        "suggestion": None,
        "confidence": None,
        "anchor": Anchor.ANCHORED,
        "anchor_text": "for x in y:",
        "disposition": Disposition.OPEN,
        "note": None,
        "created_at": NOW,
    }
    return Finding(**{**arguments, **fields})
