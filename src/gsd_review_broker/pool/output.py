"""What a child writes: cut into lines, kept in a log of bounded size, and read as the events of its agent.

It may write lines of any length, any bytes, any amount. What it says of itself only informs: a recorded verdict is the
only success.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.domain.rules.pool import Usage

# How much of one line is kept. The agents' events are far shorter, except those with a tool's output.
LONGEST_LINE = 256 * 1024


class Lines:
    """Cuts a stream into lines and keeps at most the beginning of each."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._begun = bytearray()
        # In the rest of a line whose beginning was already returned or skipped.
        self._dropping = False
        self.left_out = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        first, *whole = chunk.split(b"\n")
        if not whole:
            self._append(first)
            return []
        last = whole.pop()
        lines = self._ended(first)
        if len(chunk) <= self._longest:
            # There may be very many, and each is short enough.
            lines += whole
        else:
            for line in whole:
                lines += self._ended(line)
        self._append(last)
        return lines

    def skip(self, chunk: bytes) -> None:
        """Leaves bytes out. The start of the next line is still found."""
        self.left_out += len(chunk) + len(self._begun)
        self._begun.clear()
        self._dropping = not chunk.endswith(b"\n")

    def rest(self) -> list[bytes]:
        """Return a last line without a line feed, at the end of the stream."""
        return self._ended(b"") if self._begun else []

    def _append(self, piece: bytes) -> None:
        if self._dropping:
            self.left_out += len(piece)
            return
        room = self._longest - len(self._begun)
        self._begun += piece[:room]
        self.left_out += max(0, len(piece) - room)

    def _ended(self, piece: bytes) -> list[bytes]:
        self._append(piece)
        if self._dropping:
            self._dropping = False
            return []
        line = bytes(self._begun)
        self._begun.clear()
        return [line]


class Allowance:
    """A number of bytes a second, with a reserve of some seconds for a quiet writer."""

    def __init__(self, *, per_second: int, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._clock = clock
        self._left = float(at_once)
        self._then = clock()

    def take(self, amount: int) -> bool:
        self._fill()
        if self._left < amount:
            return False
        self._left -= amount
        return True

    def owe(self, amount: int) -> float:
        """Take the bytes in any case. Returns how many seconds to pause until they are covered."""
        self._fill()
        self._left -= amount
        return max(0.0, -self._left / self._per_second)

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._then) * self._per_second)
        self._then = now


LARGEST = 2 * 1024 * 1024
_PREVIOUS = ".1"


