"""Counts, rates and durations in Prometheus' format.

It is imported at the first scrape: the library would take a tenth of the broker's start.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from gsd_review_broker import __version__
from gsd_review_broker.observe.telemetry import BOUNDS, Meters, Timing
from gsd_review_broker.service.wire.broker import BrokerStatus
from gsd_review_broker.service.wire.statistics import ReviewStats


def exposition(status: BrokerStatus, stats: ReviewStats, meters: Meters) -> bytes:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Collected(status, stats, meters))
    return generate_latest(registry)


class _Collected:
    def __init__(self, status: BrokerStatus, stats: ReviewStats, meters: Meters) -> None:
        self._status = status
        self._stats = stats
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        yield from self._of_reviews()
        yield from self._of_the_broker()

    def _of_reviews(self) -> Iterator[Metric]:
        queue = GaugeMetricFamily("tandem_queue_depth", "Pending reviews.", labels=["priority"])
        for priority, depth in self._status["queue"].items():
            queue.add_metric([priority], depth)
        reviews = GaugeMetricFamily("tandem_reviews", "Reviews by their state, archived ones too.", labels=["status"])
        for name, count in self._stats["by_status"].items():
            reviews.add_metric([name], count)
        verdicts = CounterMetricFamily("tandem_verdicts", "Verdicts that reviewers gave.", labels=["verdict"])
        for verdict, number in self._stats["verdicts"].items():
            verdicts.add_metric([verdict], number)
        yield from (queue, reviews, verdicts)
        for name, help_, value in (
            ("tandem_reviews_created", "Reviews ever created.", self._stats["total_reviews"]),
            ("tandem_claims", "Claims that began.", self._stats["claims"]),
            ("tandem_reclaims", "Claims that were released or expired without a verdict.", self._stats["reclaims"]),
            ("tandem_auto_rejections", "Diffs that did not apply.", self._stats["auto_rejections"]),
            ("tandem_refused_verdicts", "Stale or foreign verdicts.", self._stats["refused_verdicts"]),
        ):
            yield CounterMetricFamily(name, help_, value=value)

    def _of_the_broker(self) -> Iterator[Metric]:
        yield InfoMetricFamily("tandem_broker", "What runs here.", value={"version": __version__})
        yield GaugeMetricFamily("tandem_uptime_seconds", "Since it started.", value=self._status["uptime_seconds"])
        yield GaugeMetricFamily("tandem_waiting_calls", "Calls that are waiting.", value=self._status["waiting"])
        processes = GaugeMetricFamily("tandem_reviewer_processes", "Reviewers the broker started.", labels=["state"])
        states = [row["state"] for row in self._status["reviewers"]]
        for state in ("active", "draining"):
            processes.add_metric([state], states.count(state))
        yield processes
        tools = HistogramMetricFamily(
            "tandem_tool_duration_seconds",
            "From a call's arrival to its answer; the time that a waiting call waited is included.",
            labels=["tool", "outcome"],
        )
        for (tool, outcome), timing in sorted(self._meters.tools.items()):
            tools.add_metric([tool, outcome], _buckets(timing), timing.total)
        commits = HistogramMetricFamily("tandem_commit_duration_seconds", "One commit, which several commands share.")
        commits.add_metric([], _buckets(self._meters.commits), self._meters.commits.total)
        yield from (tools, commits)
        yield CounterMetricFamily("tandem_committed_commands", "Commands on disk.", value=self._meters.commands)
        yield GaugeMetricFamily(
            "tandem_writer_queue", "Commands that are waiting for the writer.", value=self._meters.queued
        )


def _buckets(timing: Timing) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus expects them."""
    seen, rows = 0, list[tuple[str, float]]()
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), timing.counts, strict=True):
        seen += count
        rows.append((bound, seen))
    return rows
