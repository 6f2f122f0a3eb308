"""Makes agents' text safe to print: nothing in it moves a cursor, hides, or reverses text."""

import re

# Printable according to Unicode, but invisible: fillers, joiners, selectors.
_UNSEEN = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
_UNSEEN_PATTERN = re.compile(f"[{_UNSEEN}]")


def visible(text: str, *, keep: str = "") -> str:
    """Each control, format or invisible character as its escape; those in `keep` stay."""
    if text.isprintable() and (text.isascii() or not _UNSEEN_PATTERN.search(text)):
        return text
    return "".join(c if c in keep or (c.isprintable() and c not in _UNSEEN) else _escape(c) for c in text)


def visible_block(text: str) -> str:
    """Text of several lines: line feeds and tabs stay."""
    return visible(text, keep="\n\t")


def _escape(character: str) -> str:
    match character:
        case "\n":
            return "\\n"
        case "\r":
            return "\\r"
        case "\t":
            return "\\t"
        case _:
            number = ord(character)
            if number < 0x100:  # noqa: PLR2004 - two hexadecimal digits
                return f"\\x{number:02x}"
            return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004 - what four digits hold
