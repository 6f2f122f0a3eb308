"""How the pages write text: words for statuses, and code points for characters that are invisible or change how
others look."""

import unicodedata
from functools import lru_cache
from html import escape

from markupsafe import Markup

from gsd_review_broker.domain.text import with_hidden_shown
from gsd_review_broker.domain.words import Status


def plain(text: str) -> str:
    """Write a text for places without markup: a title, a file's name, the source of Markdown."""
    return with_hidden_shown(text, lambda character: f"⟨{code_point(character)}⟩", is_block=True)


def visible(text: str) -> Markup:
    """Escape the text, and put each hidden character into a frame."""
    return Markup(with_hidden_shown(escape(text, quote=True), _framed, is_block=True))  # noqa: S704 - escaped here


def code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


@lru_cache(maxsize=512)
def name_of(character: str) -> str:
    return f"{code_point(character)} {unicodedata.name(character, '')}".rstrip()


def _framed(character: str) -> str:
    return f'<span class="hid" title="{escape(name_of(character))}">{code_point(character)}</span>'


STATUS_WORDS = {status.value: status.replace("_", " ").capitalize() for status in Status}
# Shown beside the colour, for readers who cannot tell colours apart.
STATUS_MARKS = {
    Status.PENDING: "○",
    Status.CLAIMED: "◐",
    Status.IN_REVIEW: "◑",
    Status.APPROVED: "✓",
    Status.CHANGES_REQUESTED: "↺",
    Status.CLOSED: "■",
}
