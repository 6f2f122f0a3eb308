"""The broker's own key, and the receipts that it signs with it. Needs the extra `receipts`."""

import base64
import json
import os
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gsd_review_broker.domain.gate.ledger import GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.gate.receipts import key_id_of, public_key_text, signed_bytes
from gsd_review_broker.errors import StartError
from gsd_review_broker.service.wire.encoding import iso


class ReceiptSigner:
    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        self.public_key = key.public_key().public_bytes(*raw)

    @classmethod
    def of_file(cls, path: Path) -> "ReceiptSigner":
        """Made at the first start, readable by its owner alone."""
        try:
            signer = cls(_read(path))
        except FileNotFoundError:
            signer = cls(_made(path))
        path.with_suffix(".pub").write_text(public_key_text(signer.public_key))
        return signer

    def receipt(self, approved: ReviewedChange) -> str | None:
        if approved.repository is None or approved.approved_at is None:
            return None
        document = {
            "repository": approved.repository,
            "digest": approved.digest,
            "review_id": approved.review_id,
            "revision": approved.revision,
            "proposer": approved.proposer,
            "reviewer": approved.reviewer,
            "verdict": "approved",
            "approved_at": iso(approved.approved_at),
            "key_id": key_id_of(self.public_key),
        }
        return self._signed(document)

    def override_receipt(self, landed: LandedCommit, override: GateOverride) -> str | None:
        if override.repository is None:
            return None
        return self._signed(
            {
                "repository": override.repository,
                "commit": landed.commit_id,
                "digest": landed.digest,
                "override": override.id,
                "person": override.person,
                "reason": override.reason,
                "verdict": "overridden",
                "landed_at": iso(landed.landed_at),
                "until": iso(override.until),
                "key_id": key_id_of(self.public_key),
            }
        )

    def _signed(self, document: dict[str, Any]) -> str:
        signature = base64.b64encode(self._key.sign(signed_bytes(document))).decode()
        return json.dumps(document | {"signature": signature}, ensure_ascii=False)


def _read(path: Path) -> Ed25519PrivateKey:
    if path.stat().st_mode & 0o077:
        raise StartError(f"the key {path} can be read by others; run `chmod 600 {path}`, or remove it for a new one.")
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise StartError(f"the key {path} cannot be read: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise StartError(f"the key {path} is not an Ed25519 key.")
    return key


def _made(path: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - pathlib does not open a descriptor
        file.write(key.private_bytes(*form))
    try:
        # Of two brokers that start at once, one makes the key and both use it.
        os.link(draft, path)
    except FileExistsError:
        return _read(path)
    finally:
        draft.unlink()
    return key
