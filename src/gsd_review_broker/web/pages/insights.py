"""`/insights`: speed, frequency and quality; each chart with its figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gsd_review_broker.domain.text import in_words
from gsd_review_broker.domain.words import Status
from gsd_review_broker.service.queries.review_page import QueuePoints
from gsd_review_broker.service.wire.broker import ReviewerRow
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.service.wire.statistics import PairVerdicts, Percentiles, ReviewerVerdicts, ReviewStats
from gsd_review_broker.web.site import Dashboard
from gsd_review_broker.web.text import STATUS_WORDS, plain

_WIDTH = 460
_ROW, _LABELS, _VALUES = 26, 150, 52
_HEIGHT, _BOTTOM, _TOP, _LEFT = 170, 22, 12, 30
_LONGEST_LABEL = 22
_MOST_ROWS = 10
_NOTHING = "none"
_STATE_WORDS = {name: words for name, words in STATUS_WORDS.items() if name != Status.CLOSED}


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


def insights_routes(site: Dashboard) -> list[Route]:
    async def page(request: Request) -> Response:
        project = request.query_params.get("project", "").strip()[:200] or None
        stats = await site.broker.review_queries.stats(project=project)
        history = await site.broker.page_queries.queue_history()
        started = (await site.broker.pool.listed())["reviewers"]
        charts = _times(stats), _states(stats), _queue(history), _reviewers(stats), _pairs(stats), cost_of(started)
        facts = {"project": project or "", "stats": stats, "charts": charts, "seconds": seconds}
        return await site.page(request, "insights.html", facts)

    return [site.get("/insights", page)]


def seconds(value: float | None) -> str:
    return _NOTHING if value is None else in_words(value)


def _times(stats: ReviewStats) -> Chart:
    spreads = stats["percentiles"]
    named: list[tuple[str, Percentiles, float | None]] = [
        ("to claim", spreads["time_to_claim_seconds"], stats["avg_time_to_claim_seconds"]),
        ("to verdict", spreads["time_to_verdict_seconds"], stats["avg_time_to_verdict_seconds"]),
        ("to close", spreads["review_duration_seconds"], stats["avg_review_duration_seconds"]),
    ]
    rows = [
        Bar(f"{name}, {which}", (spread[which] or 0,), seconds(spread[which]))
        for name, spread, _ in named
        for which in ("p50", "p95")
    ]
    return Chart(
        title="How long it takes",
        about="from the proposal; median and 95th percentile",
        svg=bars(rows, label="Time from the proposal to claim, verdict and end"),
        columns=("from the proposal", "half are quicker (p50)", "95 of 100 are (p95)", "average"),
        rows=tuple((name, seconds(s["p50"]), seconds(s["p95"]), seconds(average)) for name, s, average in named),
    )


def _states(stats: ReviewStats) -> Chart:
    average = stats["avg_time_in_state_seconds"]
    rows = [Bar(words, (average.get(name) or 0,), seconds(average.get(name))) for name, words in _STATE_WORDS.items()]
    return Chart(
        title="Where the time goes",
        about="average time in each state",
        svg=bars(rows, label="Average time in each state"),
        columns=("state", "average"),
        rows=tuple((row.label, row.value) for row in rows),
    )


def _queue(points: QueuePoints) -> Chart:
    start, end = points[0][0], points[-1][0]
    wide = max(1, end - start)
    shown = [((at - start) / wide, float(count)) for at, count in points]
    first, last = iso(start)[:16].replace("T", " "), "now"
    return Chart(
        title="The queue over time",
        about="reviews waiting for a reviewer, as far back as the last events go",
        svg=curve(shown, label="Pending reviews over time", first=first, last=last),
        columns=("when (UTC)", "pending"),
        rows=tuple((iso(at)[:19].replace("T", " "), str(count)) for at, count in points[-_MOST_ROWS:]),
    )


def _reviewers(stats: ReviewStats) -> Chart:
    judged = stats["by_reviewer"][:_MOST_ROWS]
    return Chart(
        title="Verdicts by reviewer",
        about="approved, then changes requested; at the end how many of them were approvals",
        svg=_verdicts([(row["reviewer"], row) for row in judged], "reviewer"),
        columns=("reviewer", "approved", "changes requested", "comments"),
        rows=tuple((row["reviewer"], *_counts(row), str(row["comment"])) for row in judged),
    )


def _pairs(stats: ReviewStats) -> Chart:
    judged = stats["by_pair"][:_MOST_ROWS]
    return Chart(
        title="Verdicts by pair",
        about="who proposed and who judged: approved, then changes requested",
        svg=_verdicts(
            [(f"{row['proposer']} → {row['reviewer']}", row) for row in judged], "pair of proposer and reviewer"
        ),
        columns=("proposer", "reviewer", "approved", "changes requested"),
        rows=tuple((row["proposer"], row["reviewer"], *_counts(row)) for row in judged),
    )


def _verdicts(named: Sequence[tuple[str, ReviewerVerdicts | PairVerdicts]], by: str) -> Markup:
    rows = [
        Bar(name, (row["approved"], row["changes_requested"]), _rate(row["approved"], row["changes_requested"]))
        for name, row in named
    ]
    return bars(rows, label=f"Approvals and requests for changes by {by}")


def _counts(row: ReviewerVerdicts | PairVerdicts) -> tuple[str, str]:
    return str(row["approved"]), str(row["changes_requested"])


def cost_of(started: Sequence[ReviewerRow]) -> Chart:
    """Chart the cost by agent, for the agents that report it."""
    tokens: Counter[str] = Counter()
    dollars: dict[str, float] = {}
    for row in started:
        if row["input_tokens"] is None and row["output_tokens"] is None:
            continue
        tokens[row["agent"]] += (row["input_tokens"] or 0) + (row["output_tokens"] or 0)
        if row["cost_usd"] is not None:
            dollars[row["agent"]] = dollars.get(row["agent"], 0.0) + row["cost_usd"]
    totals = tokens.most_common(_MOST_ROWS)
    rows = [Bar(agent, (count,), f"{count:,}") for agent, count in totals]
    return Chart(
        title="What it costs",
        about="tokens of running and recently stopped reviewers, by agent, as they report them",
        svg=bars(rows, label="Tokens by agent"),
        columns=("agent", "tokens", "USD"),
        rows=tuple((agent, str(count), f"{dollars[agent]:.2f}" if agent in dollars else "") for agent, count in totals),
    )


def _rate(approved: int, others: int) -> str:
    return f"{100 * approved / (approved + others):.0f} %" if approved + others else _NOTHING
