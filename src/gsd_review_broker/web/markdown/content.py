"""The HTML of a block: its characters, escaped, with tags around some of them. All text passes through `visible`."""

import re
from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup

from gsd_review_broker.web.diff.invisible import visible
from gsd_review_broker.web.markdown.blocks import Block, Kind
from gsd_review_broker.web.markdown.inline import Close, Effort, Open, Part, Run, parts_of

_PIPE = re.compile(r"(?<!\\)\|")
_HTML_TAG = re.compile(r"<[^<>]*>")

# The mark at which a line begins: an element without text that carries the line's name.
LineStart = Callable[[int], str]


def text_of(block: Block, lines: Sequence[str], effort: Effort, start_of: LineStart) -> str:
    """A paragraph or heading. Marks at the edges of its lines, such as those of lists and quotes, are dim."""
    around = [line.rpartition(body) if body else (line, "", "") for line, body in zip(lines, block.bodies, strict=True)]
    body = "\n".join(block.bodies)
    html = [_mark(around[0][0])]
    number = 0
    for part in parts_of(body, effort):
        if not isinstance(part, Run):
            html.append(_tag(part))
            continue
        first, *others = body[part.start : part.stop].split("\n")
        html.append(_styled(first, part.kind))
        for text in others:
            html.append(_mark(around[number][2]))
            number += 1
            before = around[number][0]
            html.append("<br>" if before.strip() or part.kind == "br" else "\n")
            html += [start_of(number), _mark(before), _styled(text, part.kind)]
    html.append(_mark(around[-1][2]))
    return "".join(html)


def cells_of(line: str, number: int, effort: Effort) -> str:
    """One line of a table. The second line is the one of dashes: marks alone."""
    html: list[str] = []
    cells = list(_cells(line))
    for index, (pipe, text) in enumerate(cells):
        shown = _mark(text) if number == 1 else "".join(_part(text, part) for part in parts_of(text, effort))
        is_last_pipe = 0 < index == len(cells) - 1 and not text.strip()
        html.append("" if is_last_pipe else "<td>" if number else "<th>")
        html.append(_mark(pipe) + shown)
    return "".join(html)


def _cells(line: str) -> Iterator[tuple[str, str]]:
    """Each cell with the pipe before it. None is left out, however many there are."""
    start = 0
    pipe = ""
    for match in _PIPE.finditer(line):
        text = line[start : match.start()]
        if pipe or text.strip():
            yield pipe, text
            text = ""
        pipe, start = text + "|", match.end()
    yield pipe, line[start:]


def literal(line: str, kind: Kind) -> Markup:
    """A line as it is. Comments and the tags of HTML are marked: elsewhere they are not seen."""
    match kind:
        case Kind.MARKS:
            html = _mark(line)
        case Kind.COMMENT:
            html = _styled(line, "raw")
        case Kind.HTML:
            html = _with_tags(line)
        case _:
            html = visible(line)
    return Markup(html)  # noqa: S704 - of visible() text


def _with_tags(line: str) -> str:
    html: list[str] = []
    at = 0
    for match in _HTML_TAG.finditer(line):
        html += [visible(line[at : match.start()]), _styled(match.group(), "raw")]
        at = match.end()
    return "".join([*html, visible(line[at:])])


def _part(text: str, part: Part) -> str:
    return _styled(text[part.start : part.stop], part.kind) if isinstance(part, Run) else _tag(part)


def _tag(part: Open | Close) -> str:
    if isinstance(part, Close):
        return f"</{part.tag}>"
    if part.tag != "a":
        return f"<{part.tag}>"
    href = f' href="{visible(part.href)}" rel="noopener noreferrer nofollow"' if part.href else ""
    return f"<a{href}>"


def _mark(text: str) -> str:
    return _styled(text, "m")


def _styled(text: str, kind: str) -> str:
    shown = visible(text)
    return f'<span class="{kind}">{shown}</span>' if kind not in {"", "br"} and text.strip() else str(shown)
