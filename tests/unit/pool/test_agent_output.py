"""What a child writes: lines of any kind, events of four agents, and a log that cannot grow."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain.rules.pool import Usage
from gsd_review_broker.domain.words import PROGRAMS
from gsd_review_broker.pool.agents import readers_of
from gsd_review_broker.pool.output import AgentOutput, Allowance, Lines, LogFile, tail
from gsd_review_broker.settings.names import AGENTS


@given(st.lists(st.binary(max_size=50) | st.just(b"\n") | st.just(b"abc\ndef")), st.integers(1, 20))
def test_lines_are_the_same_however_they_are_cut_into_chunks(chunks: list[bytes], longest: int) -> None:
    lines = Lines(longest)
    got = [line for chunk in chunks for line in lines.feed(chunk)] + lines.rest()
    whole = b"".join(chunks)
    pieces = whole.split(b"\n")
    expected = [piece[:longest] for piece in pieces[:-1]] + ([pieces[-1][:longest]] if pieces[-1] else [])
    assert got == expected
    assert lines.left_out == sum(max(0, len(piece) - longest) for piece in pieces)


@given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=30) | st.just(b"x\ny"))))
def test_every_byte_is_kept_or_counted_and_a_line_begins_where_one_ended(parts: list[tuple[bool, bytes]]) -> None:
    lines = Lines(1000)
    kept: list[bytes] = []
    for is_kept, chunk in parts:
        if is_kept:
            kept += lines.feed(chunk)
        else:
            lines.skip(chunk)
    kept += lines.rest()
    whole = b"".join(chunk for _, chunk in parts)
    assert all(line in whole.split(b"\n") or line in whole for line in kept)
    ends = whole.count(b"\n")
    assert sum(map(len, kept)) + lines.left_out <= len(whole)
    assert len(whole) - ends <= sum(map(len, kept)) + lines.left_out


def test_after_what_was_left_out_the_next_whole_line_is_read() -> None:
    lines = Lines()
    assert lines.feed(b"one\ntw") == [b"one"]
    lines.skip(b"o\nthree\nfo")
    assert lines.feed(b"ur\nfive\n") == [b"five"]
    assert lines.left_out == len(b"tw" + b"o\nthree\nfo" + b"ur")


def test_an_allowance_is_used_up_and_fills_again() -> None:
    now = [0.0]
    allowance = Allowance(per_second=10, at_once=100, clock=lambda: now[0])
    assert allowance.take(100)
    assert not allowance.take(1)
    now[0] = 1
    assert allowance.take(10)
    assert not allowance.take(1)
    now[0] = 1_000
    assert allowance.take(100)
    assert not allowance.take(1)
    assert allowance.owe(20) == 2.0
    now[0] += 2
    assert allowance.owe(0) == 0


def test_a_log_keeps_its_last_part_and_never_grows(tmp_path: Path) -> None:
    folder = tmp_path / "reviewer"
    folder.mkdir()
    path = folder / "output.log"
    log = LogFile(path, largest=1_000)
    for number in range(1_000):
        log.write(f"line {number}\n".encode())
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 2_000
    assert path.stat().st_mode & 0o077 == 0
    text, more = tail(path, 60)
    assert text.endswith("line 998\nline 999\n")
    assert (len(text), more) == (60, True)
    text, more = tail(path, 100_000)
    numbers = [int(line.split()[1]) for line in text.split("\n") if line.startswith("line")]
    assert numbers == list(range(numbers[0], 1_000))
    assert not more
    # Another broker goes on where the last one stopped.
    LogFile(path, largest=1_000).write(b"x" * 5_000)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 2_000


def test_a_log_that_cannot_be_written_or_read_hinders_nobody(tmp_path: Path) -> None:
    LogFile(tmp_path / "no" / "such" / "folder").write(b"x")
    assert tail(tmp_path / "none", 10) == ("", False)


def output_of(agent: str) -> AgentOutput:
    return AgentOutput(readers_of(agent))


def said(agent: str, *events: Any) -> tuple[list[str | None], Usage]:
    reader = output_of(agent)
    reports = [reader.read(json.dumps(event).encode()) for event in events]
    total = Usage()
    for report in reports:
        total += report.usage or Usage()
    return [report.doing for report in reports], total


def test_codex_events_tell_what_it_does_and_what_it_spent() -> None:
    doing, usage = said(
        "codex",
        {"type": "thread.started", "thread_id": "x"},
        {"type": "item.started", "item": {"type": "mcp_tool_call", "server": "gsdreview", "tool": "claim_next"}},
        {"type": "item.completed", "item": {"type": "command_execution", "command": "rg foo\nbar"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "fine\x1b[31m"}},
        {"type": "item.completed", "item": {"type": "reasoning"}},
        {"type": "item.completed", "item": {"type": "error", "message": "oh"}},
        {"type": "item.completed", "item": {"type": "todo_list"}},
        {"type": "turn.failed", "error": {"message": "no model"}},
        {"type": "turn.completed", "usage": {"input_tokens": 50, "cached_input_tokens": 40, "output_tokens": 5}},
    )
    assert doing == [
        "thinks",
        "calls claim_next",
        "runs rg foo bar",
        "says: fine [31m",
        "thinks",
        "failed: oh",
        None,
        "failed: no model",
        "has finished its turn",
    ]
    assert usage == Usage(input_tokens=50, output_tokens=5)


def test_claude_events_are_counted_once_though_they_are_told_with_each_part_and_at_the_end() -> None:
    def message(number: int, output: int, *content: dict[str, Any]) -> dict[str, Any]:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": output}
        return {"type": "assistant", "message": {"id": f"m{number}", "content": content, "usage": usage}}

    doing, usage = said(
        "claude",
        {"type": "system", "subtype": "init"},
        message(1, 1, {"type": "text", "text": "let me see"}),
        message(1, 4, {"type": "tool_use", "name": "mcp__gsdreview__get_proposal"}),
        message(2, 6, {"type": "thinking"}),
        {"type": "user"},
        {"type": "result", "usage": {"input_tokens": 20, "cache_read_input_tokens": 180, "output_tokens": 11},
         "total_cost_usd": 0.25},
    )  # fmt: skip
    assert doing == [None, "says: let me see", "calls get_proposal", None, None, "has finished its turn"]
    assert usage == Usage(input_tokens=200, output_tokens=11, cost_usd=0.25)


def test_gemini_and_opencode_events_are_read() -> None:
    doing, usage = said(
        "gemini",
        {"type": "tool_use", "tool_name": "mcp_gsdreview_claim_next"},
        {"type": "result", "status": "success", "stats": {"input_tokens": 7, "output_tokens": 3}},
    )
    assert (doing, usage) == (["calls claim_next", "has finished its turn"], Usage(input_tokens=7, output_tokens=3))
    tokens = {"input": 5, "output": 2, "reasoning": 1, "cache": {"read": 10, "write": 20}}
    doing, usage = said(
        "opencode",
        {"type": "tool_use", "part": {"tool": "gsdreview_submit_verdict"}},
        {"type": "step_finish", "part": {"cost": 0.5, "tokens": tokens}},
        {"type": "step_finish", "part": {"cost": 0.5, "tokens": tokens}},
        {"type": "step_finish", "part": {}},
    )
    assert doing[0] == "calls submit_verdict"
    assert usage == Usage(input_tokens=70, output_tokens=6, cost_usd=1.0)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"hello", b"{", b"[]", b"null", b'{"type": 5}', b'{"type": "item.started", "item": 7}', b"\xff\xfe",
        b'{"type": "assistant", "message": {"content": "x", "usage": []}}', b'{"type": "result", "usage": 3}',
        b"{" * 100_000, b'{"type": "turn.completed", "usage": {"input_tokens": "many", "output_tokens": -5}}',
        b'{"type": "usage", "input_tokens": 1e400, "output_tokens": true, "cost_usd": NaN}',
        b'{"type": "usage", "input_tokens": 99999999999999999999, "output_tokens": 0, "cost_usd": 1e300}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("agent", AGENTS)
def test_whatever_a_line_holds_it_says_nothing_wrong(agent: str, line: bytes) -> None:
    usage = output_of(agent).read(line).usage
    assert usage is None or usage == Usage()


KEYS = ["type", "item", "message", "usage", "content", "part", "tokens", "stats"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner),
)


@given(ANYTHING)
def test_no_json_whatever_makes_the_reader_fail(value: Any) -> None:
    reader = output_of("command")
    for kind in ("item.started", "turn.completed", "assistant", "result", "step_finish", "tool_use", "usage"):
        event = {**value, "type": kind} if isinstance(value, dict) else {"type": kind, "message": value, "item": value}
        reader.read(json.dumps(event).encode())


def test_shares_of_a_report_are_together_the_whole() -> None:
    whole = Usage(input_tokens=100, output_tokens=7, cost_usd=0.9)
    total = Usage()
    for index in range(3):
        total += whole.share(index, 3)
    assert (total.input_tokens, total.output_tokens) == (100, 7)
    assert total.cost_usd == pytest.approx(0.9)


REASON = "The model 'gpt-0' does not exist or you do not have access to it."


@pytest.mark.parametrize(
    ("agent", "event"),
    [
        ("codex", {"type": "turn.failed", "error": {"message": f"unexpected status 404: {'x' * 300} {REASON}"}}),
        ("codex", {"type": "error", "message": REASON}),
        ("codex", {"type": "item.completed", "item": {"type": "error", "message": REASON}}),
        ("claude", {"type": "result", "subtype": "success", "is_error": True, "result": f"API Error: 404 {REASON}"}),
        ("gemini", {"type": "result", "status": "error", "error": {"type": "Error", "message": REASON}}),
        ("opencode", {"type": "error", "error": {"name": "APIError", "data": {"message": REASON}}}),
    ],
    ids=["codex turn", "codex error", "codex item", "claude", "gemini", "opencode"],
)
def test_why_an_agent_failed_is_kept_in_its_own_words_to_the_end(agent: str, event: dict[str, Any]) -> None:
    report = output_of(agent).read(json.dumps(event).encode())
    assert report.failure is not None
    assert report.failure.endswith(REASON)
    assert (report.doing or "").startswith("failed: ")


@pytest.mark.parametrize("agent", PROGRAMS)
def test_a_program_of_the_users_may_start_any_agent(agent: str) -> None:
    event = {"type": "result"} if agent in {"claude", "gemini"} else {"type": "error", "message": REASON}
    assert said("command", event) == said(agent, event) != ([None], Usage())
    assert said("command", {"type": "usage", "input_tokens": 3, "output_tokens": 2})[1] == Usage(
        input_tokens=3, output_tokens=2
    )


def test_words_without_end_are_cut() -> None:
    report = output_of("codex").read(json.dumps({"type": "error", "message": "x" * 100_000}).encode())
    assert report.failure is not None
    assert len(report.failure) == 800
