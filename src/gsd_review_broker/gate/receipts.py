"""What the broker leaves so that others can decide without asking it: signed receipts, and tickets.

CI, a pre-receive hook, and the hook without a broker decide by receipts. `cryptography` takes longer to import than the
hook may, so it is imported only when a receipt is signed or checked, or a key is made.

A ticket is the broker's answer to a commit that it expects: most commits are the change that was approved last, on the
commit that it was checked against. It is an empty file in the gate's folder. Its name has two parts: the commit before
it, and git's own sum over the parents and records that the commit will have. The hook compares names in its shell
script, so that such a commit starts neither Python nor a request. Everything else is asked as before: a ticket can only
let through what an approval covers.
"""

import base64
import json
import os
import site
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsd_review_broker.domain.gate.decision import (
    Because,
    Commit,
    LandedCommit,
    RepositoryId,
    ReviewedChange,
    chains,
    without_exempt,
)
from gsd_review_broker.domain.gate.judge import ApprovalsAtHand, judge
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, Override
from gsd_review_broker.domain.gate.receipts import OverrideReceipt, Receipt, key_id_of, parse_receipt, signed_bytes
from gsd_review_broker.domain.gate.records import (
    Steps,
    blob_id,
    composed,
    digest_of_sorted,
    object_format,
    parse_records,
    raw_records,
)
from gsd_review_broker.domain.gate.request import Asker, GateRequest
from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.domain.text import Identity
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.files import write_private
from gsd_review_broker.gate.hook import RefusedError, Site
from gsd_review_broker.git.command import places
from gsd_review_broker.git.program import run_git
from gsd_review_broker.settings.gate import read_policy

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PEM = b"-----BEGIN"
_KEY_BYTES = 32


class PublicKey:
    def __init__(self, key: "Ed25519PublicKey") -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self._key = key
        self.id = key_id_of(key.public_bytes(Encoding.Raw, PublicFormat.Raw))

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Read PEM, or the key in hex or base64. Raises ValueError."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        content = text.strip().encode()
        try:
            key = load_pem_public_key(content) if content.startswith(_PEM) else _bare_key("".join(text.split()))
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("this is not an Ed25519 public key")  # noqa: TRY004 - what is wrong is the text
        return cls(key)

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


def _bare_key(text: str) -> object:
    """Read a key as its 32 bytes, or as DER."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        content = bytes.fromhex(text)
    except ValueError:
        content = base64.b64decode(text)
    return Ed25519PublicKey.from_public_bytes(content) if len(content) == _KEY_BYTES else load_der_public_key(content)


NOTES = "refs/notes/tandem"
# A range is tried by all of its parts, so it must not be long.
_LONGEST_RANGE = 60
_MOST_REASONS = 5
_OF_OTHERS = 0o077


class ReceiptSigner:
    """Signs with the broker's own key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: Ed25519PrivateKey | None = None

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
        whole = document | {"key_id": PublicKey(key.public_key()).id}
        signature = base64.b64encode(key.sign(signed_bytes(whole))).decode("ascii")
        return json.dumps(whole | {"signature": signature}, ensure_ascii=False)

    def _load(self) -> "Ed25519PrivateKey":
        """Read the key, and write its public half as PEM, which other tools read too."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        if not self._path.exists():
            _make_key(self._path)
        self._key = key = _read_key(self._path)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self._path.with_suffix(".pub").write_bytes(public)
        return key


def _read_key(path: Path) -> "Ed25519PrivateKey":
    """Read a key. Raises StartError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise StartError(f"the key {path} cannot be read: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise StartError(f"the key {path} is not an Ed25519 key.")
    return key


def _make_key(path: Path) -> None:
    """Make a key. Of two brokers that start at once, one makes the key and both use it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    content = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - pathlib does not open a descriptor
        file.write(content)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def parse_public_key(text: str) -> PublicKey:
    """Raises ValueError, or ImportError where `cryptography` is not installed."""
    if sys.flags.no_site:
        # The hook starts without the installed packages, to be quick.
        site.main()
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
    noted: Iterable[str], key: PublicKey, origin: RepositoryId, commits: Sequence[Commit], policy: GatePolicy
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
    key: PublicKey,
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
            if candidate.is_signed_by(key.has_signed):
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


def _change(receipt: Receipt, steps: Steps, origin: RepositoryId) -> ReviewedChange:
    """Make the change of a receipt, which holds a digest and no records: those of the commits have it."""
    return ReviewedChange(
        review_id=ReviewId(receipt.review_id),
        revision=0,
        digest=receipt.digest,
        repository=receipt.repository,
        folder=origin.folder,
        records=raw_records(steps),
        reviewer=Identity(receipt.reviewer),
    )


def _landed(receipt: OverrideReceipt, origin: RepositoryId) -> LandedCommit:
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
    """Yield each commit and each range, with and without the exempt paths."""
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


# What the hook makes the sum of: the parents, and the records against the only one. Merges print nothing.
TICKET_DIFF = (
    "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-relative", "--ignore-submodules=none",
    "--no-ext-diff", "--no-textconv", "--no-color", "--no-notes", "--format=%P",
)  # fmt: skip
_MOST_TICKETS = 200
# A ticket is dated back, so that configuration written while it was made is newer.
_DATED_BACK_SECONDS = 1.0


def ticket_name(base: str, records: bytes) -> str:
    """`records` as a digest has them; git prints them in the order of their paths."""
    steps = parse_records(records)
    ordered = b"".join(raw_records({path: steps[path]}) for path in sorted(steps))
    content = base.encode("ascii") + b"\0\n" + ordered
    return f"{base}.{blob_id(content, object_format(base))}"


class TicketOffice:
    """Leaves tickets in the repositories of this machine that have a gate."""

    def __init__(self, chosen: Path | None = None) -> None:
        """`chosen` is the configuration file that the broker was started with."""
        self._chosen = chosen

    def issue(self, approved: ReviewedChange, base: str) -> bool:
        """False where there is no gate, or its policy wants more than this approval. Raises OSError."""
        began = time.time() - _DATED_BACK_SECONDS
        own = Path(approved.folder) / "tandem"
        if own.is_symlink() or not (own / "gate").is_file():
            return False
        try:
            known = Site.of(approved.folder).known
        except RefusedError:
            return False
        policy = read_policy(known.get("project_file"), known.get("user_file"), chosen=self._chosen)
        if policy.plan_first:
            # What else has to be approved is known only when the commit is made.
            return False
        if not _may_land(approved, base, policy):
            return False
        tickets = own / "tickets"
        tickets.mkdir(mode=0o700, exist_ok=True)
        if tickets.is_symlink():
            return False
        path = tickets / ticket_name(base, approved.records)
        write_private(path, b"")
        os.utime(path, (began, began))
        _forget_oldest(tickets)
        return True


def _may_land(approved: ReviewedChange, base: str, policy: GatePolicy) -> bool:
    """Ask the judge about the commit that is expected: this change, on this commit."""
    commit = Commit(id=base, parents=(base,), steps=parse_records(approved.records))
    request = GateRequest(origin=approved.origin, asker=Asker.HOOK, root=None, branches=(), commits=(commit,))
    answer = judge(ApprovalsAtHand([approved]), request, policy.at_least(Mode.BLOCK), Milliseconds(0))
    return answer.outcome == "pass"


def _forget_oldest(tickets: Path) -> None:
    paths = list(tickets.iterdir())
    if len(paths) > _MOST_TICKETS:
        paths.sort(key=lambda path: path.lstat().st_mtime)
        remove_tickets(paths[:-_MOST_TICKETS])


def remove_tickets(paths: list[Path]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            path.unlink()
