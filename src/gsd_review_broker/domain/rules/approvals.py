"""The approval policy: how many approvals a revision needs, from whom, and what is still missing (ADR 14).

The default is one approval, by any reviewer but the author.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gsd_review_broker.domain.gate.policy import Patterns
from gsd_review_broker.domain.identity import identity_key, is_human, same_identity
from gsd_review_broker.domain.model import ApprovalPolicy, Identity, NewEvent, Review
from gsd_review_broker.domain.tally import kind_of
from gsd_review_broker.domain.words import VENDORS, EventType, Verdict, either
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalsSoFar:
    """Who approved this content so far, and which files it touches."""

    approvers: tuple[Identity, ...] = ()
    touched: tuple[str, ...] = ()

    def with_approver(self, reviewer: Identity) -> "ApprovalsSoFar":
        return ApprovalsSoFar(approvers=(*self.approvers, reviewer), touched=self.touched)


class MissingKind(StrEnum):
    APPROVALS = "approvals"
    VENDOR = "vendor"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class MissingApproval:
    """An approval that the policy still asks for: which kind decides, the text is for people."""

    kind: MissingKind
    text: str


NO_APPROVALS = ApprovalsSoFar()


def approvers_in(events: Iterable[NewEvent], review: Review, digest: str | None) -> tuple[Identity, ...]:
    """Who approved this revision with this digest, before the policy was met."""
    return tuple(
        event.actor
        for event in events
        if event.event_type is EventType.VERDICT_COMMENT
        and event.metadata.get("verdict") == Verdict.APPROVED
        and event.metadata.get("revision") == review.revision
        and event.metadata.get("digest") == digest
    )


def vendor_of(reviewer: Identity) -> str | None:
    """Read the vendor off the first word of the name, as the pool and people name programs. Each person is a vendor of
    their own. None: the vendor is unknown, and an approval from it is not one from another vendor."""
    if is_human(reviewer):
        return identity_key(reviewer)
    return VENDORS.get(identity_key(kind_of(reviewer)).split("-")[0])


def missing(policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> tuple[MissingApproval, ...]:
    """List what the approvals so far lack. Empty if the policy is met."""
    approvers = {identity_key(name): name for name in so_far.approvers}
    lacking: list[MissingApproval] = []
    short = policy.required - len(approvers)
    if short > 0:
        lacking.append(MissingApproval(MissingKind.APPROVALS, f"{short} more approval{'s' if short > 1 else ''}"))
    if policy.distinct_vendors and short <= 0:
        lacking += _missing_vendors(policy, approvers.values())
    path = _path_for_a_person(policy, so_far.touched)
    if path is not None and not any(is_human(name) for name in approvers.values()):
        lacking.append(MissingApproval(MissingKind.PERSON, f"a person's approval, for {path}"))
    return tuple(lacking)


def _missing_vendors(policy: ApprovalPolicy, approvers: Iterable[Identity]) -> list[MissingApproval]:
    """Count the known vendors alone. One approval has nothing to differ from."""
    unknown = sorted(name for name in approvers if vendor_of(name) is None)
    vendors = {vendor for name in approvers if (vendor := vendor_of(name)) is not None}
    if policy.required == 1 or len(vendors) >= policy.required:
        return []
    what = (
        f"an approval from another vendor than {', '.join(sorted(vendors))}"
        if vendors
        else f"approvals from {policy.required} vendors"
    )
    text = f"{what} ({_unknown_vendor(', '.join(unknown))})" if unknown else what
    return [MissingApproval(MissingKind.VENDOR, text)]


def _unknown_vendor(name: str) -> str:
    known = tuple(word for word, vendor in VENDORS.items() if vendor is not None)
    return f"the vendor of {name} is unknown; a reviewer's name has to begin with {either(known)}"


def only_a_person_is_missing(lacking: Sequence[MissingApproval]) -> bool:
    return [one.kind for one in lacking] == [MissingKind.PERSON]


def texts_of(lacking: Iterable[MissingApproval]) -> list[str]:
    return [one.text for one in lacking]


def refuse_useless_approver(review: Review, reviewer: Identity, policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> None:
    """Refuse a reviewer that has approved this content already, or that cannot add what is missing."""
    why = _why_useless(reviewer, policy, so_far)
    if why is not None:
        raise _not_again(review, why, policy, so_far)


def can_add_approval(reviewer: Identity, policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> bool:
    return _why_useless(reviewer, policy, so_far) is None


def _why_useless(reviewer: Identity, policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> str | None:
    if any(same_identity(name, reviewer) for name in so_far.approvers):
        return f"{reviewer} has approved this revision already"
    if not so_far.approvers or is_human(reviewer):
        return None
    if policy.distinct_vendors and policy.required > 1:
        vendor = vendor_of(reviewer)
        if vendor is None:
            return _unknown_vendor(reviewer)
        if vendor in {vendor_of(name) for name in so_far.approvers}:
            return f"{vendor} has approved it already"
    return f"{reviewer} is not a person" if only_a_person_is_missing(missing(policy, so_far)) else None


def _not_again(review: Review, why: str, policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> BrokerError:
    return BrokerError(
        Code.INVALID_TRANSITION,
        f"review {review.id} is {review.status}: {why}; it needs {' and '.join(texts_of(missing(policy, so_far)))}",
        NextStep(Next.ANOTHER_REVIEWER),
    )


def _path_for_a_person(policy: ApprovalPolicy, touched: Sequence[str]) -> str | None:
    if not policy.human_paths:
        return None
    patterns = Patterns(policy.human_paths)
    return next((path for path in touched if patterns.match(path.encode("utf-8", "surrogateescape"))), None)
