"""Characters that are invisible, or that change how others look: shown as escapes everywhere."""

import re
import unicodedata
from functools import lru_cache
from html import escape

from markupsafe import Markup

# Controls except tab and line feed; formats (bidi, zero width, tags, soft hyphen); line separators; fillers that are
# letters by name only; variation selectors.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def hidden_in(text: str) -> list[str]:
    return _HIDDEN.findall(text)


def is_bidi(character: str) -> bool:
    return character in _BIDI


def plain(text: str) -> str:
    """For places without markup: a title, a file's name, the source of markdown."""
    return _HIDDEN.sub(lambda match: f"⟨{code_point(match.group())}⟩", text)


def visible(text: str) -> Markup:
    """Escaped, with each hidden character in a frame."""
    if text.isascii() and text.isprintable():
        return Markup(escape(text, quote=True))  # noqa: S704 - escaped here
    return Markup(_HIDDEN.sub(_framed, escape(text, quote=True)))  # noqa: S704 - escaped here


def code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


@lru_cache(maxsize=512)
def name_of(character: str) -> str:
    return f"{code_point(character)} {unicodedata.name(character, '')}".rstrip()


def _framed(match: re.Match[str]) -> str:
    character = match.group()
    return f'<span class="hid" title="{escape(name_of(character))}">{code_point(character)}</span>'
