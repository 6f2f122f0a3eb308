"""What the broker keeps for the gate: claimed and approved changes, overrides, and the commits that landed."""

from dataclasses import dataclass

from gsd_review_broker.domain.gate.decision import Approval, Because
from gsd_review_broker.domain.gate.records import parse_records
from gsd_review_broker.domain.identity import Identity, is_human
from gsd_review_broker.domain.model import Milliseconds, ReviewId


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Which repository a change belongs to: its root commit, which clones share, and its git folder on this machine.
    The root is None before the first commit and in a shallow clone."""

    root: str | None
    folder: str

    def is_same(self, other: "Origin") -> bool:
        return self.folder == other.folder or (self.root is not None and self.root == other.root)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewedChange:
    """The exact change that a claim is about, and later its approval."""

    review_id: ReviewId
    revision: int
    digest: str
    repository: str | None
    folder: str
    # The sorted records that the digest is made of.
    records: bytes
    proposer: Identity | None = None
    reviewer: Identity | None = None
    approved_at: Milliseconds | None = None
    receipt: str | None = None
    landed_at: Milliseconds | None = None

    @property
    def origin(self) -> Origin:
        return Origin(root=self.repository, folder=self.folder)

    def approval(self) -> Approval:
        reviewer = self.reviewer or Identity("")
        return Approval(
            review_id=self.review_id,
            reviewer=reviewer,
            by_person=is_human(reviewer),
            steps=parse_records(self.records),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOverride:
    """A person lets commits through, with a reason and an end."""

    id: int | None = None
    repository: str | None
    folder: str
    person: Identity
    reason: str
    created_at: Milliseconds
    until: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class LandedCommit:
    """A commit that a guarded branch gained. `because` is None where nothing covers it."""

    folder: str
    commit_id: str
    branch: str
    digest: str
    subject: str
    because: Because | None
    reviews: tuple[ReviewId, ...]
    override_id: int | None
    landed_at: Milliseconds
