"""OpenTelemetry spans from a tool's call to its commit, if the user has configured an exporter; nothing otherwise.

The usual variables apply: OTEL_TRACES_EXPORTER (otlp or console) or OTEL_EXPORTER_OTLP_ENDPOINT, and those that the
exporter itself reads. Alternatively start the broker under `opentelemetry-instrument`, which brings its own provider.
"""

import importlib
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gsd_review_broker.errors import StartError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"
_SERVICE = "gsd-review-broker"
_NOTHING: AbstractContextManager[None] = nullcontext()


def is_on() -> bool:
    # Whoever collects spans has imported it; without them it costs nothing at the start.
    trace: Any = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def span(name: str, **attributes: Any) -> AbstractContextManager[Any]:
    if not is_on():
        return _NOTHING
    from opentelemetry import trace  # noqa: PLC0415 - imported already, see is_on

    return trace.get_tracer(_SERVICE).start_as_current_span(name, attributes=attributes)


def past_span(name: str, began: int, ended: int, **attributes: Any) -> None:
    """A span that was over before its parent was known. Times are nanoseconds since 1970."""
    from opentelemetry import trace  # noqa: PLC0415 - imported already, see is_on

    trace.get_tracer(_SERVICE).start_span(name, start_time=began, attributes=attributes).end(end_time=ended)


def configure(environment: Mapping[str, str]) -> None:
    """Called once, at start. Raises StartError if the requested exporter is not installed."""
    if environment.get(_PROVIDER):
        # OpenTelemetry loads it at the first question.
        importlib.import_module("opentelemetry.trace")
    wanted = environment.get("OTEL_TRACES_EXPORTER") or (
        "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    )
    if wanted == "none" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or is_on():
        return
    if wanted not in {"otlp", "console"}:
        raise StartError(f"environment: OTEL_TRACES_EXPORTER: {wanted!r} is unknown; allowed are otlp, console, none.")
    try:
        _start(wanted)
    except ImportError as error:
        raise StartError(
            f"environment: OTEL_TRACES_EXPORTER: {wanted} needs a package that is not installed ({error.name}); "
            "install gsd-review-broker[otel], or set it to none."
        ) from error


def _start(wanted: str) -> None:
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
