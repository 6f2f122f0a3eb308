"""The approval policy: how many approvals a revision needs, from whom, and what is still missing (ADR 14).

The default is one approval, by any reviewer but the author.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gsd_review_broker.domain.gate.patterns import Patterns
from gsd_review_broker.domain.identity import identity_key, is_human, same_identity
from gsd_review_broker.domain.model import ApprovalPolicy, EventType, Identity, NewEvent, Review, Verdict
from gsd_review_broker.domain.tally import kind_of
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep

_VENDORS = {"codex": "openai", "gpt": "openai", "claude": "anthropic", "gemini": "google"}


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


def vendor_of(reviewer: Identity) -> str:
    """By the first word of its name, as the pool and people name programs; each person is a vendor of their own."""
    if is_human(reviewer):
        return identity_key(reviewer)
    word = identity_key(kind_of(reviewer)).split("-")[0]
    return _VENDORS.get(word, word)


def missing(policy: ApprovalPolicy, so_far: ApprovalsSoFar) -> tuple[MissingApproval, ...]:
    """List what the approvals so far lack. Empty if the policy is met."""
    approvers = {identity_key(name): name for name in so_far.approvers}
    lacking: list[MissingApproval] = []
    short = policy.required - len(approvers)
    if short > 0:
        lacking.append(MissingApproval(MissingKind.APPROVALS, f"{short} more approval{'s' if short > 1 else ''}"))
    vendors = {vendor_of(name) for name in approvers.values()}
    if policy.distinct_vendors and short <= 0 and len(vendors) < policy.required:
        others = f"an approval from another vendor than {', '.join(sorted(vendors))}"
        lacking.append(MissingApproval(MissingKind.VENDOR, others))
    path = _path_for_a_person(policy, so_far.touched)
    if path is not None and not any(is_human(name) for name in approvers.values()):
        lacking.append(MissingApproval(MissingKind.PERSON, f"a person's approval, for {path}"))
    return tuple(lacking)


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
    if policy.distinct_vendors and vendor_of(reviewer) in {vendor_of(name) for name in so_far.approvers}:
        return f"{vendor_of(reviewer)} has approved it already"
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
