"""How far a review is from the approvals that the policy asks for: read from its events, which the audit protects."""

from gsd_review_broker.domain.model import ApprovalPolicy, Identity, Review, Status
from gsd_review_broker.domain.rules import approvals
from gsd_review_broker.domain.rules.approvals import NOTHING_YET, Standing
from gsd_review_broker.ports.store import Reader

# Events of one review that are looked at; a review with so many rounds has long called for a person.
_MOST_EVENTS = 2_000
_OPEN = frozenset({Status.PENDING, Status.CLAIMED, Status.IN_REVIEW})


def standing_of(reader: Reader, review: Review, policy: ApprovalPolicy, *, digest: str | None) -> Standing:
    """For the content with this digest. Without more than one reviewer in the policy nothing is read."""
    if policy.is_one_reviewer:
        return NOTHING_YET
    events = reader.events(review_id=review.id, after=0, limit=_MOST_EVENTS)
    revision = reader.revision(review.id, review.revision, with_diff=False)
    files = revision.affected_files if revision else ()
    touched = dict.fromkeys(name for file in files for name in (file.path, file.old_path) if name is not None)
    return Standing(approvers=approvals.approvers_in(events, review, digest), touched=tuple(touched))


def can_add(reader: Reader, review: Review, policy: ApprovalPolicy, reviewer: Identity) -> bool:
    """Would the policy let this reviewer claim it? A review with one event has no approval yet."""
    if policy.is_one_reviewer or review.version == 1:
        return True
    return approvals.can_add_approval(reviewer, policy, standing_of(reader, review, policy, digest=review.digest))


def missing_in(reader: Reader, review: Review, policy: ApprovalPolicy) -> tuple[Standing, tuple[str, ...]] | None:
    """What an open review still lacks; None where the policy asks for one reviewer, or the review is judged."""
    if policy.is_one_reviewer or review.status not in _OPEN:
        return None
    standing = standing_of(reader, review, policy, digest=review.digest)
    return standing, approvals.missing(policy, standing)
