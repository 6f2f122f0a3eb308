"""Structured logs on standard error: an event's name with keys. No diff's text ever goes into one."""

import contextlib
import logging
import sys
from typing import Any, TextIO, cast

import structlog


class _Unfailing:
    """Standard error, without its failures: a full disk must stop no work that only wanted to be told of."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return sys.stderr.write(text)
        return 0

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure(*, level: str, form: str) -> None:
    number = getattr(logging, level.upper())
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # A richer one would print local variables, and with them what was proposed.
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if form == "json" else structlog.processors.StackInfoRenderer(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Unfailing())),
        cache_logger_on_first_use=True,
    )
    # The libraries' own lines are for those who ask for debug.
    logging.basicConfig(level=logging.DEBUG if level == "debug" else logging.ERROR, stream=sys.stderr)
