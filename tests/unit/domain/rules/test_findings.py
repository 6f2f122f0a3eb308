"""Is a remark a new finding, or one that was raised before?"""

import pytest

from gsd_review_broker.domain.patch.places import LinePlace
from gsd_review_broker.domain.rules.discussion import same_finding
from gsd_review_broker.domain.words import Anchor, Side, Status
from tests.support.reviews import finding, in_status

REVIEW = in_status(Status.CLAIMED)
KNOWN = finding(REVIEW)


def place(path: str | None = "x", line: int = 1, text: str | None = "for x in y:") -> LinePlace:
    return LinePlace(path, line, line, Side.NEW, Anchor.ANCHORED, text)


@pytest.mark.parametrize("title", ["off by one", "Off by one!", "  OFF-BY  one "])
def test_the_same_title_at_the_same_place_is_the_same_finding(title: str) -> None:
    assert same_finding([KNOWN], title=title, place=place(), round_=1) == KNOWN


def test_it_follows_its_text_to_another_line() -> None:
    assert same_finding([KNOWN], title="off by one", place=place(line=9), round_=1) == KNOWN


@pytest.mark.parametrize(
    ("title", "where"),
    [
        ("off by two", place()),
        ("off by one", place(path="y")),
        ("off by one", place(path=None)),
        ("off by one", place(line=9, text="something else")),
        ("off by one", place(text=None, line=9)),
    ],
)
def test_in_doubt_it_is_a_new_one(title: str, where: LinePlace) -> None:
    assert same_finding([KNOWN], title=title, place=where, round_=2) is None


def test_of_an_earlier_round_one_whose_lines_changed_since_is_the_same() -> None:
    outdated = finding(REVIEW, anchor=Anchor.OUTDATED)
    changed = place(line=5, text="for x in y[:-1]:")
    assert same_finding([outdated], title="off by one", place=changed, round_=2) == outdated
    assert same_finding([outdated], title="off by one", place=changed, round_=1) is None


def test_of_several_the_one_at_the_very_line_is_meant() -> None:
    elsewhere = finding(REVIEW, id="f2", line_start=4)
    assert same_finding([elsewhere, KNOWN], title="off by one", place=place(), round_=1) == KNOWN
    assert same_finding([elsewhere], title="off by one", place=place(), round_=1) == elsewhere
