"""A receipt: a signed JSON document that says who approved what. It is checked without a broker."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from gsd_review_broker.domain.gate.ed25519 import is_signed

FIELDS = (
    "repository", "digest", "review_id", "revision", "proposer", "reviewer", "verdict", "approved_at", "key_id",
)  # fmt: skip
# Of an override: it names the one commit that it let through.
OVERRIDE_FIELDS = (
    "repository", "commit", "digest", "override", "person", "reason", "verdict", "landed_at", "until", "key_id",
)  # fmt: skip
_APPROVED, _OVERRIDDEN = "approved", "overridden"
_KEY_ID_LENGTH = 16
_PEM_HEAD, _PEM_TAIL = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
# What comes before the 32 bytes in a SubjectPublicKeyInfo of Ed25519.
_DER_PREFIX = bytes.fromhex("302a300506032b6570032100")
_KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    repository: str
    digest: str
    review_id: str
    reviewer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OverrideReceipt:
    """A person let this commit through without an approval."""

    repository: str
    commit: str
    digest: str
    person: str
    reason: str


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """All fields but the signature, as JSON with sorted keys and no white space, in UTF-8."""
    content = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def key_id_of(public_key: bytes) -> str:
    return hashlib.sha256(public_key).hexdigest()[:_KEY_ID_LENGTH]


def verified(text: str, public_key: bytes) -> Receipt | OverrideReceipt:
    """Raises ValueError with the reason why the receipt proves nothing."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("the receipt is not JSON") from error
    if not isinstance(parsed, dict):
        raise ValueError("the receipt is not a JSON object")  # noqa: TRY004 - what is wrong is the receipt
    document = cast("dict[str, Any]", parsed)
    if set(document) not in ({*FIELDS, "signature"}, {*OVERRIDE_FIELDS, "signature"}):
        raise ValueError("the receipt has not exactly the fields that a receipt has")
    if document["key_id"] != key_id_of(public_key):
        raise ValueError(f"the receipt is signed by another key ({document['key_id']})")
    if not is_signed(public_key, signed_bytes(document), _signature(document["signature"])):
        raise ValueError("the signature does not fit: the receipt was altered")
    is_override = "override" in document
    if document["verdict"] != (_OVERRIDDEN if is_override else _APPROVED):
        raise ValueError("the receipt is not of an approval")
    kind = OverrideReceipt if is_override else Receipt
    return kind(**{one.name: str(document[one.name]) for one in fields(kind)})


def _signature(value: object) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except binascii.Error:
        return b""


def public_key_text(public_key: bytes) -> str:
    """As PEM, which other tools read too."""
    return f"{_PEM_HEAD}\n{base64.b64encode(_DER_PREFIX + public_key).decode()}\n{_PEM_TAIL}\n"


def parse_public_key(text: str) -> bytes:
    """PEM, or the raw key in base64 or hex. Raises ValueError."""
    body = "".join(text.replace(_PEM_HEAD, "").replace(_PEM_TAIL, "").split())
    for decode in (bytes.fromhex, base64.b64decode):
        try:
            key = decode(body).removeprefix(_DER_PREFIX)
        except ValueError:
            continue
        if len(key) == _KEY_BYTES:
            return key
    raise ValueError("this is not an Ed25519 public key")
