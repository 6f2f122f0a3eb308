"""A rendered Markdown file: every character of it is on the page, in its order, and none of them is markup."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it.parser_inline import ParserInline

from gsd_review_broker.domain.text import hidden_in
from gsd_review_broker.web.diff import rendered_markdown
from gsd_review_broker.web.diff.document import Row, ShownFile, ShownHunk
from gsd_review_broker.web.diff.markdown import MARKS
from gsd_review_broker.web.diff.rendering import View
from gsd_review_broker.web.text import code_point
from tests.support.plans import PLAN

TAGS = {
    "p",
    "pre",
    "table",
    "caption",
    "tbody",
    "tr",
    "td",
    "th",
    "a",
    "span",
    "em",
    "strong",
    "s",
    "code",
    "br",
    "div",
}
KINDS = r"blank|front|code|html|comment|marks|(heading|text)( d\d)?"
CLASSES = re.compile(
    rf"diff read|text( d\d)?|code|html|comment|marks|as-written|vh|cells|[xadz]|[xadz] ({KINDS})|[ncm]|to|raw|hid|h\d?"
)
HIDES = (
    "<!-- secret -->",
    "before <!-- secret --> after",
    "<!-- one\nsecret\n\nstill secret -->",
    "<div hidden>secret</div>",
    "<script>secret</script>\n\n<style>secret</style>",
    "<details><summary>x</summary>\n\nsecret\n</details>",
    "a <span title='secret'>b</span>",
    "<?secret?>\n<!DOCTYPE secret>\n<![CDATA[secret]]>",
    "[words](http://x.invalid/secret 'title')",
    "[words](<http://x.invalid/se cret>)",
    "[words][label]\n\n[label]: http://x.invalid/secret (title)",
    "[unused]: http://x.invalid 'secret'",
    "[^1]: secret\n\ntext[^1]",
    "![alt](http://x.invalid/secret.png 'title')",
    "[![alt](secret.png)](http://x.invalid)",
    "&#8203;&zwj;&#x202e;&nbsp;&lt;secret&gt;",
    "a\u200bb\u202ec\u2066d\ufeff\u00ad\U000e0041",
    "<http://x.invalid/secret> <secret@x.invalid>",
    "|a|b|\n|-|-|\n|1|2|secret|\n|3|\n||secret",
    "a\\|b | c\n--- | ---\n`x\\|y` | **z**",
    "> " * 1_000 + "secret",
    "> " * 1_000 + "secret\n\n-\n\n>\n\nafter",
    "~~secret~~~ after",
    "".join("  " * depth + "- a\n" for depth in range(60)) + "  " * 60 + "- secret",
    "x" * 20_000 + " secret " + "*" * 5_000,
    "```secret info\ncode\n```\n~~~\nnot closed",
    "    indented\tsecret\n\n\ttab",
    "# # secret # #\n\nsetext\nsecret\n===\n\n#\n##\tx",
    "***\n- - -\n___\n-\n*\n1.\n>",
    "~~~~~a~~ ~~~b~ *~c*~ **a*b**c*",
    "line\\\nbreak  \nbreak",
    "---\nsecret: yes\n---\n---\nnot front matter",
    "---\nsecret: never closed",
    "\x00\x0b\x0c\x1f\x85\u2028\r a\rb",
    "a\n\r\n\nb\n\u2028\n\x1c\n\x85 \n",
    "1986. A year\n1) x\n   2) y\n+ z",
    "`` ` `` ``` `unclosed",
    "a<br>b<b>c</b>&copy;",
)


def file_of(operation: str = "create") -> ShownFile:
    return ShownFile(index=0, path="p.md", operation=operation, added=1, removed=0, lines=1)


def hunk_of(text: str) -> ShownHunk:
    return ShownHunk("", tuple(Row("+", line, None, number) for number, line in enumerate(text.split("\n"), 1)))


def rendered(text: str) -> str:
    return rendered_markdown.page(
        file_of(), [hunk_of(text)], View(comment_link="?at="), lambda *_: "", is_complete=True
    )


class Shown(HTMLParser):
    """The text that a browser would show, without the numbers of the lines and the notes around it.

    `is_text`: there are no such columns.
    """

    def __init__(self, html: str, *, is_text: bool = False) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.strange: list[str] = []
        self.links: list[str] = []
        self._counts = is_text
        self.feed(str(html))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in {"td", "th"}:
            self._counts = named.get("class") != "n" and "colspan" not in named
        if tag == "a" and "rel" in named:
            self.links.append(named.get("href") or "")
        allowed = {"id", "class", "href", "rel", "title", "colspan", "role", "aria-level"}
        if tag not in TAGS or set(named) - allowed or not CLASSES.fullmatch(named.get("class") or "n"):
            self.strange.append(f"{tag} {named}")

    def handle_data(self, data: str) -> None:
        self.text += data if self._counts else ""

    def handle_comment(self, data: str) -> None:
        self.strange.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def without_space(text: str) -> str:
    return "".join(text.split())


def expected(text: str) -> str:
    """Each character; the ones that nobody would see by their code points. Lines of Windows are said once to be so."""
    lines = text.split("\n")
    if all(line.endswith("\r") for line in lines):
        text = "\n".join(line.removesuffix("\r") for line in lines)
    return without_space(code_points_for_hidden(text))


def code_points_for_hidden(text: str) -> str:
    return "".join(code_point(one) if hidden_in(one, is_block=True) else one for one in text)


PIECES = st.sampled_from(
    [
        *("word", "word", "ü", "*", "**", "_", "`", "```", "~~", "~", "\n", "\n\n", "> ", "- ", "1. ", "# ", "\t"),
        *("[", "](", ")", "![", "[x]: ", "<b>", "</b>", "<!--", "-->", "<", ">", "|", "|-|-|", "\n|-|-|\n", "---"),
        *("&amp;", "&#8203;", "\\", "http://x.invalid", "<http://x.invalid>", "javascript:x", "\u202e", "\u200b"),
        *("\n---\n", "\n===\n", "\n```\n", "\n\n<task>\n", "'", '"', " ", "    ", "\x00", "\u2028", "\x85", "\r"),
        *("[ ] ", "  \n", "==="),
    ]
)
TEXTS = st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=80)


@given(TEXTS)
@example(PLAN)
def test_every_character_of_the_file_is_shown_in_its_order_and_nothing_else_is(text: str) -> None:
    shown = Shown(rendered(text))
    assert without_space(shown.text) == expected(text)
    assert shown.strange == []
    assert all(link.startswith(("http://", "https://", "mailto:")) for link in shown.links if link)


@pytest.mark.parametrize("text", HIDES, ids=lambda text: repr(text[:24]))
def test_what_markdown_hides_is_shown(text: str) -> None:
    shown = Shown(rendered(text))
    assert without_space(shown.text) == expected(text)
    assert shown.strange == []


@given(st.lists(st.tuples(st.sampled_from(" +-"), PIECES.map(lambda piece: piece.replace("\n", ""))), max_size=40))
def test_of_a_changed_file_both_sides_are_shown(changes: list[tuple[str, str]]) -> None:
    old = new = 0
    rows: list[Row] = []
    for kind, text in changes:
        old, new = old + (kind != "+"), new + (kind != "-")
        rows.append(Row(kind, f"{text}{len(rows)}x", old if kind != "+" else None, new if kind != "-" else None))
    page = rendered_markdown.page(
        file_of("modify"), [ShownHunk("", tuple(rows))], View(), lambda *_: "", is_complete=False
    )
    shown = without_space(Shown(page).text)
    assert len(shown) == sum(len(expected(row.text)) for row in rows)
    assert all(expected(row.text) in shown for row in rows)
    new_side = [row.text for row in rows if row.kind != "-"]
    assert _is_in_order([expected(text) for text in new_side], shown)


def _is_in_order(texts: list[str], shown: str) -> bool:
    at = 0
    for text in texts:
        at = shown.find(text, at)
        if at < 0:
            return False
        at += len(text)
    return True


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("[x](https://x.invalid/a)", ["https://x.invalid/a"]),
        ("<https://x.invalid>", ["https://x.invalid"]),
        ("[x](https&#58;//x.invalid)", []),
        ("[https://good.invalid](https://good&#46;invalid.evil)", []),
        ("[x](https://x.invalid/\u202egpj)", []),
        ("[x](https://xn--\u0430.invalid)", []),
        ("[x](javascript:x) [x](JaVaScRiPt:x) [x](data:text/html,x) [x](//x.invalid) [x](/r/1) [x]()", []),
        ("![x](https://x.invalid/a.png)", []),
    ],
)
def test_a_link_leads_where_it_says_or_nowhere(text: str, links: list[str]) -> None:
    assert [link for link in Shown(rendered(text)).links if link] == links


def test_html_inside_a_paragraph_is_marked() -> None:
    page = rendered("a <b>c</b> <!-- d -->")
    assert re.findall(r'<span class="raw">([^<]*)</span>', page) == ["&lt;b&gt;", "&lt;/b&gt;", "&lt;!-- d --&gt;"]


@pytest.mark.parametrize("mark", ["*", "[", "[]()", "`a", "<a ", "_b*c "])
def test_a_paragraph_of_marks_and_a_page_of_them_are_not_parsed(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser's time grows with the square of the marks in a text."""
    squares: list[int] = []
    parse = ParserInline.parse

    def counting(parser: ParserInline, src: str, *more: Any) -> Any:
        squares.append(len(MARKS.findall(src)) ** 2)
        return parse(parser, src, *more)

    monkeypatch.setattr(ParserInline, "parse", counting)
    for text in (mark * 5_000, "\n\n".join([mark * 150] * 200)):
        squares.clear()
        shown = Shown(rendered(text))
        assert without_space(shown.text) == expected(text)
        # An image's text is parsed on its own, too.
        assert sum(squares) <= 2_000_000
        assert max(squares, default=0) <= 600**2


def test_paragraphs_look_as_they_should() -> None:
    page = rendered(PLAN)
    assert '<div role="heading" aria-level="3" class="h1"><span class="m"># </span>Tokens' in page
    assert '<strong><span class="m">*</span>MD5<span class="m">*</span></strong>' in page
    assert '<code><span class="m">`</span>secrets<span class="m">`</span></code>' in page
    assert 'class="x text d2"' in page
    assert page.count('class="x front"') == 6
    assert page.count("<th>") == 3
    assert page.count('class="x html"') == 7
    assert page.count('class="x comment"') == 1
    # Each line has its name, so that a remark on it has a place.
    names = re.findall(r'id="f0n(\d+)"', page)
    assert sorted(map(int, names)) == list(range(1, PLAN.count("\n") + 2))


def test_lines_of_windows_are_rendered_and_said_to_be_so() -> None:
    page = rendered(PLAN.replace("\n", "\r\n") + "\r")
    assert "Each line ends with a carriage return" in page
    assert "U+000D" not in page
    assert "<strong>" in page
    # Where only some lines end so, each is marked.
    assert rendered("a\r\nb").count(">U+000D<") == 1
