"""Durations as people read them."""

import pytest

from gsd_review_broker.domain.text import in_words

WORDS = {
    -1: "0.0 s",
    0: "0.0 s",
    0.5: "0.5 s",
    1.1: "1.1 s",
    9.99: "9.9 s",
    10: "10 s",
    59.99: "59 s",
    60: "1 min",
    90: "1 min 30 s",
    3_599.9: "59 min 59 s",
    3_600: "1 h",
    3_659: "1 h",
    5_400: "1 h 30 min",
    86_399: "23 h 59 min",
    86_400: "1 d",
    86_400 + 59 * 60: "1 d",
    129_600: "1 d 12 h",
    400 * 86_400: "400 d",
}


@pytest.mark.parametrize(("seconds", "words"), WORDS.items())
def test_a_duration_has_at_most_two_units_and_is_rounded_down(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
