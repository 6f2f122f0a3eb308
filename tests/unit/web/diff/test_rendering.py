"""A diff as people read it: every character is there, nothing is markup, what hides is shown."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from gsd_review_broker.domain.text import hidden_in
from gsd_review_broker.web.diff import document, documents, highlighting, rendering
from gsd_review_broker.web.diff.document import Row, ShownFile, ShownHunk
from gsd_review_broker.web.diff.rendering import changed_words
from gsd_review_broker.web.text import plain, visible

TEXT = st.text(alphabet=st.characters(exclude_characters="\n"), max_size=60)
CODE = st.one_of(
    TEXT, st.sampled_from(['x = "a', "'''", "/* never closed", "<b>&amp;", "\r", "\t\u202e", "#!", "{% x %}"])
)
LANGUAGES = ["a.py", "a.js", "a.html", "a.md", "a.c", "a.json", "a.sh", "Makefile", "a.unknown", "a.rs", "a.yml"]
FILE = ShownFile(index=0, path="a.py", operation="modify", added=1, removed=1, lines=2)


def shown_text(markup: str) -> str:
    """What a reader sees: without tags, with the frames of hidden characters as they are written in plain()."""
    framed = re.sub(r'<span class="hid" title="[^"]*">(U\+[0-9A-F]+)</span>', r"⟨\1⟩", markup)
    return html.unescape(re.sub(r"<[^>]*>", "", framed))


def rows(lines: list[tuple[str, str]]) -> tuple[Row, ...]:
    old = new = 1
    found: list[Row] = []
    for kind, text in lines:
        found.append(Row(kind, text, old if kind != "+" else None, new if kind != "-" else None))
        old, new = old + (kind != "+"), new + (kind != "-")
    return tuple(found)


@given(
    st.lists(st.tuples(st.sampled_from(" +-"), CODE), min_size=1, max_size=12),
    st.sampled_from(LANGUAGES),
    st.booleans(),
)
def test_every_character_of_every_line_is_shown_as_text(lines: list[tuple[str, str]], path: str, split: bool) -> None:
    hunk = ShownHunk("@@ -1 +1 @@", rows(lines))
    pieces = highlighting.highlighted(path, [hunk])
    assert ["".join(text for _, text in one) for one in pieces[0]] == [text for _, text in lines]
    table = rendering.file_table(FILE, [hunk], pieces, rendering.View(split=split), lambda _side, _line: Markup(""))
    seen = shown_text(table)
    for _, text in lines:
        assert plain(text) in seen
    assert set(re.findall(r"<([a-z]+)", table)) <= {
        "table",
        "caption",
        "tbody",
        "tr",
        "td",
        "span",
        "b",
        "colgroup",
        "col",
    }


@given(st.text())
def test_nothing_invisible_is_left_invisible(text: str) -> None:
    assert hidden_in(shown_text(visible(text)), is_block=True) == []
    assert hidden_in(plain(text), is_block=True) == []
    assert shown_text(visible(text)) == plain(text)


@pytest.mark.parametrize(
    "character",
    [
        "\u202e",
        "\u2066",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\u00ad",
        "\u2028",
        "\x1b",
        "\x07",
        "\u3164",
        "\ufe0f",
        "\U000e0041",
    ],
)
def test_a_character_that_hides_is_named(character: str) -> None:
    assert f"U+{ord(character):04X}" in visible(f"a{character}b")
    assert character not in visible(f"a{character}b")


@given(TEXT, TEXT)
def test_changed_words_lie_inside_their_lines_and_in_order(old: str, new: str) -> None:
    for text, marks in zip((old, new), changed_words(old, new), strict=True):
        places = [place for mark in marks for place in mark]
        assert places == sorted(places)
        assert all(0 <= place <= len(text) for place in places)


def test_only_the_words_that_changed_are_marked() -> None:
    old, new = changed_words("token = md5(user)", "token = secrets(user)")
    assert [
        ("token = md5(user)"[a:b], "token = secrets(user)"[c:d]) for (a, b), (c, d) in zip(old, new, strict=True)
    ] == [("md5", "secrets")]
    assert changed_words("completely different", "x = [1, 2, 3]; y()") == ((), ())


def test_a_file_that_moves_without_git_s_word_is_told() -> None:
    gone = "diff --git a/a b/a\ndeleted file mode 100644\n--- a/a\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n"
    new = "diff --git a/b b/b\nnew file mode 100644\n--- /dev/null\n+++ b/b\n@@ -0,0 +1,2 @@\n+x\n+y\n"
    from gsd_review_broker.web.diff.documents import _moved_whole

    found = document.from_diff("key", (gone + new).encode())
    assert found is not None
    assert [one.text for one in _moved_whole(found).values()] == ["moved: the same content as a, which is removed"]


def test_windows_line_ends_are_no_reason_to_warn() -> None:
    hunk = ShownHunk("@@", (Row("+", "text\r", None, 1),))
    assert documents.about_content([hunk]) == []
    assert documents.about_content([ShownHunk("@@", (Row("+", "te\rxt", None, 1),))])


def test_a_file_that_is_too_large_is_shown_plain() -> None:
    hunk = ShownHunk("@@", tuple(Row("+", "x = 1", None, number) for number in range(50_000)))
    assert highlighting.highlighted("a.py", [hunk])[0][0] == (("", "x = 1"),)
    assert highlighting.highlighted("a.py", [ShownHunk("@@", hunk.rows[:10])])[0][0] != (("", "x = 1"),)


@pytest.mark.parametrize("split", [True, False])
def test_headings_and_paths_are_text_too(split: bool) -> None:
    odd = "<script>alert(1)</script>&\u202e"
    hunk = ShownHunk(f"@@ -1 +1 @@ {odd}", rows([(" ", "x")]))
    file = ShownFile(index=0, path=odd, operation="modify", added=0, removed=0, lines=1)
    pieces = highlighting.highlighted("a.unknown", [hunk])
    table = rendering.file_table(file, [hunk], pieces, rendering.View(split=split), lambda _side, _line: Markup(""))
    assert "<script" not in table
    assert "\u202e" not in table
    assert table.count("&lt;script&gt;alert(1)&lt;/script&gt;&amp;") == 2


@pytest.mark.parametrize(("seconds", "marks"), [(3600, 2), (-1, 0)])
def test_after_the_deadline_lines_are_shown_without_marked_words(
    monkeypatch: pytest.MonkeyPatch, seconds: int, marks: int
) -> None:
    monkeypatch.setattr(rendering, "_MARKING_SECONDS", seconds)
    hunk = ShownHunk("@@ -1 +1 @@", rows([("-", "token = md5(user)"), ("+", "token = secrets(user)")]))
    pieces = highlighting.highlighted("a.unknown", [hunk])
    table = rendering.file_table(FILE, [hunk], pieces, rendering.View(), lambda _side, _line: Markup(""))
    assert table.count("<b>") == marks
    assert "token = md5(user)" in shown_text(table)
    assert "token = secrets(user)" in shown_text(table)
