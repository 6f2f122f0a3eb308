"""Names: when two spellings are the same one, and which names nobody may take. Light: the command line imports it."""

from functools import lru_cache
from typing import NewType

Identity = NewType("Identity", str)

HUMAN_PREFIX = "human:"
BROKER = Identity("broker")
VALIDATOR = Identity("broker-validator")
# The broker writes these into the audit as its own.
RESERVED = frozenset({BROKER, VALIDATOR})


def is_human(identity: str) -> bool:
    return identity.startswith(HUMAN_PREFIX)


def same_identity(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and identity_key(one) == identity_key(other)


@lru_cache(maxsize=1024)
def identity_key(identity: str) -> str:
    """What makes two spellings the same program: not case, form, or characters that cannot be seen. Self-declared
    names guard against mistakes."""
    if identity.isascii() and identity.isprintable():
        return identity.strip().casefold()
    import unicodedata  # noqa: PLC0415 - most names are ASCII, and the command line starts without it

    plain = unicodedata.normalize("NFKC", identity)
    return "".join(c for c in plain if unicodedata.category(c) not in {"Cc", "Cf"}).strip().casefold()


def is_reserved(identity: str) -> bool:
    return identity_key(identity) in RESERVED
