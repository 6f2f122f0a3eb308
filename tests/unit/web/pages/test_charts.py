"""Charts: the figures behind them, and names that are only names."""

from typing import Any

from gsd_review_broker.web.pages.insights import Bar, bars, cost_of, curve, seconds

ROW: Any = {"agent": "codex", "input_tokens": 1000, "output_tokens": 200, "cost_usd": 0.25}


def test_cost_is_told_by_agent_where_it_is_reported() -> None:
    silent = {**ROW, "input_tokens": None, "output_tokens": None}
    chart = cost_of([ROW, {**ROW, "cost_usd": None}, silent, {**ROW, "agent": "claude", "output_tokens": None}])
    assert chart.rows == (("codex", "2400", "0.25"), ("claude", "1000", "0.25"))


def test_a_name_in_a_chart_is_text() -> None:
    drawn = bars([Bar("<b>\u202eevil", (1, 2), "x<y")], label='a"b')
    assert "<b>" not in drawn
    assert "\u202e" not in drawn
    assert "x&lt;y" in drawn
    assert 'aria-label="a&#34;b"' in drawn


def test_a_chart_of_nothing_is_still_one() -> None:
    assert bars([], label="nothing").startswith("<svg")
    assert curve([], label="nothing", first="", last="").startswith("<svg")


def test_a_time_that_was_not_measured_is_shown_as_none() -> None:
    assert [seconds(value) for value in (None, 0, 90)] == ["none", "0.0 s", "1 min 30 s"]
