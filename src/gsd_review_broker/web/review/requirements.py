"""The requirements of an approval, one by one, and whether they are met."""

from dataclasses import dataclass
from enum import StrEnum

from gsd_review_broker.domain.text import same_identity
from gsd_review_broker.domain.words import GRAVE, Disposition, EventType, Status, either
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.ports.world import Applies, DoesNotApply, Offset
from gsd_review_broker.service.applies import Checked
from gsd_review_broker.service.queries.review_page import ReviewFacts

_SHOWN = len("sha256:") + 16
_MOST_OFFSETS = 5


class RequirementState(StrEnum):
    MET = "met"
    UNMET = "unmet"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Requirement:
    state: RequirementState
    what: str
    why: str


def requirements_of(facts: ReviewFacts, checked: Checked) -> list[Requirement]:
    more = [one for one in (_policy(facts), _person(facts)) if one is not None]
    return [_applies(facts, checked), _no_grave_finding(facts), _judged(facts), *more]


def _policy(facts: ReviewFacts) -> Requirement | None:
    """Only where the policy asks for more than one reviewer."""
    if facts.missing is None:
        return None
    so_far = f"approved by {', '.join(facts.approved_by)}; " if facts.approved_by else ""
    what, lacking = "The approval policy is met", " and ".join(facts.missing)
    return Requirement(RequirementState.UNMET, what, f"{so_far}missing: {lacking}")


def _applies(facts: ReviewFacts, checked: Checked) -> Requirement:
    what = "The diff applies to HEAD now"
    if not facts.review.has_diff:
        return Requirement(RequirementState.MET, "There is no diff to apply", "a proposal without a diff has no digest")
    match checked.answer:
        case None:
            return Requirement(RequirementState.WAITING, what, "git is being asked")
        case Applies(digest=None):
            return Requirement(
                RequirementState.MET, what, "but not to HEAD alone, so it has no digest, and a gate will not accept it"
            )
        case Applies(digest=digest, offsets=offsets):
            return Requirement(RequirementState.MET, what, f"as {_short(digest)}{_moved(offsets)}")
        case DoesNotApply(git_says=git_says):
            return Requirement(RequirementState.UNMET, what, f"git says: {git_says}")
        case BrokerError() as error:
            return Requirement(RequirementState.WAITING, what, error.message)


def _moved(offsets: tuple[Offset, ...]) -> str:
    """An older diff: its hunks apply at other lines than those shown."""
    if not offsets:
        return ""
    named = [f"hunk {offset.hunk} of {offset.path} by {offset.offset:+d} lines" for offset in offsets[:_MOST_OFFSETS]]
    more = f", and {len(offsets) - _MOST_OFFSETS} more" if len(offsets) > _MOST_OFFSETS else ""
    return f"; made from an older base, so hunks are moved: {', '.join(named)}{more}"


def _no_grave_finding(facts: ReviewFacts) -> Requirement:
    what = f"No open finding of severity {either(GRAVE)}"
    grave = [f for f in facts.findings if f.disposition is Disposition.OPEN and f.severity in GRAVE]
    if not grave:
        return Requirement(RequirementState.MET, what, f"{facts.review.open_finding_count} open in all")
    return Requirement(RequirementState.UNMET, what, "; ".join(f"{f.severity}: {f.title}" for f in grave[:3]))


def _judged(facts: ReviewFacts) -> Requirement:
    review = facts.review
    what = "Approved by somebody other than the author, for exactly this content"
    if review.status is Status.APPROVED or (review.status is Status.CLOSED and review.outcome == "approved"):
        return Requirement(RequirementState.MET, what, f"{review.claimed_by} approved {_short(review.digest)}")
    if review.claimed_by is None or not review.is_claim_live:
        return Requirement(RequirementState.UNMET, what, f"no verdict on revision {review.revision}")
    if same_identity(review.claimed_by, review.author):
        return Requirement(RequirementState.UNMET, what, f"{review.claimed_by} wrote it")
    return Requirement(RequirementState.WAITING, what, f"{review.claimed_by} is judging it")


def _person(facts: ReviewFacts) -> Requirement | None:
    what = "A person has looked at it"
    if facts.review.needs_human is not None:
        return Requirement(RequirementState.UNMET, what, f"asked for: {facts.review.needs_human}")
    cleared = [event for event in facts.events if event["event_type"] == EventType.HUMAN_CLEARED]
    return Requirement(RequirementState.MET, what, f"{cleared[-1]['actor']} did") if cleared else None


def _short(digest: str | None) -> str:
    return f"{digest[:_SHOWN]}…" if digest else "it, without a digest"
