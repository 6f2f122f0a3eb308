"""Messages and descriptions: nothing in them runs, and nothing in them hides."""

import html
import re

import pytest
from hypothesis import example, given

from gsd_review_broker.web.diff import rendered_markdown
from gsd_review_broker.web.diff.markdown import MARKS
from gsd_review_broker.web.diff.rendered_markdown import prose
from tests.support.plans import PLAN
from tests.unit.web.markdown.test_rendering import HIDES, TEXTS, Shown, code_points_for_hidden, without_space


@given(TEXTS)
@example(PLAN)
def test_every_character_of_a_message_is_shown_in_its_order_and_nothing_else_is(text: str) -> None:
    shown = Shown(prose(text), is_text=True)
    assert without_space(shown.text) == without_space(code_points_for_hidden(text))
    assert shown.strange == []
    assert all(link.startswith(("http://", "https://", "mailto:")) for link in shown.links if link)


@pytest.mark.parametrize("text", [*HIDES, "a" * 30_000 + " secret"], ids=lambda text: repr(text[:24]))
def test_what_agents_read_people_read_too(text: str) -> None:
    shown = Shown(prose(text), is_text=True)
    assert without_space(shown.text) == without_space(code_points_for_hidden(text))
    assert shown.strange == []


@pytest.mark.parametrize(
    "address", ["javascript:x", "data:text/html,x", "vbscript:x", "//x.invalid", "/r/1", "file:///x"]
)
def test_a_link_leads_to_the_web_or_is_none(address: str) -> None:
    assert "href" not in prose(f"[x]({address})")
    assert 'href="https://x.invalid" rel="noopener noreferrer nofollow"' in prose("[x](https://x.invalid)")


def test_a_message_looks_as_it_should() -> None:
    shown = prose("# Title\n\nOne *word*\nand `code`\n\n- item\n\n```py\n1 < 2\n```\n\n|a|b|\n|-|-|\n|1|2|\n")
    assert '<div role="heading" aria-level="3" class="h1"><span class="m"># </span>Title</div>' in shown
    assert '<em><span class="m">*</span>word<span class="m">*</span></em>\nand <code>' in shown
    assert '<div class="text d1"><span class="m">- </span>item</div>' in shown
    assert '<pre class="code">```py\n1 &lt; 2\n```</pre>' in shown
    assert shown.count("<td>") == 4


# What is costly.


@pytest.mark.parametrize("mark", ["[]()", "[", "*a ", "![](", "|\n", "<", "&", "`", "~~a", "_a"])
def test_a_paragraph_of_marks_is_shown_without_styles(mark: str) -> None:
    """The parser would take seconds for it, and longer the more there are."""
    text = mark * (20_000 // len(mark))
    assert len(MARKS.findall(text)) > 600
    assert not re.search(r"<(em|strong|s|a|code)\b", prose(text))


def test_a_text_that_is_too_large_is_shown_as_it_was_written() -> None:
    for text in ("*x* " * 50_000, "*x*\n" * 4_000):
        shown = prose(text)
        assert shown.startswith('<pre class="as-written">')
        assert html.unescape(re.sub(r"<[^>]*>", "", shown)) == text


def test_a_text_is_rendered_once_however_often_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    render = rendered_markdown._prose
    monkeypatch.setattr(rendered_markdown, "_prose", lambda text: rendered.append(text) or render(text))
    kept = rendered_markdown._RenderedProse()
    assert kept.get("*once*") == kept.get("*once*")
    assert rendered == ["*once*"]


def test_what_was_rendered_takes_a_bounded_amount_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered_markdown, "_MOST_KEPT", 1_000)
    kept = rendered_markdown._RenderedProse()
    for number in range(50):
        kept.get(f"text {number} " + "x" * 100)
    assert sum(len(text) + len(html) for text, html in kept._kept.items()) == kept._size <= 1_000
    assert kept.get("y" * 2_000)
    assert kept._size == 0
