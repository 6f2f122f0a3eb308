"""One set of characters that are shown as escapes: the terminal, the pages and the rule for names agree on each."""

import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.cli.screen import visible, visible_block
from gsd_review_broker.domain.text import changes_direction, hidden_in, is_hidden, may_hide
from gsd_review_broker.web.text import plain
from gsd_review_broker.web.text import visible as shown_on_a_page

# Above these there is private use, and what is not assigned: one of each will do.
EVERY = [chr(number) for number in (*range(0x20000), *range(0xE0000, 0xE0200), 0xF0000, sys.maxunicode)]
# Controls, formats, half characters, private use, nothing; separators of lines, and spaces that are none.
HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
TEXT = st.text(st.characters(codec=None)) | st.text(
    st.characters(codec=None, categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs", "Mn"])
)


def test_every_character_is_shown_in_the_same_way_on_the_terminal_and_on_the_pages() -> None:
    escaped = [one for one in EVERY if visible_block(one) != one]
    assert escaped == [one for one in EVERY if plain(one) != one]
    assert escaped == [one for one in EVERY if "hid" in shown_on_a_page(one)]


def test_every_character_of_a_category_without_shape_is_hidden() -> None:
    shapeless = [one for one in EVERY if unicodedata.category(one) in HIDDEN_CATEGORIES and one != " "]
    assert all(map(is_hidden, shapeless))
    selectors = [one for one in EVERY if "VARIATION SELECTOR" in unicodedata.name(one, "")]
    assert len(selectors) == 260
    assert all(map(is_hidden, selectors))


def test_what_has_a_shape_is_left_alone() -> None:
    hidden = {one for one in EVERY if is_hidden(one) and unicodedata.category(one) not in HIDDEN_CATEGORIES}
    # Fillers that are letters by their names, selectors, a joiner, and the empty braille pattern.
    assert {unicodedata.category(one) for one in hidden} == {"Lo", "Mn", "So"}
    assert {one for one in hidden if unicodedata.category(one) == "So"} == {"\u2800"}
    assert all(not is_hidden(one) for one in "Grüße, 世界! “naïve” 🎉 e\u0301 ع")


@given(TEXT)
def test_the_terminal_and_the_pages_escape_the_same_characters_of_a_text(text: str) -> None:
    hidden = hidden_in(text, is_block=True)
    assert plain(text).count("⟨U+") - text.count("⟨U+") == len(hidden)
    assert shown_on_a_page(text).count('class="hid"') == len(hidden)
    assert hidden_in(visible_block(text), is_block=True) == []
    assert hidden_in(visible(text)) == []
    assert (visible_block(text) == text) == (plain(text) == text) == (not hidden)


@given(TEXT)
def test_the_quick_check_misses_nothing(text: str) -> None:
    assert may_hide(text.encode("utf-8", "surrogatepass")) or not hidden_in(text, is_block=True)


def test_what_changes_the_direction_is_hidden() -> None:
    turning = [one for one in EVERY if changes_direction(one)]
    assert all(map(is_hidden, turning))
    # Marks, embeddings, overrides and isolates, with what ends them.
    strong = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    assert {one for one in EVERY if unicodedata.bidirectional(one) in strong} <= set(turning)
