"""Receipts: the broker signs them; CI, a pre-receive hook, and the hook without a broker decide by them."""

import base64
import json
import site
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsd_review_broker.domain.gate.decision import (
    Because,
    Commit,
    LandedCommit,
    Origin,
    ReviewedChange,
    chains,
    without_exempt,
)
from gsd_review_broker.domain.gate.judge import ApprovalsAtHand
from gsd_review_broker.domain.gate.policy import GatePolicy, Override
from gsd_review_broker.domain.gate.receipts import OverrideReceipt, Receipt, parse_receipt, signed_bytes
from gsd_review_broker.domain.gate.records import Steps, composed, digest_of_sorted, raw_records
from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.domain.text import Identity
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.git.command import places
from gsd_review_broker.git.program import run_git

if TYPE_CHECKING:
    from gsd_review_broker.gate.signing import PrivateKey, PublicKey

NOTES = "refs/notes/tandem"
# A range is tried by all of its parts, so it must not be long.
_LONGEST_RANGE = 60
_MOST_REASONS = 5
_OF_OTHERS = 0o077


class ReceiptSigner:
    """Signs with the broker's own key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: PrivateKey | None = None

    @classmethod
    def of_file(cls, path: Path) -> "ReceiptSigner":
        """Make the key at the first start, readable by its owner alone. Later it is read when it is needed."""
        signer = cls(path)
        try:
            if path.stat().st_mode & _OF_OTHERS:
                raise StartError(
                    f"the key {path} can be read by others; run `chmod 600 {path}`, or remove it for a new one."
                )
            is_ready = path.with_suffix(".pub").stat().st_mtime_ns >= path.stat().st_mtime_ns
        except FileNotFoundError:
            is_ready = False
        if not is_ready:
            signer._load()
        return signer

    def sign(self, document: dict[str, Any]) -> str:
        try:
            key = self._key or self._load()
        except StartError as error:
            raise BrokerError(Code.UNAVAILABLE, str(error), "Restore the key, or remove it for a new one.") from error
        whole = document | {"key_id": key.public.id}
        signature = base64.b64encode(key.sign(signed_bytes(whole))).decode("ascii")
        return json.dumps(whole | {"signature": signature}, ensure_ascii=False)

    def _load(self) -> "PrivateKey":
        from gsd_review_broker.gate.signing import PrivateKey

        self._key = key = PrivateKey.read(self._path) if self._path.exists() else PrivateKey.make(self._path)
        self._path.with_suffix(".pub").write_text(key.public_text())
        return key


def parse_public_key(text: str) -> "PublicKey":
    """Raises ValueError, or ImportError where `cryptography` is not installed."""
    if sys.flags.no_site:
        # The hook starts without the installed packages, to be quick.
        site.main()
    from gsd_review_broker.gate.signing import PublicKey

    return PublicKey.parse(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proofs:
    """What receipts say about the commits in question, and why others say nothing."""

    kept: ApprovalsAtHand = field(default_factory=ApprovalsAtHand)
    count: int = 0
    # By the commit that each let through.
    overrides: dict[str, OverrideReceipt] = field(default_factory=dict[str, OverrideReceipt])
    reasons: tuple[str, ...] = ()


def read_proofs(
    noted: Iterable[str], key: "PublicKey", origin: Origin, commits: Sequence[Commit], policy: GatePolicy
) -> Proofs:
    """Find the receipts that are about these commits. An approval applies by its content, whatever commit it is
    attached to."""
    if origin.root is None:
        why = "the root commit is not here (a shallow clone, or no commit): fetch the whole history"
        return Proofs(reasons=(why,))
    wanted = {digest_of_sorted(raw_records(steps)): steps for steps in _candidates(commits, policy)}
    digests = {commit.id: digest_of_sorted(raw_records(commit.steps)) for commit in commits}

    def is_about_these(receipt: Receipt | OverrideReceipt) -> bool:
        if isinstance(receipt, Receipt):
            return receipt.digest in wanted
        # The receipt of an override is for one commit, and not for its content elsewhere.
        return digests.get(receipt.commit) == receipt.digest

    reasons: list[str] = []
    genuine = list(_genuine(noted, key, origin.root, is_about_these, reasons))
    changes = [_change(one, wanted[one.digest], origin) for one in genuine if isinstance(one, Receipt)]
    overrides = {one.commit: one for one in genuine if isinstance(one, OverrideReceipt)}
    if policy.override is Override.NOBODY:
        overrides.clear()
    return Proofs(
        kept=ApprovalsAtHand(changes, [_landed(receipt, origin) for receipt in overrides.values()]),
        count=len(changes),
        overrides=overrides,
        reasons=tuple(dict.fromkeys(reasons))[:_MOST_REASONS],
    )


def _genuine(
    noted: Iterable[str],
    key: "PublicKey",
    repository: str,
    is_wanted: Callable[[Receipt | OverrideReceipt], bool],
    reasons: list[str],
) -> Iterator[Receipt | OverrideReceipt]:
    """Check the signatures of the receipts that are wanted, and of no other: there may be thousands. `reasons` says
    why a receipt proves nothing."""
    for line in dict.fromkeys(noted):
        try:
            candidate = parse_receipt(line, key.id)
        except ValueError as error:
            reasons.append(str(error))
            continue
        receipt = candidate.receipt
        if receipt.repository != repository:
            reasons.append(f"the receipt of {_about(receipt)} is of another repository")
        elif is_wanted(receipt):
            if candidate.is_signed_by(key):
                yield receipt
            else:
                reasons.append("the signature does not fit: the receipt was altered")


def _about(receipt: Receipt | OverrideReceipt) -> str:
    return f"review {receipt.review_id}" if isinstance(receipt, Receipt) else f"the override of {receipt.commit}"


def noted_receipts(folder: Path) -> list[str]:
    """Read the repository's notes; each receipt is one line of a note."""
    answer = run_git(
        folder, "grep", "-a", "-h", "--no-color", "-F", "-e", '"signature"', NOTES, "--", environment=places()
    )
    return answer.output.decode("utf-8", "replace").splitlines() if answer.code == 0 else []


def _change(receipt: Receipt, steps: Steps, origin: Origin) -> ReviewedChange:
    """A receipt holds a digest and no records: those of the commits have it."""
    return ReviewedChange(
        review_id=ReviewId(receipt.review_id),
        revision=0,
        digest=receipt.digest,
        repository=receipt.repository,
        folder=origin.folder,
        records=raw_records(steps),
        reviewer=Identity(receipt.reviewer),
    )


def _landed(receipt: OverrideReceipt, origin: Origin) -> LandedCommit:
    return LandedCommit(
        folder=origin.folder,
        commit_id=receipt.commit,
        branch="",
        digest=receipt.digest,
        subject="",
        because=Because.OVERRIDE,
        reviews=(),
        override_id=None,
        landed_at=Milliseconds(0),
    )


def _candidates(commits: Sequence[Commit], policy: GatePolicy) -> Iterator[Steps]:
    """Each commit and each range, with and without the exempt paths."""
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
