"""Receipts in a repository's notes: which of them are checked, and with which keys."""

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from gsd_review_broker.domain.gate.decision import Commit, RepositoryId
from gsd_review_broker.domain.gate.policy import stricter
from gsd_review_broker.domain.gate.receipts import Receipt, parse_receipt
from gsd_review_broker.domain.gate.records import digest_of_sorted, raw_records
from gsd_review_broker.domain.gate.request import parse_log
from gsd_review_broker.errors import BrokerError, StartError
from gsd_review_broker.gate.hook import LOG
from gsd_review_broker.gate.receipts import (
    Proofs,
    PublicKey,
    ReceiptSigner,
    noted_receipts,
    parse_public_key,
    read_proofs,
)
from tests.support.processes import git

# Of an earlier version, which wrote keys and checked signatures by itself.
EARLIER_KEY = """
-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAiZF7fOfOiDWg5B/FO0TfcEO1jn7nKUcl81adw/Ny/bE=
-----END PUBLIC KEY-----
"""
EARLIER_RECEIPT = (
    f'{{"repository": "{"a" * 40}", "digest": "sha256:{0:064}", "review_id": "r1", "revision": 2, '
    '"proposer": "ada", "reviewer": "human:zo\u00eb", "verdict": "approved", '
    '"approved_at": "2027-01-15T08:00:00.000Z", "key_id": "f2ef3b98c2c6cfcb", "signature": '
    '"Dlv7ifol2oSl0SBiYVVE/vUyABIo4Jd3KrvTMAbP4TH2EilgNc+pI8qqhdFu0Dk/FeMF2wVjl3GxGbveio7HBA=="}'
)


@pytest.fixture
def signer(tmp_path: Path) -> ReceiptSigner:
    return ReceiptSigner.of_file(tmp_path / "keys" / "receipt-key.pem")


@pytest.fixture
def public_key(signer: ReceiptSigner, tmp_path: Path) -> PublicKey:
    return parse_public_key((tmp_path / "keys" / "receipt-key.pub").read_text())


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The signatures that were checked."""
    signatures: list[bytes] = []
    check = PublicKey.has_signed

    def counted(key: PublicKey, content: bytes, signature: bytes) -> bool:
        signatures.append(signature)
        return check(key, content, signature)

    monkeypatch.setattr(PublicKey, "has_signed", counted)
    return signatures


def receipt(signer: ReceiptSigner, repository: str, digest: str) -> str:
    return signer.sign(
        {
            "repository": repository, "digest": digest, "review_id": "r", "revision": 1, "proposer": "p",
            "reviewer": "codex-1", "verdict": "approved", "approved_at": "2027-01-15T08:00:00.000Z",
        }
    )  # fmt: skip


def changed(repository: Path) -> tuple[str, tuple[Commit, ...]]:
    """The root, and one commit after it."""
    (repository / "hello.txt").write_text("approved\n")
    git(repository, "commit", "-qam", "x")
    root = git(repository, "rev-list", "--max-parents=0", "HEAD").decode().strip()
    return root, parse_log(git(repository, *LOG, "HEAD~1..HEAD"))


def proofs(repository: Path, key: PublicKey, root: str, commits: tuple[Commit, ...]) -> Proofs:
    return read_proofs(
        noted_receipts(repository), key, RepositoryId(root=root, folder=str(repository)), commits, stricter()
    )


def test_only_the_receipts_that_are_about_the_commits_are_checked(
    repository: Path, signer: ReceiptSigner, public_key: PublicKey, checked: list[bytes]
) -> None:
    root, commits = changed(repository)
    lines = [receipt(signer, root, f"sha256:{number:064x}") for number in range(200)]
    git(repository, "notes", "--ref=refs/notes/tandem", "add", "-F", "-", "HEAD", stdin="\n".join(lines).encode())
    found = proofs(repository, public_key, root, commits)
    assert (found.count, found.reasons, checked) == (0, (), [])
    own = receipt(signer, root, digest_of_sorted(raw_records(commits[0].steps)))
    git(repository, "notes", "--ref=refs/notes/tandem", "append", "-m", own, "HEAD")
    # The same receipt at another commit is not checked twice.
    git(repository, "notes", "--ref=refs/notes/tandem", "add", "-m", own, "HEAD~1")
    assert proofs(repository, public_key, root, commits).count == 1
    assert checked == [base64.b64decode(json.loads(own)["signature"])]


def test_a_key_and_a_receipt_of_an_earlier_version_are_good() -> None:
    key = parse_public_key(EARLIER_KEY)
    noted = parse_receipt(EARLIER_RECEIPT, key.id)
    assert noted.is_signed_by(key.has_signed)
    assert noted.receipt == Receipt(
        repository="a" * 40, digest=f"sha256:{0:064}", review_id="r1", reviewer="human:zo\u00eb"
    )
    altered = parse_receipt(EARLIER_RECEIPT.replace("r1", "r2"), key.id)
    assert not altered.is_signed_by(key.has_signed)
    unsigned = parse_receipt(EARLIER_RECEIPT.replace("Dlv7", "@@@@"), key.id)
    assert not unsigned.is_signed_by(key.has_signed)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "not JSON"),
        ("[]", "not a JSON object"),
        (EARLIER_RECEIPT.replace('"revision": 2, ', ""), "unknown or missing field: revision"),
        (EARLIER_RECEIPT.replace('"revision"', '"more": 1, "revision"'), "unknown or missing field: more"),
        (EARLIER_RECEIPT.replace("f2ef", "0000"), "another key"),
        (EARLIER_RECEIPT.replace('"approved"', '"comment"'), "not of an approval"),
    ],
)
def test_a_receipt_that_proves_nothing_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_receipt(text, "f2ef3b98c2c6cfcb")


def test_a_key_is_read_as_pem_as_hex_and_as_base64(signer: ReceiptSigner, tmp_path: Path) -> None:
    text = (tmp_path / "keys" / "receipt-key.pub").read_text()
    key = load_pem_public_key(text.encode())
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    spellings = [text, f"\n{text}", raw.hex(), base64.b64encode(raw).decode(), base64.b64encode(der).decode()]
    assert len({parse_public_key(spelling).id for spelling in spellings}) == 1
    for wrong in ("", "ab", "ab" * 31, "not a key", text.replace("MCow", "MCox"), base64.b64encode(der[:-1]).decode()):
        with pytest.raises(ValueError, match="not an Ed25519 public key"):
            parse_public_key(wrong)


def test_a_key_that_is_there_is_read_for_the_first_signature(signer: ReceiptSigner, tmp_path: Path) -> None:
    path = tmp_path / "keys" / "receipt-key.pem"
    again = ReceiptSigner.of_file(path)
    path.write_text("damaged")
    with pytest.raises(BrokerError, match=r"the key .* cannot be read"):
        receipt(again, "r", "d")
    path.chmod(0o640)
    with pytest.raises(StartError, match="can be read by others"):
        ReceiptSigner.of_file(path)
