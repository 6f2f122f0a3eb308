"""Nothing that an agent writes moves a cursor, hides, or turns text around."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.cli.screen import visible, visible_block

HOSTILE = {
    "escape": ("\x1b[31mred", "\\x1b[31mred"),
    "a link (OSC 8)": ("\x1b]8;;http://evil\x1b\\x", "\\x1b]8;;http://evil\\x1b\\x"),
    "the clipboard (OSC 52)": ("\x1b]52;c;eA==\x07", "\\x1b]52;c;eA==\\x07"),
    "carriage return": ("good\rbad", "good\\rbad"),
    "line feed": ("one\ntwo", "one\\ntwo"),
    "tab": ("one\ttwo", "one\\ttwo"),
    "backspace": ("bad\x08\x08\x08good", "bad\\x08\\x08\\x08good"),
    "C1": ("\x9b31m", "\\x9b31m"),
    "right to left": ("\u202egnp.exe", "\\u202egnp.exe"),
    "isolate": ("\u2066x\u2069", "\\u2066x\\u2069"),
    "zero width": ("a\u200bb\u200d\ufeff", "a\\u200bb\\u200d\\ufeff"),
    "a filler that counts as a letter": ("a\u3164b", "a\\u3164b"),
    "selector": ("a\ufe01b", "a\\ufe01b"),
    "tag": ("a\U000e0041b", "a\\U000e0041b"),
    "line separator": ("a\u2028b", "a\\u2028b"),
    "half a character": ("a\ud800b", "a\\ud800b"),
    "NUL": ("a\0b", "a\\x00b"),
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_seen_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_text_stays_text() -> None:
    plain = "Grüße, 世界! naïve café — “quoted” 🎉 \\x1b is only a backslash"
    assert visible(plain) == plain


def test_a_block_keeps_its_lines_and_tabs_and_nothing_else() -> None:
    assert visible_block("one\n\ttwo\r\n\x1b[2J") == "one\n\ttwo\\r\n\\x1b[2J"


@given(st.text(st.characters(codec=None)))
def test_whatever_comes_in_only_printable_characters_go_out(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    shown.encode("utf-8")


@given(st.text(st.characters(codec=None)))
def test_a_block_is_its_lines_made_visible(text: str) -> None:
    assert visible_block(text).split("\n") == [visible_block(line) for line in text.split("\n")]


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"])))
def test_what_is_printable_and_seen_is_left_alone(text: str) -> None:
    seen = "".join(c for c in text if visible(c) == c)
    assert visible(seen) == seen
    assert len(seen) >= len([c for c in text if c.isascii()])
