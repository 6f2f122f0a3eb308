"""What the broker tells of itself: metrics, spans, logs."""

import http.client
import io
import json
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from gsd_review_broker.errors import StartError
from gsd_review_broker.observe import logs, telemetry
from tests.support.local import PROPOSAL, LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.processes import BrokerProcess
from tests.support.spans import recorded_spans
from tests.support.texts import GOOD, change_line
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("database_kind")


def get(port: int, path: str, *, host: str | None = None) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], answer.read().decode()
    finally:
        connection.close()


def scraped(port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    status, kind, text = get(port, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


@pytest.mark.slow
def test_metrics_tell_what_waits_and_what_was_done(process: BrokerProcess) -> None:
    client = process.client()
    first = client("create_review", **PROPOSAL)["review_id"]
    client("create_review", **{**PROPOSAL, "agent_type": "gsd-planner"})
    claim = client("claim_review", review_id=first, reviewer_id="codex")
    client("submit_verdict", review_id=first, verdict="approved", claim_generation=claim["claim_generation"])
    with pytest.raises(ToolError):
        client("claim_review", review_id="0" * 16, reviewer_id="codex")
    found = scraped(process.port)
    assert found[at("tandem_queue_depth", priority="critical")] == 1
    assert found[at("tandem_queue_depth", priority="normal")] == 0
    assert found[at("tandem_reviews", status="approved")] == 1
    assert found[at("tandem_claims_total")] == 1
    assert found[at("tandem_verdicts_total", verdict="approved")] == 1
    assert found[at("tandem_tool_duration_seconds_count", tool="create_review", outcome="ok")] == 2
    assert found[at("tandem_tool_duration_seconds_count", tool="claim_review", outcome="not_found")] == 1
    assert found[at("tandem_tool_duration_seconds_bucket", tool="create_review", outcome="ok", le="+Inf")] == 2
    assert found[at("tandem_committed_commands_total")] >= 4
    assert 1 <= found[at("tandem_commit_duration_seconds_count")] <= found[at("tandem_committed_commands_total")]
    assert found[at("tandem_writer_queue")] == 0
    assert found[at("tandem_waiting_calls")] == 0
    assert found[at("tandem_reviewer_processes", state="active")] == 0
    assert found[at("process_cpu_seconds_total")] > 0


@pytest.mark.slow
def test_metrics_are_not_for_other_sites(process: BrokerProcess) -> None:
    assert get(process.port, "/metrics", host="evil.example")[0] == 421


# Spans.


@pytest.fixture
def spans() -> Generator[InMemorySpanExporter]:
    with recorded_spans() as recorded:
        yield recorded


async def test_a_call_is_traced_down_to_its_commit(
    spans: InMemorySpanExporter, tmp_path: Path, repository: Path
) -> None:
    async with local_broker(tmp_path, root=repository) as broker:
        review_id = (await broker.create(diff=GOOD))["review_id"]
        spans.clear()
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
    found: dict[str, ReadableSpan] = {span.name: span for span in spans.get_finished_spans()}
    assert {"git.check", "store.write", "store.commit"} <= found.keys()
    commit, write = found["store.commit"], found["store.write"]
    assert commit.parent is not None
    assert commit.parent.span_id == write.context.span_id
    assert commit.attributes == {"shared_by": 1}
    assert write.start_time <= commit.end_time <= write.end_time
    told = json.dumps([dict(span.attributes or {}) for span in spans.get_finished_spans()], default=str)
    assert "deux" not in told


async def test_without_an_exporter_no_span_is_made(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any, **_named: Any) -> None:
        raise AssertionError("a span was made")

    monkeypatch.setattr(trace, "get_tracer", fail)
    await broker.create()


@pytest.mark.parametrize("environment", [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}])
def test_what_is_not_configured_is_off(environment: dict[str, str]) -> None:
    telemetry.configure_tracing(environment)
    assert not telemetry.is_tracing()


def test_an_exporter_that_is_unknown_or_missing_is_told_at_the_start() -> None:
    with pytest.raises(StartError, match="OTEL_TRACES_EXPORTER: 'jaeger' is unknown; allowed are otlp, console, none"):
        telemetry.configure_tracing({"OTEL_TRACES_EXPORTER": "jaeger"})
    with pytest.raises(StartError, match=r"install gsd-review-broker\[otel\]"):
        telemetry.configure_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})


# Logs.


async def test_a_line_says_whose_call_it_belongs_to_and_nothing_in_confidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    logs.configure(level="debug", form="json")
    logs.call_begins("claim_review", "abcdef123456")
    structlog.get_logger().info("something", diff="+secret line", token="s3cret", number=5)
    said = json.loads(written.getvalue())
    assert {name: said[name] for name in ("event", "tool", "review_id", "number", "level")} == {
        "event": "something",
        "tool": "claim_review",
        "review_id": "abcdef123456",
        "number": 5,
        "level": "info",
    }
    assert isinstance(said["request"], int)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", said["timestamp"])
    assert said["diff"] == said["token"] == "(left out)"


def test_a_log_file_is_its_owners_rotates_and_keeps_so_many(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "broker.log"
    logs.configure(level="info", form="json", file=path, file_bytes=10_000, file_count=2)
    for number in range(400):
        structlog.get_logger().info("line", number=number)
    names = sorted(found.name for found in path.parent.iterdir())
    assert names == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all(found.stat().st_size <= 10_000 for found in path.parent.iterdir())
    assert path.stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[-1]["number"] == 399


def test_a_log_file_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"log_file: .* cannot be written"):
        logs.configure(level="info", form="json", file=tmp_path / "file" / "broker.log")


@pytest.mark.slow
def test_what_is_proposed_is_in_no_log(repository: Path, own_home: Path) -> None:
    log_file = own_home / "broker.log.json"
    settings = own_home / "config" / "gsd-review-broker"
    settings.mkdir(parents=True)
    (settings / "config.json").write_text(
        json.dumps({"log_file": str(log_file), "log_format": "json", "log_level": "debug"})
    )
    with BrokerProcess(repository, home=own_home) as broker:
        client = broker.client()
        secret = "the-very-secret-line"
        proposal = {**PROPOSAL, "diff": change_line(new=secret), "description": secret}
        review_id = client("create_review", **proposal)["review_id"]
        client("claim_review", review_id=review_id, reviewer_id="codex")
    said = log_file.read_text()
    calls = [json.loads(line) for line in said.splitlines() if '"tool_called"' in line]
    assert [call["tool"] for call in calls][-2:] == ["create_review", "claim_review"]
    assert calls[-1]["review_id"] == review_id
    assert calls[-1]["outcome"] == "ok"
    assert secret not in said
    assert secret not in broker.output()
