"""Charts as SVG, drawn on the server, readable without scripts, each with a table of the same figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from gsd_review_broker.web.diff.invisible import plain

_WIDTH = 460
_ROW, _LABELS, _VALUES = 26, 150, 52
_HEIGHT, _BOTTOM, _TOP, _LEFT = 170, 22, 12, 30
_LONGEST_LABEL = 22


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: its parts in the order of the chart's kinds, and the label at its end."""

    label: str
    parts: tuple[float, ...]
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    title: str
    about: str
    svg: Markup
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def bars(rows: Sequence[Bar], *, label: str) -> Markup:
    """Horizontal, so that names have room; several parts of a row stand one after the other."""
    most = max((sum(row.parts) for row in rows), default=0) or 1
    room = _WIDTH - _LABELS - _VALUES
    drawn: list[Markup] = []
    for index, row in enumerate(rows):
        middle = index * _ROW + _ROW / 2
        name = plain(row.label)
        name = name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"
        drawn.append(
            Markup('<text x="{}" y="{:.0f}" text-anchor="end" dominant-baseline="central">{}</text>').format(
                _LABELS - 8, middle, name
            )
        )
        at = float(_LABELS)
        for kind, part in enumerate(row.parts, 1):
            width = room * part / most
            if part:
                drawn.append(
                    Markup('<rect class="bar{}" x="{:.1f}" y="{:.0f}" width="{:.1f}" height="14" rx="2"/>').format(
                        kind, at, middle - 7, max(width, 1.5)
                    )
                )
            at += width
        drawn.append(
            Markup('<text class="value" x="{:.1f}" y="{:.0f}" dominant-baseline="central">{}</text>').format(
                at + 6, middle, row.value
            )
        )
    return _svg(max(1, len(rows)) * _ROW, label, drawn)


def curve(points: Sequence[tuple[float, float]], *, label: str, first: str, last: str) -> Markup:
    """Steps over time: x between 0 and 1, y a count."""
    most = max((y for _, y in points), default=0) or 1
    right, bottom = _WIDTH - 8, _HEIGHT - _BOTTOM

    def place(x: float, y: float) -> str:
        return f"{_LEFT + x * (right - _LEFT):.1f} {bottom - y / most * (bottom - _TOP):.1f}"

    steps: list[str] = []
    before: float | None = None
    for x, y in points:
        if before is not None:
            steps.append(place(x, before))
        steps.append(place(x, y))
        before = y
    line = " L".join(steps)
    drawn = [
        Markup('<line class="axis" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>').format(_LEFT, right, bottom),
        Markup('<text x="{}" y="{}" text-anchor="end" dominant-baseline="central">{:.0f}</text>').format(
            _LEFT - 6, _TOP, most
        ),
        Markup('<text x="{}" y="{}" text-anchor="end" dominant-baseline="central">0</text>').format(_LEFT - 6, bottom),
        Markup('<text x="{}" y="{}">{}</text>').format(_LEFT, _HEIGHT - 6, first),
        Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(right, _HEIGHT - 6, last),
    ]
    if steps:
        drawn.append(Markup('<path class="area" d="M{} L{} L{} Z"/>').format(line, place(1, 0), place(0, 0)))
        drawn.append(Markup('<path class="curve" d="M{}"/>').format(line))
    return _svg(_HEIGHT, label, drawn)


def _svg(height: int, label: str, drawn: Sequence[Markup]) -> Markup:
    inner = Markup("").join(drawn)
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, height, escape(label), inner
    )
