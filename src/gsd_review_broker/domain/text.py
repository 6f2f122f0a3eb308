"""Forms of text: names and their spellings, characters that mislead, JSON as it is stored, durations.

The command line imports this module, so it stays light.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NewType

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
    """Reduce a name to what tells two programs apart: not case, form, or invisible characters."""
    if identity.isascii() and identity.isprintable():
        return identity.strip().casefold()
    import unicodedata  # noqa: PLC0415 - most names are ASCII, and the command line starts without it

    plain = unicodedata.normalize("NFKC", identity)
    return "".join(c for c in plain if unicodedata.category(c) not in {"Cc", "Cf"}).strip().casefold()


def is_reserved(identity: str) -> bool:
    return identity_key(identity) in RESERVED


# Unicode's Default_Ignorable_Code_Point among the printable ones (fillers, joiners, variation selectors), and the
# blank braille pattern.
_SHOW_NOTHING = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
_CHANGE_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Texts with such characters are examined one by one: in a line, and in a block, whose line feeds and tabs stay.
_IN_LINE, _IN_BLOCK = re.compile("[^ -~]+"), re.compile("[^\t\n -~]+")
_IN_BYTES = re.compile(rb"[^\t\n -~]")


def is_hidden(character: str) -> bool:
    return not character.isprintable() or character in _SHOW_NOTHING


def changes_direction(character: str) -> bool:
    return character in _CHANGE_DIRECTION


def hidden_in(text: str, *, is_block: bool = False) -> list[str]:
    """Find the hidden characters. In a block, line feeds and tabs are not hidden."""
    if text.isascii() and text.isprintable():
        return []
    pattern = _IN_BLOCK if is_block else _IN_LINE
    return [character for part in pattern.findall(text) for character in part if is_hidden(character)]


def may_hide(text: bytes) -> bool:
    """Check quickly whether a block needs a second look. Most diffs do not."""
    return _IN_BYTES.search(text) is not None


def with_hidden_shown(text: str, show: Callable[[str], str], *, is_block: bool = False) -> str:
    """Replace each hidden character; line feeds and tabs stay in a block."""

    def shown(match: re.Match[str]) -> str:
        part = match.group()
        if part.isprintable() and _SHOW_NOTHING.isdisjoint(part):
            return part
        return "".join(show(character) if is_hidden(character) else character for character in part)

    if text.isascii() and text.isprintable():
        return text
    return (_IN_BLOCK if is_block else _IN_LINE).sub(shown, text)


# Made once: json.dumps makes an encoder for each call with options.
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def compact(value: Any) -> str:
    return _COMPACT.encode(value)


def canonical(value: Any) -> str:
    """Sort the keys, so that the same content gives the same text."""
    return _CANONICAL.encode(value)


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_FEW_SECONDS = 10


def in_words(seconds: float) -> str:
    """Write at most two units, rounded down: `0.5 s`, `42 s`, `1 min 30 s`, `2 h`, `1 d 12 h`."""
    if seconds < _FEW_SECONDS:
        return f"{max(int(seconds * 10), 0) / 10} s"
    left = int(seconds)
    words: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(left, size)
        if words or count:
            words.append(f"{count} {unit}" if count else "")
            left = rest
    return " ".join(words[:2]).rstrip()
