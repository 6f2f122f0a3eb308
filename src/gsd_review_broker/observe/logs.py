"""Structured logs: an event's name with keys, on standard error or in a rotating file.

They never contain the text of a diff or a secret.
"""

import contextlib
import itertools
import logging
import os
import sys
from contextvars import ContextVar
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict

from gsd_review_broker.errors import StartError
from gsd_review_broker.files import open_private

# The tool call that is being answered: its number, the tool, the review it names.
_CALL: ContextVar[tuple[int, str, Any] | None] = ContextVar("call", default=None)
_numbers = itertools.count(1)
# Keys that hold secrets, in every event.
_LEFT_OUT = frozenset({"diff", "counter_patch", "body", "prompt", "token", "authorization", "password", "secret"})
_LONGEST_ID = 64
_shown_from = logging.NOTSET


def shows_debug() -> bool:
    """Asked in every call: a logger takes longer to find out by itself."""
    return _shown_from <= logging.DEBUG


def call_begins(tool: str, review_id: Any) -> None:
    """Everything that this task logs from here on belongs to this call."""
    _CALL.set((next(_numbers), tool, review_id))


def _with_call(_logger: Any, _method: str, event: EventDict) -> EventDict:
    call = _CALL.get()
    if call is not None:
        number, tool, review_id = call
        event.setdefault("request", number)
        event.setdefault("tool", tool)
        if isinstance(review_id, str):
            event.setdefault("review_id", review_id[:_LONGEST_ID])
    return event


def _without_contents(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for name in _LEFT_OUT & event.keys():
        event[name] = "(left out)"
    return event


class _Unfailing:
    """An output that hides its own failures: a full disk must not stop the work that is being logged."""

    def __init__(self, target: TextIO | None = None) -> None:
        self._target = target

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return (self._target or sys.stderr).write(text)
        return 0

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            (self._target or sys.stderr).flush()


class _RotatingFile(RotatingFileHandler):
    """The standard library's rotation, as a file that takes whole lines. Only its owner can read it."""

    def __init__(self, path: Path, *, size: int, count: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=size, backupCount=count, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        """Does not follow links: the path may lie in a repository."""
        descriptor = open_private(Path(self.baseFilename), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return open(descriptor, "a", encoding="utf-8")  # noqa: PTH123 - logging closes it

    def write(self, text: str) -> int:
        self.emit(logging.LogRecord("", logging.INFO, "", 0, text.rstrip("\n"), None, None))
        return len(text)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the standard library's name
        """Print nothing on standard error for a line that could not be written."""


# The open file, if any.
_files: list[_RotatingFile] = []


def configure(
    *, level: str, form: str, file: Path | None = None, file_bytes: int = 10 * 1024 * 1024, file_count: int = 5
) -> None:
    global _shown_from  # noqa: PLW0603 - structlog is configured once for the process, too
    number = _shown_from = getattr(logging, level.upper())
    target: _RotatingFile | None = None
    while _files:
        _files.pop().close()
    if file is not None:
        try:
            target = _RotatingFile(file, size=file_bytes, count=file_count)
            _files.append(target)
        except OSError as error:
            raise StartError(f"log_file: {file} cannot be written: {error.strerror or error}.") from error
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(
            colors=target is None and sys.stderr.isatty(),
            # A richer formatter would print local variables, and with them proposed content.
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _with_call,
            _without_contents,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if form == "json" else structlog.processors.StackInfoRenderer(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Unfailing(cast("TextIO | None", target)))),
        cache_logger_on_first_use=True,
    )
    # The libraries' own lines are logged only at debug level.
    logging.basicConfig(level=logging.DEBUG if level == "debug" else logging.ERROR, stream=sys.stderr)
