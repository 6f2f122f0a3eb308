"""`tandem stats`."""

import argparse

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.cli.screen import Row, Span, Style
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.text import in_words

_NOTHING = "–"  # noqa: RUF001 - a dash, as in a table
_TIMES = {
    "time to claim": ("avg_time_to_claim_seconds", "time_to_claim_seconds"),
    "time to verdict": ("avg_time_to_verdict_seconds", "time_to_verdict_seconds"),
    "whole review": ("avg_review_duration_seconds", "review_duration_seconds"),
}


def register(commands: Commands) -> None:
    stats = commands.add(
        "stats", show_stats, summary="show counts, times and approval rates", parents=[broker_options()]
    )
    stats.add_argument("--project", help="only this project's reviews")
    stats.add_argument("--web", action="store_true", help="open the dashboard instead")


def show_stats(options: argparse.Namespace) -> int:
    context = Context(options)
    if options.web:
        from gsd_review_broker.cli.broker.watching import open_page

        return open_page(context, "/")
    statistics = context.call("get_review_stats", project=options.project)
    if context.wants_json:
        context.screen.json(statistics)
        return Exit.DONE
    screen = context.screen
    screen.table(("REVIEWS", ""), _counts(statistics))
    screen.say()
    screen.table(("TIMES", "MEAN", "HALF WITHIN", "95 % WITHIN"), _times(statistics))
    return Exit.DONE


def _counts(statistics: Json) -> list[Row]:
    rows: list[Row] = [[Span("all", Style.BOLD), str(statistics["total_reviews"])]]
    rows += [[name, str(number)] for name, number in statistics["by_status"].items()]
    rows += [[name, str(number)] for name, number in statistics["by_category"].items()]
    rows += [
        ["approval rate", _percent(statistics["approval_rate_pct"])],
        ["rejection rate", _percent(statistics["rejection_rate_pct"])],
        ["auto-rejected", str(statistics["auto_rejections"])],
    ]
    return rows


def _times(statistics: Json) -> list[Row]:
    rows: list[Row] = []
    for title, (mean, name) in _TIMES.items():
        spread: Json = statistics["percentiles"].get(name) or {}
        rows.append([title, _duration(statistics[mean]), _duration(spread.get("p50")), _duration(spread.get("p95"))])
    states: Json = statistics["avg_time_in_state_seconds"] or {}
    rows += [[f"in {state}", _duration(seconds), "", ""] for state, seconds in states.items()]
    return rows


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1f} %"


def _duration(seconds: float | None) -> str:
    return _NOTHING if seconds is None else in_words(seconds)
