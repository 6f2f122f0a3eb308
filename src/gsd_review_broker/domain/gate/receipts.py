"""A receipt: a signed JSON document that says who approved what. It is checked without a broker."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

FIELDS = (
    "repository", "digest", "review_id", "revision", "proposer", "reviewer", "verdict", "approved_at", "key_id",
)  # fmt: skip
# Of an override: it names the one commit that it let through.
OVERRIDE_FIELDS = (
    "repository", "commit", "digest", "override", "person", "reason", "verdict", "landed_at", "until", "key_id",
)  # fmt: skip
_APPROVED, _OVERRIDDEN = "approved", "overridden"
_KEY_ID_LENGTH = 16


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
    """Write all fields but the signature as JSON with sorted keys and no white space, in UTF-8."""
    content = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def key_id_of(public_key: bytes) -> str:
    return hashlib.sha256(public_key).hexdigest()[:_KEY_ID_LENGTH]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotedReceipt:
    """A receipt as a note has it: its fields are checked, and its signature is not yet."""

    receipt: Receipt | OverrideReceipt
    document: Mapping[str, Any]

    def is_signed_by(self, has_signed: Callable[[bytes, bytes], bool]) -> bool:
        """Ask the public half of the key about the content and its signature."""
        return has_signed(signed_bytes(self.document), _signature(self.document["signature"]))


def parse_receipt(text: str, key_id: str) -> NotedReceipt:
    """Raises ValueError with the reason why the receipt proves nothing."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("the receipt is not JSON") from error
    if not isinstance(parsed, dict):
        raise ValueError("the receipt is not a JSON object")  # noqa: TRY004 - what is wrong is the receipt
    document = cast("dict[str, Any]", parsed)
    is_override = "override" in document
    unfit = sorted({*(OVERRIDE_FIELDS if is_override else FIELDS), "signature"} ^ document.keys())
    if unfit:
        raise ValueError(f"the receipt has an unknown or missing field: {unfit[0]}")
    if document["key_id"] != key_id:
        raise ValueError(f"the receipt is signed by another key ({document['key_id']})")
    if document["verdict"] != (_OVERRIDDEN if is_override else _APPROVED):
        raise ValueError("the receipt is not of an approval")
    kind = OverrideReceipt if is_override else Receipt
    receipt = kind(**{one.name: str(document[one.name]) for one in fields(kind)})
    return NotedReceipt(receipt=receipt, document=document)


def _signature(value: object) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except ValueError:
        return b""
