"""The review that comes nearest to a commit that no approval covers."""

from gsd_review_broker.domain.gate import search
from gsd_review_broker.domain.gate.decision import Commit, without_exempt
from gsd_review_broker.domain.gate.ledger import Origin, ReviewedChange
from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.domain.gate.records import Steps, parse_records
from gsd_review_broker.domain.gate.refusal import Nearest, shown_path
from gsd_review_broker.domain.model import ApprovalPolicy, Status
from gsd_review_broker.domain.rules.approvals import texts_of
from gsd_review_broker.ports.store import Reader, ReviewFilter
from gsd_review_broker.service.approvals import missing_in

_MOST_OPEN_REVIEWS = 20
_MOST_NAMED = 5
_MOST_ON_PATH = 20
_OPEN = (Status.PENDING, Status.CLAIMED, Status.IN_REVIEW, Status.CHANGES_REQUESTED)


def nearest_review(
    reader: Reader, commit: Commit, policy: GatePolicy, origin: Origin, approvals: ApprovalPolicy
) -> Nearest | None:
    """An approved one that has not landed first, since the commit was perhaps changed after it; then an open one of the
    same files; then one that has landed."""
    steps = without_exempt(commit.steps, policy)
    if not steps:
        return None
    approved = search.of_same_paths(reader, steps, origin, policy).changes or [
        change for change in reader.approvals_on_path(min(steps), _MOST_ON_PATH) if change.origin.is_same(origin)
    ]
    waiting = next((change for change in approved if change.landed_at is None), None)
    if waiting is not None:
        return _of_approved(waiting, steps, policy)
    return _open_review(reader, steps, approvals) or (_of_approved(approved[0], steps, policy) if approved else None)


def _of_approved(change: ReviewedChange, steps: Steps, policy: GatePolicy) -> Nearest:
    known = without_exempt(parse_records(change.records), policy)
    if known == steps:
        return Nearest(review_id=change.review_id, standing="needs_person")
    differing = sorted(
        path
        for path in known.keys() | steps.keys()
        if path not in known or path not in steps or known[path].new != steps[path].new
    )
    if not differing:
        return Nearest(review_id=change.review_id, standing="stale")
    named = tuple(shown_path(path) for path in differing[:_MOST_NAMED])
    return Nearest(review_id=change.review_id, standing="changed", differs_in=named)


def _open_review(reader: Reader, steps: Steps, approvals: ApprovalPolicy) -> Nearest | None:
    names = {shown_path(path) for path in steps}
    for status in _OPEN:
        for review, _ in reader.reviews(ReviewFilter(status=status), after=None, limit=_MOST_OPEN_REVIEWS):
            revision = reader.revision(review.id, review.revision, with_diff=False)
            if revision and any(file.path in names for file in revision.affected_files):
                found = missing_in(reader, review, approvals)
                return Nearest(
                    review_id=review.id, standing=status.value, missing=tuple(texts_of(found[1])) if found else ()
                )
    return None
