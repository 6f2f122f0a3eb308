"""A large file is shown in parts: every line in exactly one of them, none of them too large."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gsd_review_broker.web.diff import rendering
from gsd_review_broker.web.diff.document import Row, ShownHunk
from gsd_review_broker.web.diff.highlighting import Pieces


def hunk(start: int, texts: list[str]) -> ShownHunk:
    return ShownHunk(f"@@ -0,0 +{start} @@", tuple(Row("+", text, None, start + n) for n, text in enumerate(texts)))


def coloured(hunks: list[ShownHunk]) -> list[list[Pieces]]:
    return [[(("", row.text),) for row in one.rows] for one in hunks]


def all_parts(hunks: list[ShownHunk]) -> list[rendering.Part]:
    pieces = coloured(hunks)
    found: list[rendering.Part] = []
    while (part := rendering.part_of(hunks, pieces, len(found))) is not None:
        found.append(part)
    return found


LENGTHS = st.lists(st.lists(st.integers(0, 60), max_size=8), max_size=6)


# More lines than a part may have, and more characters.
@example([[1] * 8])
@example([[40] * 4])
@given(LENGTHS)
def test_every_line_is_in_exactly_one_part_and_no_part_is_too_large(lengths: list[list[int]]) -> None:
    """With limits that a few lines reach."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PART_LINES": 5, "PART_CHARACTERS": 100, "LONGEST_LINE": 40}.items():
            patch.setattr(rendering, name, value)
        require_whole_parts(lengths)


def require_whole_parts(lengths: list[list[int]]) -> None:
    hunks = [hunk(1_000 * n + 1, ["x" * length for length in one]) for n, one in enumerate(lengths)]
    found = all_parts(hunks)
    shown = [row for part in found for one in part.hunks for row in one.rows]
    assert shown == [row for one in hunks for row in one.rows]
    assert len(found) >= 1
    after = 0
    for part in reversed(found):
        rows = [row for one in part.hunks for row in one.rows]
        assert part.left == after
        assert len(rows) <= rendering.PART_LINES
        assert sum(min(len(row.text), rendering.LONGEST_LINE) for row in rows) <= rendering.PART_CHARACTERS
        assert [len(one.rows) for one in part.hunks] == [len(pieces) for pieces in part.pieces]
        assert [one.heading for one in part.hunks if not one.rows] == []
        after += len(rows)


def test_a_part_ends_at_its_last_line_and_a_line_is_found_in_its_part() -> None:
    hunks = [hunk(1, ["x"] * (rendering.PART_LINES + 1)), hunk(90_000, ["y"] * rendering.PART_LINES)]
    found = all_parts(hunks)
    assert [sum(len(one.rows) for one in part.hunks) for part in found] == [rendering.PART_LINES] * 2 + [1]
    assert [part.left for part in found] == [rendering.PART_LINES + 1, 1, 0]
    assert rendering.part_with(hunks, "n", rendering.PART_LINES) == 0
    assert rendering.part_with(hunks, "n", rendering.PART_LINES + 1) == 1
    assert rendering.part_with(hunks, "n", 90_000 + rendering.PART_LINES - 1) == 2
    assert rendering.part_with(hunks, "o", 5) == 0


def test_a_file_without_lines_has_one_empty_part() -> None:
    assert rendering.part_of([], [], 0) == rendering.Part((), (), 0)
    assert rendering.part_of([], [], 1) is None
