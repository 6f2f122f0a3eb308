"""A diff in pages: nothing lost, nothing cut where it need not be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain.patch.places import PAGE_CHARACTERS, PAGE_LINES, page_of
from gsd_review_broker.domain.patch.reading import read
from tests.support.diffs import Corpus, make_corpus

_TEXTS = ["x", "é", "漢", "🎉", "\r", "\u2028", "--- a/x", "@@ -1 +1 @@", ""]


def _file(name: str, hunks: list[list[str]]) -> str:
    header = f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n"
    return header + "".join(
        f"@@ -1,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines) for lines in hunks
    )


def _lines(repeated: list[tuple[str, int, int]]) -> list[str]:
    return [text * width for text, width, count in repeated for _ in range(count)]


_HUNKS = st.lists(
    st.tuples(st.sampled_from(_TEXTS), st.sampled_from([1, 7, 300, 40_000]), st.sampled_from([1, 3, 80, 700])),
    min_size=1,
    max_size=4,
).map(lambda repeated: _lines([each for each in repeated if each[1] * each[2] <= 60_000]) or ["x"])
_DIFFS = st.lists(st.lists(_HUNKS, min_size=1, max_size=4), min_size=1, max_size=4).map(
    lambda files: "".join(_file(f"file {number}.txt", hunks) for number, hunks in enumerate(files))
)


def _pages(diff: str, path: str | None = None) -> tuple[list[str], list[int]]:
    content = diff.encode()
    pages, offsets = [], []
    offset: int | None = 0
    while offset is not None:
        page = page_of(content, offset, path=path)
        pages.append(page.text)
        if page.next_offset is not None:
            assert page.next_offset > offset, "a page moves on"
            offsets.append(page.next_offset)
        offset = page.next_offset
    return pages, offsets


@given(diff=_DIFFS)
@pytest.mark.slow
def test_joined_the_pages_are_the_diff_and_each_fits(diff: str) -> None:
    pages, offsets = _pages(diff)
    assert "".join(pages) == diff
    assert all(len(page) <= PAGE_CHARACTERS and page.count("\n") <= PAGE_LINES for page in pages)
    assert all(pages)
    ends = [len("".join(pages[: number + 1]).encode()) for number in range(len(pages) - 1)]
    assert offsets == ends


@given(diff=_DIFFS)
def test_a_cut_is_between_files_or_hunks_where_one_fits(diff: str) -> None:
    content = diff.encode()
    files = read(content)
    borders = {file.start for file in files} | {hunk.start for file in files for hunk in file.hunks[1:]}
    begin = 0
    for end in _pages(diff)[1]:
        fitting = [border for border in borders if begin < border <= end]
        assert end in borders or not fitting
        following = min((border for border in borders if border > end), default=len(content))
        more = content[begin:following].decode()
        assert len(more) > PAGE_CHARACTERS or more.count("\n") > PAGE_LINES, "what would have fitted is on the page"
        begin = end


@given(diff=_DIFFS)
@pytest.mark.slow
def test_a_hunk_too_large_is_cut_between_lines_unless_one_line_is_too_large(diff: str) -> None:
    content = diff.encode()
    begin = 0
    for end in _pages(diff)[1]:
        if content[end - 1 : end] != b"\n":
            assert b"\n" not in content[begin:end]
            assert len(content[begin:end].decode()) == PAGE_CHARACTERS
        begin = end


@given(diff=_DIFFS, number=st.integers(min_value=0, max_value=3))
def test_a_path_narrows_to_its_file(diff: str, number: int) -> None:
    pages, _offsets = _pages(diff, path=f"file {number}.txt")
    content = diff.encode()
    own = [content[file.start : file.end] for file in read(content) if file.path == f"file {number}.txt"]
    assert "".join(pages).encode() == b"".join(own)
    assert all(len(page) <= PAGE_CHARACTERS and page.count("\n") <= PAGE_LINES for page in pages)


def test_every_odd_diff_that_is_text_comes_back_whole(tmp_path_factory: pytest.TempPathFactory) -> None:
    corpus: Corpus = make_corpus(tmp_path_factory.mktemp("corpus") / "repository")
    for odd in corpus.odd:
        if odd.is_text:
            assert "".join(_pages(odd.diff.decode())[0]).encode() == odd.diff, odd.name
            for file in read(odd.diff):
                assert _pages(odd.diff.decode(), path=file.path)[0][0], (odd.name, file.path)


def test_a_file_that_comes_twice_comes_whole_when_narrowed() -> None:
    first, second = _file("x", [["a" * 100] * 200]), _file("x", [["b" * 100] * 200])
    diff = first + _file("y", [["c"]]) + second
    pages, _offsets = _pages(diff, path="x")
    assert pages == [first, second]


def test_a_renamed_file_answers_to_both_names() -> None:
    diff = "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n"
    assert _pages(diff, path="old") == _pages(diff, path="new") == ([diff], [])


def test_a_path_that_is_not_touched_gives_one_empty_page() -> None:
    assert _pages(_file("x", [["a"]]), path="y") == ([""], [])


@pytest.mark.parametrize("letter", ["x", "é", "漢", "🎉"])
def test_a_line_of_a_megabyte_comes_in_pieces_of_whole_characters(letter: str) -> None:
    diff = _file("x", [[letter * (2**20 // len(letter.encode()))]])
    pages, _offsets = _pages(diff)
    assert "".join(pages) == diff
    assert max(map(len, pages)) == PAGE_CHARACTERS


def test_many_short_lines_come_two_thousand_at_a_time() -> None:
    pages, _offsets = _pages(_file("x", [["x"] * 10_000]))
    assert [page.count("\n") for page in pages] == [2_000] * 5 + [4]


def test_a_diff_that_breaks_is_still_cut_at_the_borders_before_it_breaks() -> None:
    whole = [_file(f"{number}", [["x" * 100] * 200]) for number in range(3)]
    diff = "".join(whole) + "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n x\n" + "nonsense\n" * 3_000
    pages, _offsets = _pages(diff)
    assert pages[:2] == whole[:2]
    assert "".join(pages) == diff


def test_text_that_is_no_diff_is_paged_all_the_same() -> None:
    text = "nothing like a diff\n" * 5_000
    assert "".join(_pages(text)[0]) == text


@pytest.mark.parametrize("offset", [-5, 0, 1, 2, 3, 4, 5, 10**9])
def test_a_place_inside_a_character_or_outside_the_diff_does_no_harm(offset: int) -> None:
    assert page_of("漢🎉".encode(), offset).text in {"漢🎉", "🎉", ""}
