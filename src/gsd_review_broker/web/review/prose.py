"""Markdown without HTML, and without any way to hide from people words that agents read."""

import html
import re
from collections import OrderedDict
from threading import Lock
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from gsd_review_broker.web.diff.invisible import plain, visible
from gsd_review_broker.web.markdown.inline import MARKS

_LINKS = ("http://", "https://", "mailto:")
# Below this depth the parser drops content. Longer texts, or texts with more marks, take it too long.
_DEEPEST = 20
_LONGEST = 20_000
_MOST_MARKS = 1_500
# Characters of HTML, for all texts together.
_MOST_KEPT = 4_000_000
_TAG = re.compile(r"<[^>]*>")
_ENTITY = re.compile(r"&#?\w+;")
# Digits alone may be a list's numbers, which the browser counts.
_WORD = re.compile(r"[^\W\d_]+")


class _Rendered:
    """A cache: the same conversation is rendered again with each view of its page."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Markup] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def get(self, text: str) -> Markup:
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text]
        rendered = _rendered(text)
        with self._lock:
            if text not in self._kept:
                self._kept[text] = rendered
                self._size += len(text) + len(rendered)
            while self._size > _MOST_KEPT:
                oldest, html_of_it = self._kept.popitem(last=False)
                self._size -= len(oldest) + len(html_of_it)
        return rendered


_KEPT = _Rendered()


def markdown(text: str) -> Markup:
    """Text that markdown cannot show completely is shown as it was written. Slow: call it in a thread."""
    return _KEPT.get(text)


def _rendered(text: str) -> Markup:
    if len(text) <= _LONGEST and sum(1 for _ in MARKS.finditer(text)) <= _MOST_MARKS:
        environment: dict[str, Any] = {}
        tokens = _MARKDOWN.parse(plain(text), environment)
        rendered = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, environment)
        if all(token.level < _DEEPEST - 1 for token in tokens) and _has_all_words(plain(text), rendered):
            # Every text is escaped by the renderer, and HTML is off.
            return Markup(rendered)  # noqa: S704 - every part of it was escaped
    return Markup('<pre class="as-written">{}</pre>').format(visible(text))


def _has_all_words(text: str, rendered: str) -> bool:
    """A table row with too many cells loses the last ones; this notices that and every similar loss."""
    shown = html.unescape(_TAG.sub("", rendered))
    return all(word in shown for word in set(_WORD.findall(_ENTITY.sub(" ", text))))


def _is_allowed(url: str) -> bool:
    return url.strip().lower().startswith(_LINKS)


def _link_open(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    if tokens[index].attrGet("title"):
        tokens[index].attrSet("title", plain(tokens[index].attrGet("title")))
    # The parser accepts an empty target, which would lead to this same page.
    if not _is_allowed(str(tokens[index].attrGet("href") or "")):
        tokens[index].attrs.pop("href", None)
    return self.renderToken(tokens, index, options, env)


def _link_close(_self: Any, tokens: Any, index: int, _options: Any, _env: Any) -> str:
    """Show the target, unless it is already the link's text."""
    start = next(at for at in range(index - 1, -1, -1) if tokens[at].type == "link_open")
    address = str(tokens[start].attrGet("href") or "")
    title = str(tokens[start].attrGet("title") or "")
    label = "".join(token.content for token in tokens[start + 1 : index])
    more = " ".join(word for word in (address if label != address else "", title) if word)
    return str(Markup("</a>") + (Markup(' <span class="to">({})</span>').format(plain(more)) if more else ""))


def _image(_self: Any, tokens: Any, index: int, _options: Any, _env: Any) -> str:
    """No picture is fetched from elsewhere: its address and name are shown."""
    token = tokens[index]
    words = [token.content or "picture", str(token.attrGet("src") or ""), str(token.attrGet("title") or "")]
    return str(Markup('<span class="to">[{}]</span>').format(plain(": ".join(word for word in words if word))))


def _fence(_self: Any, tokens: Any, index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    about = Markup('<p class="to">{}</p>').format(token.info.strip()) if token.info.strip() else Markup("")
    return str(about + Markup("<pre><code>{}</code></pre>\n").format(escape(token.content)))


def _text(_self: Any, tokens: Any, index: int, _options: Any, _env: Any) -> str:
    """An entity such as `&#8203;` may stand for a character that nobody sees."""
    return str(visible(tokens[index].content))


def _make() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True, "maxNesting": _DEEPEST})
    # Definitions of links would vanish from the page.
    parser.enable(["table", "strikethrough"]).disable("reference")
    parser.validateLink = _is_allowed
    rules = {"link_open": _link_open, "link_close": _link_close, "image": _image, "fence": _fence, "text": _text}
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    return parser


_MARKDOWN = _make()
