"""Characters that are invisible, or that change how others look. One set for the terminal, the pages and the names.

Hidden is what Unicode calls a control, a format or private character, a separator other than the space, or nothing at
all, and a few characters that it calls printable although they show nothing.
"""

import re
from collections.abc import Callable

# Unicode's Default_Ignorable_Code_Point among the printable ones (fillers, joiners, variation selectors), and the
# blank braille pattern.
_SHOW_NOTHING = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
_CHANGE_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# What may be hidden is looked at more closely: in a line, and in a block, whose lines and tabs stay.
_IN_LINE, _IN_BLOCK = re.compile("[^ -~]+"), re.compile("[^\t\n -~]+")
_IN_BYTES = re.compile(rb"[^\t\n -~]")


def is_hidden(character: str) -> bool:
    return not character.isprintable() or character in _SHOW_NOTHING


def changes_direction(character: str) -> bool:
    return character in _CHANGE_DIRECTION


def hidden_in(text: str, *, is_block: bool = False) -> list[str]:
    """Find the hidden characters; line feeds and tabs are none in a block."""
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
