"""Ed25519 keys: the broker's own, and the public ones that receipts are checked with. Imported only when a receipt is
signed or checked, or a key is made: `cryptography` takes longer to import than the hook may."""

import base64
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)

from gsd_review_broker.domain.gate.receipts import key_id_of
from gsd_review_broker.errors import StartError

_PEM = b"-----BEGIN"
_KEY_BYTES = 32


class PublicKey:
    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.id = key_id_of(key.public_bytes(Encoding.Raw, PublicFormat.Raw))

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Read PEM, or the key in hex or base64. Raises ValueError."""
        content = text.strip().encode()
        try:
            key = load_pem_public_key(content) if content.startswith(_PEM) else _bare_key("".join(text.split()))
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("this is not an Ed25519 public key")  # noqa: TRY004 - what is wrong is the text
        return cls(key)

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        try:
            self._key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


def _bare_key(text: str) -> object:
    """Read a key as its 32 bytes, or as DER."""
    try:
        content = bytes.fromhex(text)
    except ValueError:
        content = base64.b64decode(text)
    return Ed25519PublicKey.from_public_bytes(content) if len(content) == _KEY_BYTES else load_der_public_key(content)


class PrivateKey:
    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key())

    @classmethod
    def read(cls, path: Path) -> "PrivateKey":
        """Raises StartError."""
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise StartError(f"the key {path} cannot be read: {error}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise StartError(f"the key {path} is not an Ed25519 key.")
        return cls(key)

    @classmethod
    def make(cls, path: Path) -> "PrivateKey":
        """Of two brokers that start at once, one makes the key and both use it."""
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
        return cls.read(path)

    def sign(self, content: bytes) -> bytes:
        return self._key.sign(content)

    def public_text(self) -> str:
        """The public half as PEM, which other tools read too."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")