class LogFile:
    """Written by the threads that read the child's pipes. A full or missing disk costs only the log."""

    def __init__(self, path: Path, *, largest: int = LARGEST) -> None:
        self._path = path
        self._largest = largest
        self._lock = threading.Lock()
        self._size = path.stat().st_size if path.exists() else 0

    def write(self, data: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._size + len(data) > self._largest:
                self._path.replace(self._path.with_name(self._path.name + _PREVIOUS))
                self._size = 0
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                self._size += os.write(descriptor, data[-self._largest :])
            finally:
                os.close(descriptor)


def tail(path: Path, characters: int) -> tuple[str, bool]:
    """Return the end of a log, and whether there is more before it."""
    wanted = characters * 4
    parts: list[bytes] = []
    size = left = 0
    for file in (path, path.with_name(path.name + _PREVIOUS)):
        with contextlib.suppress(OSError), file.open("rb") as opened:
            length = opened.seek(0, os.SEEK_END)
            size += length
            take = max(0, min(length, wanted - left))
            opened.seek(length - take)
            parts.insert(0, opened.read(take))
            left += take
    text = b"".join(parts).decode("utf-8", "replace")
    return text[-characters:], len(text) > characters or size > left


_LONGEST = 120
# An agent's own words about why it failed; the reason often comes after an address and a status.
_LONGEST_FAILURE = 800
_MOST_MESSAGES = 10_000
_MOST_TOKENS = 10**12
_MOST_DOLLARS = 1e6

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentReport:
    doing: str | None = None
    usage: Usage | None = None
    # Why it failed, in its own words.
    failure: str | None = None


class Spending:
    """What one child has reported so far, so that nothing is counted twice."""

    def __init__(self) -> None:
        self._messages: dict[str, Usage] = {}
        self._reported = Usage()

    def add(self, usage: Usage | None) -> Usage | None:
        if usage is not None:
            self._reported += usage
        return usage

    def of_message(self, message: str, usage: Usage | None) -> Usage | None:
        """Return what is new, for an agent that reports a message's usage with each part of it."""
        if usage is None or len(self._messages) > _MOST_MESSAGES:
            return None
        known, self._messages[message] = self._messages.get(message, Usage()), usage
        return self.add(_beyond(usage, known))

    def of_everything(self, total: Usage | None, cost: float | None) -> Usage | None:
        """Return what is new, for an agent that reports the total when it stops."""
        rest = _beyond(total, self._reported) if total else None
        return self.add(rest if cost is None else Usage(cost_usd=cost) + (rest or Usage()))


# Reads one event of one agent's; None for an event that this agent does not have. It is in the agent's module.
EventReader = Callable[[Event, Spending], AgentReport | None]


class AgentOutput:
    """The output of one child, one JSON object a line."""

    def __init__(self, readers: Sequence[EventReader]) -> None:
        self._readers = (*readers, _usage_event)
        self._spending = Spending()

    def read(self, line: bytes) -> AgentReport:
        """Read a line, which may contain anything; one that is not an event is ignored."""
        if line.startswith(b"{"):
            try:
                event = object_in(json.loads(line))
            except (ValueError, RecursionError):
                return AgentReport()
            for read in self._readers:
                if report := read(event, self._spending):
                    return report
        return AgentReport()


def _usage_event(event: Event, spending: Spending) -> AgentReport | None:
    """Read our own event, for programs of the user's."""
    return AgentReport(usage=spending.add(tokens_in(event))) if event.get("type") == "usage" else None


# What the agents' modules share.


def finished(event: Event, spending: Spending) -> AgentReport:
    """Read the last event of Claude and of Gemini, with the total."""
    total = tokens_in(object_in(event.get("usage"))) or tokens_in(object_in(event.get("stats")))
    usage = spending.of_everything(total, dollars_in(event.get("total_cost_usd")))
    if event.get("is_error") is True or event.get("status") == "error":
        words = message_in(event) or text_in(event.get("result")) or text_in(event.get("subtype"))
        return failed(words, usage)
    return AgentReport(doing="has finished its turn", usage=usage)


def failed(message: str, usage: Usage | None = None) -> AgentReport:
    failure = in_one_line(message, _LONGEST_FAILURE) or None
    return AgentReport(doing=short(f"failed: {message}"), usage=usage, failure=failure)


def calls(tool: str) -> str:
    for prefix in ("mcp__gsdreview__", "mcp_gsdreview_", "gsdreview_"):
        tool = tool.removeprefix(prefix)
    return short(f"calls {tool}")


def tokens_in(usage: dict[str, Any]) -> Usage | None:
    """Return all tokens. Codex includes cached ones in its input; Claude reports them separately."""
    if not {"input_tokens", "output_tokens"} & usage.keys():
        return None
    beside = ("cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(
        input_tokens=count_in(usage.get("input_tokens")) + sum(count_in(usage.get(name)) for name in beside),
        output_tokens=count_in(usage.get("output_tokens")),
        cost_usd=dollars_in(usage.get("cost_usd")),
    )


def message_in(event: Event) -> str:
    error = object_in(event.get("error"))
    words = (event.get("message"), error.get("message"), object_in(error.get("data")).get("message"), error.get("name"))
    return next((text for word in words if (text := text_in(word))), "")


def short(text: str) -> str:
    return in_one_line(text, _LONGEST)


def in_one_line(text: str, longest: int = _LONGEST_FAILURE) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: longest * 8]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def object_in(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_in(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_in(value: object) -> str:
    return value if isinstance(value, str) else ""


def count_in(value: object) -> int:
    """Return a plausible number, or 0: the sums limit spending."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else 0


def dollars_in(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MOST_DOLLARS else None


def _beyond(usage: Usage, known: Usage) -> Usage | None:
    more = Usage(
        input_tokens=max(0, usage.input_tokens - known.input_tokens),
        output_tokens=max(0, usage.output_tokens - known.output_tokens),
        cost_usd=usage.cost_usd,
    )
    return more if more.input_tokens or more.output_tokens or more.cost_usd is not None else None
