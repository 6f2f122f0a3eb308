"""What the running broker measures of itself: plain numbers, and OpenTelemetry spans if an exporter is configured.

The usual variables apply: OTEL_TRACES_EXPORTER (otlp or console) or OTEL_EXPORTER_OTLP_ENDPOINT, and those that the
exporter itself reads. Alternatively start the broker under `opentelemetry-instrument`, which brings its own provider.
"""

import importlib
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from gsd_review_broker.errors import StartError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"
_SERVICE = "gsd-review-broker"
_NOTHING: AbstractContextManager[None] = nullcontext()


def is_tracing() -> bool:
    # A process that collects spans has imported it; others do not pay for it at the start.
    trace: Any = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def span(name: str, **attributes: Any) -> AbstractContextManager[Any]:
    if not is_tracing():
        return _NOTHING
    from opentelemetry import trace  # noqa: PLC0415 - imported already, see is_on

    return trace.get_tracer(_SERVICE).start_as_current_span(name, attributes=attributes)


def past_span(name: str, began: int, ended: int, **attributes: Any) -> None:
    """Record a span that was over before its parent was known. Times are nanoseconds since 1970."""
    from opentelemetry import trace  # noqa: PLC0415 - imported already, see is_on

    trace.get_tracer(_SERVICE).start_span(name, start_time=began, attributes=attributes).end(end_time=ended)


def configure_tracing(environment: Mapping[str, str]) -> None:
    """Called once, at start. Raises StartError if the requested exporter is not installed."""
    if environment.get(_PROVIDER):
        # OpenTelemetry loads it at the first question.
        importlib.import_module("opentelemetry.trace")
    wanted = environment.get("OTEL_TRACES_EXPORTER") or (
        "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    )
    if wanted == "none" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or is_tracing():
        return
    if wanted not in {"otlp", "console"}:
        raise StartError(f"environment: OTEL_TRACES_EXPORTER: {wanted!r} is unknown; allowed are otlp, console, none.")
    try:
        _start_tracing(wanted)
    except ImportError as error:
        raise StartError(
            f"environment: OTEL_TRACES_EXPORTER: {wanted} needs a package that is not installed ({error.name}); "
            "install gsd-review-broker[otel], or set it to none."
        ) from error


def _start_tracing(wanted: str) -> None:
    # Imported here: without tracing it costs nothing and need not be installed.
    from opentelemetry import trace  # noqa: PLC0415 - an extra that is imported where it is configured
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415 - an extra that is imported where it is configured
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra that is imported where it is configured
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter  # noqa: PLC0415 - an extra that is imported where it is configured

    exporter: SpanExporter
    if wanted == "console":
        exporter = ConsoleSpanExporter()
    else:
        # Imported by name: it is an extra, and not installed where types are checked.
        exporter = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter()
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: _SERVICE}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


# Seconds. A wait may take minutes; the last bucket has no bound.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 240.0)


@dataclass(slots=True)
class Timing:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class Meters:
    # By tool and outcome: "ok", or the error's code.
    tools: dict[tuple[str, str], Timing] = field(default_factory=lambda: defaultdict[tuple[str, str], Timing](Timing))
    commits: Timing = field(default_factory=Timing)
    # Commands that were committed; divided by the commits, how many shared one.
    commands: int = 0
    # Commands that are queued now.
    queued: int = 0
