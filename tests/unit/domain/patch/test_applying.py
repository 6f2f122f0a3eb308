"""A diff applied at its own lines, and interdiffs that hide nothing."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain.patch.interdiff import interdiff, shown_interdiff
from gsd_review_broker.domain.patch.reading import applied, read
from gsd_review_broker.domain.patch.safety import unclear_sections

LINES = st.lists(st.sampled_from(["a", "b", "", "c c"]), max_size=25)


def content_of(lines: list[str], *, ended: bool = True) -> bytes:
    text = "\n".join(lines)
    return (text + "\n" if ended and lines else text).encode()


def diff_of(before: bytes, after: bytes, path: str = "a.py", *, base: str = "1234567") -> bytes:
    """As git writes it, with the remark about a last line without a line feed."""
    parts = [f"diff --git a/{path} b/{path}\nindex {base}..7654321 100644\n".encode()]
    old, new = ([line.decode() for line in side.splitlines(keepends=True)] for side in (before, after))
    for line in difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"):
        text = line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
        parts.append(text.encode())
    return b"".join(parts)


@given(LINES, LINES, st.booleans(), st.booleans())
def test_applying_a_diff_gives_the_content_it_was_made_for(
    before: list[str], after: list[str], old_ended: bool, new_ended: bool
) -> None:
    old, new = content_of(before, ended=old_ended), content_of(after, ended=new_ended)
    if old == new:
        return
    diff = diff_of(old, new)
    [file] = read(diff)
    assert applied(diff, file, old) == new
    assert applied(diff, file, new, reverse=True) == old


@given(LINES, LINES, st.none() | LINES, st.booleans(), st.booleans())
def test_on_one_base_an_interdiff_is_empty_only_if_the_outcome_is_the_same(
    base: list[str], first: list[str], second: list[str] | None, first_ended: bool, second_ended: bool
) -> None:
    """H3: digests differ exactly if the outcomes do. Often only one final line feed makes the difference."""
    start = content_of(base)
    one = content_of(first, ended=first_ended)
    other = content_of(first if second is None else second, ended=second_ended)
    if start in {one, other}:
        return
    text = interdiff(diff_of(start, one), diff_of(start, other))
    assert bool(text) or one == other


def test_a_hunk_that_moved_to_a_place_with_equal_context_is_shown() -> None:
    """H3: matched by text alone, the two would look the same."""
    base = "def f():\n    check()\n    go()\n" + "#\n" * 20
    start = (base + base).encode()
    one = start.replace(b"    check()\n", b"", 1)
    other = start[: len(base)] + start[len(base) :].replace(b"    check()\n", b"")
    assert interdiff(diff_of(start, one), diff_of(start, other)) != ""


def test_where_no_line_is_the_authors_the_whole_diff_is_given_with_a_note() -> None:
    start = "".join(f"line {number}\n" for number in range(20)).encode()
    moved = b"new\n" + start
    first = diff_of(start, start.replace(b"line 9\n", b"nine\n"), base="1111111")
    second = diff_of(moved, moved.replace(b"line 9\n", b"nine\n"), base="2222222")
    assert interdiff(first, second) == ""
    text = shown_interdiff(first, second)
    assert text.startswith("(No line that the author changed was found")
    assert text.endswith(second.decode())
    assert shown_interdiff(first, first) == ""


def test_a_lost_final_line_feed_is_told() -> None:
    first, second = diff_of(b"a\n", b"b\n"), diff_of(b"a\n", b"b")
    assert "\\ No newline at end of file" in interdiff(first, second)


@pytest.mark.parametrize(
    "hunk",
    [
        "@@ -2,2 +1,1 @@\n a\n-b\n",  # at another line
        "@@ -1,2 +2,1 @@\n a\n-b\n",  # the two numbers contradict each other
        "@@ -1,2 +1,1 @@\n a\n-c\n",  # other content
        "@@ -1,1 +1,1 @@\n-a\n+x\n\\ No newline at end of file\n",  # a line in the middle cannot be without an end
        "@@ -1,1 +1,1 @@\n-a\n+x\n@@ -1,1 +1,1 @@\n-a\n+x\n",  # backwards
    ],
)
def test_a_hunk_that_does_not_match_at_its_own_line_is_not_applied(hunk: str) -> None:
    diff = f"--- a/x\n+++ b/x\n{hunk}".encode()
    [file] = read(diff)
    assert applied(diff, file, b"a\nb\nc\n") is None


def test_copies_of_one_file_are_clear() -> None:
    copies = "".join(
        f"diff --git a/a b/{name}\nsimilarity index 100%\n{kind} from a\n{kind} to {name}\n"
        for kind, name in (("copy", "b"), ("copy", "c"), ("rename", "d"))
    )
    assert unclear_sections(read(copies.encode())) is None
