"""Between two revisions: what the author changed, and not what moved under it."""

import difflib

from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain.patch.interdiff import interdiff

BASE = [f"line {number}" for number in range(1, 61)]


def diff_of(before: list[str], after: list[str], path: str = "a.py") -> bytes:
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
    return ("\n".join(lines) + "\n").encode()


def edited(base: list[str], *changes: tuple[int, str]) -> list[str]:
    after = list(base)
    for number, text in changes:
        after[number - 1] = text
    return after


def changed_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- "))]


def test_nothing_changed_is_nothing_to_read() -> None:
    diff = diff_of(BASE, edited(BASE, (20, "new")))
    assert interdiff(diff, diff) == ""
    assert interdiff(None, None) == ""
    assert interdiff(b"not a diff", b"not a diff") == ""


def test_a_line_that_the_author_changed_again_is_shown_as_changed() -> None:
    first = diff_of(BASE, edited(BASE, (20, "frist")))
    second = diff_of(BASE, edited(BASE, (20, "first")))
    text = interdiff(first, second)
    assert changed_lines(text) == ["-frist", "+first"]
    assert "@@ -17,7 +17,7 @@\n line 17\n line 18\n line 19\n-frist\n+first\n line 21\n" in text


def test_a_base_that_moved_elsewhere_in_the_file_is_not_the_authors_change() -> None:
    moved = ["upstream"] * 7 + edited(BASE, (23, "upstream changed this"), (50, "and this"))
    first = diff_of(BASE, edited(BASE, (20, "frist"), (40, "kept")))
    same = diff_of(moved, edited(moved, (27, "frist"), (47, "kept")))
    assert interdiff(first, same) == ""
    second = diff_of(moved, edited(moved, (27, "first"), (47, "kept")))
    assert changed_lines(interdiff(first, second)) == ["-frist", "+first"]


def test_a_hunk_that_came_or_went_is_shown_whole() -> None:
    one = diff_of(BASE, edited(BASE, (20, "new")))
    two = diff_of(BASE, edited(BASE, (20, "new"), (45, "more")))
    assert changed_lines(interdiff(one, two)) == ["-line 45", "+more"]
    assert sorted(changed_lines(interdiff(two, one))) == ["+line 45", "-more"]


def test_a_removal_that_was_taken_back_is_shown_as_restored() -> None:
    without = diff_of(BASE, edited(BASE, (20, "new"))[:20] + BASE[21:])
    back = diff_of(BASE, edited(BASE, (20, "new")))
    assert changed_lines(interdiff(without, back)) == ["+line 21"]


def test_files_that_come_and_go_are_named() -> None:
    one = diff_of(BASE, edited(BASE, (1, "x")), "a.py")
    two = diff_of(BASE, edited(BASE, (1, "x")), "b.py")
    text = interdiff(one, two)
    assert "diff --git a/b.py b/b.py\n(newly touched: modify)\n" in text
    assert "diff --git a/a.py b/a.py\n(no longer touched)\n" in text


def test_one_file_is_found_by_its_old_and_its_new_name() -> None:
    rename = "diff --git a/x b/{0}\nsimilarity index 100%\nrename from x\nrename to {0}\n"
    other = diff_of(BASE, edited(BASE, (1, "x")))
    one, two = rename.format("y").encode(), other + rename.format("z").encode()
    assert interdiff(one, two, path="z").startswith("diff --git a/z b/z\n(newly touched: rename)\n")
    assert interdiff(one, two, path="x").count("diff --git") == 2
    assert interdiff(one, two, path="a.py").count("diff --git") == 1
    assert interdiff(one, two, path="elsewhere") == ""


def test_what_is_not_in_the_lines_is_told() -> None:
    mode = "diff --git a/x b/x\nold mode 100644\nnew mode {}\n"
    assert "(mode 100755 became 120000)" in interdiff(mode.format(100755).encode(), mode.format(120000).encode())
    rename = "diff --git a/{0} b/y\nsimilarity index 100%\nrename from {0}\nrename to y\n"
    assert "from z" in interdiff(rename.format("x").encode(), rename.format("z").encode())
    binary = "diff --git a/i b/i\nindex 1..{} 100644\nBinary files a/i and b/i differ\n"
    assert "(binary content changed)" in interdiff(binary.format("2").encode(), binary.format("3").encode())


def test_if_one_cannot_be_read_the_whole_new_one_is_shown() -> None:
    good = diff_of(BASE, edited(BASE, (1, "x")))
    assert interdiff(b"garbage", good) == good.decode()


def test_a_large_file_that_changed_throughout_is_read_in_bounded_time() -> None:
    one = diff_of([], [f"old {number}" for number in range(6_000)])
    two = diff_of([], [f"new {number}" for number in range(6_000)])
    assert len(changed_lines(interdiff(one, two))) == 12_000


lines = st.lists(st.sampled_from(["a", "b", "c", "d", "e", ""]), min_size=1, max_size=20)


@given(base=lines, first=lines, second=lines)
def test_on_one_base_the_interdiff_turns_the_first_result_into_the_second(
    base: list[str], first: list[str], second: list[str]
) -> None:
    """With the whole file in view, adding and removing what it says gives the new result's lines."""
    one, two = (
        "\n".join(difflib.unified_diff(base, after, "a/f", "b/f", lineterm="", n=99)).encode() + b"\n"
        for after in (first, second)
    )
    if base in (first, second):
        return
    text = interdiff(one, two)
    bag = list(first)
    for line in changed_lines(text):
        if line[0] == "-":
            bag.remove(line[1:])
        else:
            bag.append(line[1:])
    assert sorted(bag) == sorted(second)
