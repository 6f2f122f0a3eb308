"""What the dashboard shows of a landed commit, and what receipts say: of an approval, of an override."""

from typing import Any

from gsd_review_broker.domain.gate.decision import GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.service.wire.encoding import iso


def landed_row(row: LandedCommit) -> dict[str, Any]:
    return {
        "commit": row.commit_id,
        "branch": row.branch,
        "subject": row.subject,
        "because": row.because.value if row.because else None,
        "reviews": list(row.reviews),
        "landed_at": iso(row.landed_at),
    }


def approval_document(approved: ReviewedChange) -> dict[str, Any] | None:
    """What a receipt says; None where the repository had no root commit, by which clones know it."""
    if approved.repository is None or approved.approved_at is None:
        return None
    return {
        "repository": approved.repository,
        "digest": approved.digest,
        "review_id": approved.review_id,
        "revision": approved.revision,
        "proposer": approved.proposer,
        "reviewer": approved.reviewer,
        "verdict": "approved",
        "approved_at": iso(approved.approved_at),
    }


def override_document(landed: LandedCommit, override: GateOverride) -> dict[str, Any] | None:
    """What the receipt of an override says about the one commit that it let through."""
    if override.repository is None:
        return None
    return {
        "repository": override.repository,
        "commit": landed.commit_id,
        "digest": landed.digest,
        "override": override.id,
        "person": override.person,
        "reason": override.reason,
        "verdict": "overridden",
        "landed_at": iso(landed.landed_at),
        "until": iso(override.until),
    }
