"""Cuts a child's bytes into lines, whatever it writes: lines of any length, any bytes, any amount."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.domain.pool import Usage

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
        """Bytes that nobody reads. The start of the next line is still found."""
        self.left_out += len(chunk) + len(self._begun)
        self._begun.clear()
        self._dropping = not chunk.endswith(b"\n")

    def rest(self) -> list[bytes]:
        """At the end of the stream: a last line without a line feed."""
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
    """The end of a log, and whether there is more before it."""
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


@dataclass(frozen=True, slots=True)
class AgentReport:
    doing: str | None = None
    usage: Usage | None = None
    # Why it failed, in its own words.
    failure: str | None = None


_NOTHING = AgentReport()


class AgentOutput:
    """The output of one child. Codex, Claude, Gemini and opencode each have their own events."""

    def __init__(self) -> None:
        # Claude reports the cost of a message with each of its parts, and the total when it stops.
        self._messages: dict[str, Usage] = {}
        self._reported = Usage()

    def read(self, line: bytes) -> AgentReport:
        """A line may contain anything; a line that is not an event is ignored."""
        if not line.startswith(b"{"):
            return _NOTHING
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return _NOTHING
        return self._event(_object(event))

    def _event(self, event: dict[str, Any]) -> AgentReport:
        kind = _text(event.get("type"))
        match kind:
            case "item.started" | "item.completed":
                item = _object(event.get("item"))
                return AgentReport(doing=_codex_item(item), failure=_failure_in(item))
            case "turn.started" | "thread.started":
                return AgentReport(doing="thinks")
            case "turn.completed":
                return AgentReport(
                    doing="has finished its turn", usage=self._counted(_tokens(_object(event.get("usage"))))
                )
            case "turn.failed" | "error":
                return _failed(_message(event))
            case "assistant":
                return self._claude_message(_object(event.get("message")))
            case "tool_use":
                return AgentReport(
                    doing=_tool(_text(event.get("tool_name")) or _text(_object(event.get("part")).get("tool")))
                )
            case "step_finish":
                return AgentReport(usage=self._counted(_opencode_step(_object(event.get("part")))))
            case "result":
                return self._finished(event)
            case "usage":
                return AgentReport(usage=self._counted(_tokens(event)))
            case _:
                return _NOTHING

    def _counted(self, usage: Usage | None) -> Usage | None:
        if usage is not None:
            self._reported += usage
        return usage

    def _claude_message(self, message: dict[str, Any]) -> AgentReport:
        parts = [_object(part) for part in _list(message.get("content"))]
        tools = [_text(part.get("name")) for part in parts if part.get("type") == "tool_use"]
        texts = [_text(part.get("text")) for part in parts if part.get("type") == "text"]
        activity = _tool(tools[-1]) if tools else short(f"says: {texts[-1]}") if texts else None
        usage = _tokens(_object(message.get("usage")))
        known = self._messages.get(_text(message.get("id")), Usage())
        if usage is None or len(self._messages) > _MOST_MESSAGES:
            return AgentReport(doing=activity)
        self._messages[_text(message.get("id"))] = usage
        return AgentReport(doing=activity, usage=self._counted(_beyond(usage, known)))

    def _finished(self, event: dict[str, Any]) -> AgentReport:
        usage = self._result(event)
        if event.get("is_error") is True or event.get("status") == "error":
            report = _failed(_message(event) or _text(event.get("result")) or _text(event.get("subtype")))
            return replace(report, usage=usage)
        return AgentReport(doing="has finished its turn", usage=usage)

    def _result(self, event: dict[str, Any]) -> Usage | None:
        """The total, without what was reported before."""
        total = _tokens(_object(event.get("usage"))) or _tokens(_object(event.get("stats")))
        cost = _dollars(event.get("total_cost_usd"))
        rest = _beyond(total, self._reported) if total else None
        if cost is None:
            return self._counted(rest)
        return self._counted(Usage(cost_usd=cost) + (rest or Usage()))


def _failed(message: str) -> AgentReport:
    return AgentReport(doing=short(f"failed: {message}"), failure=in_one_line(message, _LONGEST_FAILURE) or None)


def _failure_in(item: dict[str, Any]) -> str | None:
    """Codex reports warnings as errors too; what is last counts."""
    return _failed(_text(item.get("message"))).failure if item.get("type") == "error" else None


def _beyond(usage: Usage, known: Usage) -> Usage | None:
    more = Usage(
        input_tokens=max(0, usage.input_tokens - known.input_tokens),
        output_tokens=max(0, usage.output_tokens - known.output_tokens),
        cost_usd=usage.cost_usd,
    )
    return more if more.input_tokens or more.output_tokens or more.cost_usd is not None else None


def _tokens(usage: dict[str, Any]) -> Usage | None:
    """Codex counts cached tokens as part of its input, Claude separately."""
    if not {"input_tokens", "output_tokens"} & usage.keys():
        return None
    beside = ("cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(
        input_tokens=_count(usage.get("input_tokens")) + sum(_count(usage.get(name)) for name in beside),
        output_tokens=_count(usage.get("output_tokens")),
        cost_usd=_dollars(usage.get("cost_usd")),
    )


def _opencode_step(part: dict[str, Any]) -> Usage | None:
    tokens = _object(part.get("tokens"))
    if not tokens:
        return None
    cache = _object(tokens.get("cache"))
    return Usage(
        input_tokens=sum(map(_count, (tokens.get("input"), cache.get("read"), cache.get("write")))),
        output_tokens=_count(tokens.get("output")) + _count(tokens.get("reasoning")),
        cost_usd=_dollars(part.get("cost")),
    )


def _codex_item(item: dict[str, Any]) -> str | None:
    match item.get("type"):
        case "mcp_tool_call":
            return _tool(_text(item.get("tool")))
        case "command_execution":
            return short(f"runs {_text(item.get('command'))}")
        case "agent_message":
            return short(f"says: {_text(item.get('text'))}")
        case "reasoning":
            return "thinks"
        case "error":
            return short(f"failed: {_text(item.get('message'))}")
        case _:
            return None


def _tool(name: str) -> str:
    for prefix in ("mcp__gsdreview__", "mcp_gsdreview_", "gsdreview_"):
        name = name.removeprefix(prefix)
    return short(f"calls {name}")


def _message(event: dict[str, Any]) -> str:
    error = _object(event.get("error"))
    words = (event.get("message"), error.get("message"), _object(error.get("data")).get("message"), error.get("name"))
    return next((text for word in words if (text := _text(word))), "")


def short(text: str) -> str:
    return in_one_line(text, _LONGEST)


def in_one_line(text: str, longest: int = _LONGEST_FAILURE) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: longest * 8]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    """A plausible number, or None: the sums limit spending."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else 0


def _dollars(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MOST_DOLLARS else None
