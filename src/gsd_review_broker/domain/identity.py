"""Names: when two spellings are the same one, and which names nobody may take. Light: the command line imports it."""

from functools import lru_cache
from typing import NewType

Identity = NewType("Identity", str)

HUMAN_PREFIX = "human:"
BROKER = Identity("broker")
VALIDATOR = Identity("broker-validator")
# The broker writes these into the audit as its own.
RESERVED = frozenset({BROKER, VALIDATOR})

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Unicode's Default_Ignorable_Code_Point outside those categories, and the blank braille pattern.
_IGNORABLE = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0}
    | set(range(0xFE00, 0xFE10))
    | set(range(0xE0100, 0xE01F0))
)


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


def invisible_in(identity: str) -> str | None:
    """The first character that cannot be seen, or that looks like a space and is not one."""
    if identity.isascii() and identity.isprintable():
        return None
    import unicodedata  # noqa: PLC0415 - see above

    for character in identity:
        category = unicodedata.category(character)
        other_space = category == "Zs" and character != " "
        if other_space or category in _INVISIBLE or ord(character) in _IGNORABLE:
            return character
    return None


def is_reserved(identity: str) -> bool:
    return identity_key(identity) in RESERVED
