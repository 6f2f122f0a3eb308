"""Findings follow the lines that they are about, and none is lost."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain.patch.places import LinePlace, ShownLines
from gsd_review_broker.domain.words import Anchor, Side

BASE = [f"line {number}" for number in range(1, 41)]


def diff_of(before: list[str], after: list[str], *, path: str = "a.py", old_path: str | None = None) -> bytes:
    lines = difflib.unified_diff(before, after, f"a/{old_path or path}", f"b/{path}", lineterm="")
    text = "\n".join(lines) + "\n"
    if old_path:
        text = f"diff --git a/{old_path} b/{path}\nrename from {old_path}\nrename to {path}\n{text}"
    return text.encode()


def edited(*changes: tuple[int, str]) -> list[str]:
    after = list(BASE)
    for number, text in changes:
        after[number - 1] = text
    return after


FIRST = diff_of(BASE, edited((20, "a new and telling line")))


def the_finding(diff: bytes = FIRST, line: int = 20) -> LinePlace:
    place = ShownLines(diff).place("a.py", line, line, Side.NEW)
    assert place.anchor is Anchor.ANCHORED
    return place


@pytest.mark.parametrize(
    ("line_start", "line_end", "side", "expected"),
    [
        (20, 20, Side.NEW, Anchor.ANCHORED),
        (18, 22, Side.NEW, Anchor.ANCHORED),
        (20, None, Side.OLD, Anchor.ANCHORED),
        (1, 1, Side.NEW, Anchor.UNANCHORED),
        (20, 30, Side.NEW, Anchor.UNANCHORED),
        (22, 20, Side.NEW, Anchor.UNANCHORED),
        (0, 0, Side.NEW, Anchor.UNANCHORED),
        (-5, 10**12, Side.NEW, Anchor.UNANCHORED),
        (None, None, Side.NEW, Anchor.UNANCHORED),
    ],
)
def test_an_anchor_holds_where_the_diff_shows_the_lines(
    line_start: int | None, line_end: int | None, side: Side, expected: Anchor
) -> None:
    assert ShownLines(FIRST).place("a.py", line_start, line_end, side).anchor is expected


@pytest.mark.parametrize("path", ["b.py", None, ""])
def test_an_anchor_in_a_file_that_is_not_touched_points_nowhere(path: str | None) -> None:
    assert ShownLines(FIRST).place(path, 20, 20, Side.NEW).anchor is Anchor.UNANCHORED


def test_without_a_readable_diff_everything_points_nowhere() -> None:
    for diff in (None, b"", b"no diff at all"):
        assert ShownLines(diff).place("a.py", 1, 1, Side.NEW).anchor is Anchor.UNANCHORED
        assert ShownLines(diff).find_again(the_finding()).anchor is Anchor.OUTDATED


def test_lines_inserted_above_move_the_finding_down() -> None:
    after = ["inserted"] * 5 + edited((20, "a new and telling line"))
    moved = ShownLines(diff_of(BASE, after)).find_again(the_finding())
    assert (moved.anchor, moved.line_start, moved.line_end) == (Anchor.ANCHORED, 25, 25)


def test_a_renamed_file_takes_the_finding_along() -> None:
    renamed = diff_of(BASE, edited((20, "a new and telling line")), path="b.py", old_path="a.py")
    moved = ShownLines(renamed).find_again(the_finding())
    assert (moved.anchor, moved.path, moved.line_start) == (Anchor.ANCHORED, "b.py", 20)


def test_a_block_moved_to_another_file_is_found_there() -> None:
    elsewhere = diff_of([], ["other", "a new and telling line"], path="c.py")
    moved = ShownLines(elsewhere).find_again(the_finding())
    assert (moved.anchor, moved.path, moved.line_start) == (Anchor.ANCHORED, "c.py", 2)


def test_a_lone_brace_is_not_looked_for_in_other_files() -> None:
    first = diff_of(BASE, edited((20, "}")))
    elsewhere = diff_of([], ["}"], path="c.py")
    assert ShownLines(elsewhere).find_again(the_finding(first)).anchor is Anchor.OUTDATED


def test_a_deleted_hunk_leaves_the_finding_outdated_at_its_old_place() -> None:
    other = diff_of(BASE, edited((5, "elsewhere in the file")))
    gone = ShownLines(other).find_again(the_finding())
    assert (gone.anchor, gone.path, gone.line_start) == (Anchor.OUTDATED, "a.py", 20)


def test_what_was_outdated_is_found_when_it_is_back() -> None:
    other = diff_of(BASE, edited((5, "elsewhere in the file")))
    gone = ShownLines(other).find_again(the_finding())
    assert ShownLines(FIRST).find_again(gone).anchor is Anchor.ANCHORED


def test_of_several_places_the_nearest_is_taken() -> None:
    twice = edited((10, "a new and telling line"), (22, "a new and telling line"))
    assert ShownLines(diff_of(BASE, twice)).find_again(the_finding()).line_start == 22


texts = st.lists(st.sampled_from(["a", "b", "}", "", "a telling line of code", "def f():"]), max_size=25)


@given(first=texts, second=texts, third=texts, line=st.integers(-1, 30), size=st.integers(0, 4))
def test_a_finding_is_never_lost_and_an_anchor_never_lies(
    first: list[str], second: list[str], third: list[str], line: int, size: int
) -> None:
    place = ShownLines(diff_of([], first)).place("a.py", line, line + size, Side.NEW)
    for revision in (second, third):
        shown = ShownLines(diff_of([], revision))
        after = shown.find_again(place)
        assert after.text == place.text
        if place.anchor is Anchor.UNANCHORED:
            assert after == place
        elif after.anchor is Anchor.ANCHORED:
            assert after.line_start is not None
            assert "\n".join(revision[after.line_start - 1 : after.line_end]) == place.text
        else:
            assert (after.path, after.line_start) == (place.path, place.line_start)
            assert place.text not in revision
        place = after
