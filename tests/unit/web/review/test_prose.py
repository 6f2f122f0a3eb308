"""Markdown: nothing in it runs, and nothing in it hides."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.web.review import prose
from gsd_review_broker.web.review.prose import markdown

TAGS = {
    *("p", "em", "strong", "a", "span", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "br", "s"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
PIECES = st.sampled_from(
    [
        *(
            "word",
            "word",
            "*",
            "**",
            "`",
            "```",
            "\n",
            "\n\n",
            "> ",
            "- ",
            "1. ",
            "# ",
            "[",
            "](",
            ")",
            "![",
            "<b>",
            "|",
        ),
        *("|-|", "~~", "&amp;", "http://x.invalid", "javascript:x", "    ", "\\", "[a]: http://y.invalid", "<!--"),
        *("-->", "\u202e"),
    ]
)


def words_in(text: str) -> list[str]:
    return re.findall(r"word\d+", text)


@given(st.lists(PIECES, max_size=60))
def test_only_plain_tags_come_out_and_every_word_is_shown(pieces: list[str]) -> None:
    numbered = "".join(f"word{number} " if piece == "word" else piece for number, piece in enumerate(pieces))
    shown = markdown(numbered)
    assert set(re.findall(r"<([a-z0-9]+)", shown)) <= TAGS
    assert all(link.startswith(("http://", "https://", "mailto:")) for link in re.findall(r'href="([^"]*)"', shown))
    assert "\u202e" not in shown
    seen = html.unescape(re.sub(r"<[^>]*>", "", shown))
    assert sorted(set(words_in(numbered))) == sorted(set(words_in(seen)))


@pytest.mark.parametrize(
    "text",
    [
        "> " * 100 + "secret",
        "".join("  " * depth + "- a\n" for depth in range(60)) + "  " * 60 + "- secret",
        "[label]: http://x.invalid 'secret'",
        "[words](http://x.invalid/secret)",
        "[words](http://x.invalid 'secret')",
        "![words](http://x.invalid/secret.png)",
        "```python secret\ncode\n```",
        "<!-- secret -->",
        "|a|b|\n|-|-|\n|1|2|secret|",
        "<span title='secret'>",
        "a" * 30_000 + " secret",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_agents_read_people_read_too(text: str) -> None:
    assert "secret" in html.unescape(re.sub(r"<[^>]*>", "", markdown(text)))


@pytest.mark.parametrize(
    "address", ["javascript:x", "data:text/html,x", "vbscript:x", "//x.invalid", "/r/1", "file:///x"]
)
def test_a_link_leads_to_the_web_or_is_none(address: str) -> None:
    assert "<a " not in markdown(f"[x]({address})")
    assert 'rel="noopener noreferrer nofollow"' in markdown("[x](https://x.invalid)")


@pytest.mark.parametrize("entity", ["&#8203;", "&#x202E;", "&zwj;", "&shy;"])
def test_an_entity_for_a_character_that_nobody_sees_is_framed(entity: str) -> None:
    target = f"https://x.invalid '{entity}'"
    for text in (f"a{entity}b", f"# [a{entity}b](b)", f"[a]({target})", f"![a]({target})"):
        shown = markdown(text)
        assert html.unescape(entity) not in html.unescape(shown)
        assert f"U+{ord(html.unescape(entity)):04X}" in shown


# What is costly.


@pytest.mark.parametrize("mark", ["[]()", "[", "*a ", "![](", "|\n", "<", "&", "`", "~~a", "_a"])
def test_a_text_of_marks_is_shown_as_it_was_written(mark: str) -> None:
    """The parser would take seconds for it, and longer the more there are."""
    text = "x |\n-|-\n" + mark * (20_000 // len(mark) - 10)
    assert prose.markdown(text).startswith('<pre class="as-written">')


def test_a_text_is_rendered_once_however_often_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    render = prose._rendered
    monkeypatch.setattr(prose, "_rendered", lambda text: rendered.append(text) or render(text))
    kept = prose._Rendered()
    assert kept.get("*once*") == kept.get("*once*") == "<p><em>once</em></p>\n"
    assert rendered == ["*once*"]


def test_what_was_rendered_takes_a_bounded_amount_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "_MOST_KEPT", 1_000)
    kept = prose._Rendered()
    for number in range(50):
        kept.get(f"text {number} " + "x" * 100)
    assert sum(len(text) + len(html) for text, html in kept._kept.items()) == kept._size <= 1_000
    assert kept.get("y" * 2_000)
    assert kept._size == 0
