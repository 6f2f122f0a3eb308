"""Deciding from receipts alone: for CI, for a server's pre-receive hook, and for the hook while no broker answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gsd_review_broker.domain.gate.decision import Approval, Because, Commit, Covered, chains, decide, without_exempt
from gsd_review_broker.domain.gate.policy import GatePolicy, Override
from gsd_review_broker.domain.gate.receipts import OverrideReceipt, Receipt, verified
from gsd_review_broker.domain.gate.records import Steps, composed, digest_of_sorted, raw_records
from gsd_review_broker.domain.identity import is_human
from gsd_review_broker.git.command import places
from gsd_review_broker.git.program import run_git

NOTES = "refs/notes/tandem"
# A range is tried by all of its parts, so it must not be long.
_LONGEST_RANGE = 60
_MOST_REASONS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Proofs:
    """The receipts that count for this repository, and why others do not."""

    receipts: tuple[Receipt, ...]
    # By the commit that each let through.
    overrides: dict[str, OverrideReceipt] = field(default_factory=dict[str, OverrideReceipt])
    reasons: tuple[str, ...] = field(default=())


def read_proofs(folder: Path, public_key: bytes, repository: str | None) -> Proofs:
    """All receipts in the repository's notes: an approval counts by content, whatever commit it is attached to."""
    if repository is None:
        why = "the root commit is not here (a shallow clone, or no commit): fetch the whole history"
        return Proofs(receipts=(), reasons=(why,))
    counted: list[Receipt] = []
    overrides: dict[str, OverrideReceipt] = {}
    reasons: list[str] = []
    for line in _noted(folder):
        try:
            receipt = verified(line, public_key)
        except ValueError as error:
            reasons.append(str(error))
            continue
        if receipt.repository != repository:
            reasons.append(f"the receipt of {_about(receipt)} is of another repository")
        elif isinstance(receipt, Receipt):
            counted.append(receipt)
        else:
            overrides[receipt.commit] = receipt
    unique = tuple(dict.fromkeys(reasons))
    return Proofs(receipts=tuple(counted), overrides=overrides, reasons=unique[:_MOST_REASONS])


def _about(receipt: Receipt | OverrideReceipt) -> str:
    return f"review {receipt.review_id}" if isinstance(receipt, Receipt) else f"the override of {receipt.commit}"


def _noted(folder: Path) -> list[str]:
    """Each receipt is one line of a note."""
    answer = run_git(
        folder, "grep", "-a", "-h", "--no-color", "-F", "-e", '"signature"', NOTES, "--", environment=places()
    )
    return answer.output.decode("utf-8", "replace").splitlines() if answer.code == 0 else []


def decide_offline(commits: Sequence[Commit], proofs: Proofs, policy: GatePolicy) -> dict[str, Covered]:
    """A receipt holds a digest and no records, so what it approves is found by trying: each commit, and each range."""
    by_digest = {receipt.digest: receipt for receipt in proofs.receipts}
    approvals = [
        _approval(receipt, steps)
        for steps in _candidates(commits, policy)
        if (receipt := by_digest.get(digest_of_sorted(raw_records(steps)))) is not None
    ]
    covered = decide(commits, approvals, policy)
    if policy.override is Override.HUMAN:
        overridden = [commit.id for commit in commits if _is_overridden(commit, proofs)]
        covered = dict.fromkeys(overridden, Covered(because=Because.OVERRIDE)) | covered
    return covered


def _is_overridden(commit: Commit, proofs: Proofs) -> bool:
    """A receipt of an override is for one commit, and not for its content elsewhere."""
    receipt = proofs.overrides.get(commit.id)
    return receipt is not None and receipt.digest == digest_of_sorted(raw_records(commit.steps))


def _approval(receipt: Receipt, steps: Steps) -> Approval:
    return Approval(
        review_id=receipt.review_id, reviewer=receipt.reviewer, by_person=is_human(receipt.reviewer), steps=steps
    )


def _candidates(commits: Sequence[Commit], policy: GatePolicy) -> Iterator[Steps]:
    wholes = [commit.steps for commit in commits]
    for chain in chains(commits):
        if len(chain) <= _LONGEST_RANGE:
            wholes += _ranges(chain)
    for steps in wholes:
        yield steps
        guarded = without_exempt(steps, policy)
        if guarded and guarded != steps:
            yield guarded


def _ranges(chain: Sequence[Commit]) -> Iterator[Steps]:
    for first in range(len(chain)):
        whole: Steps | None = {}
        for commit in chain[first:]:
            whole = composed((whole, commit.steps))
            if whole is None:
                break
            yield whole
