"""A read tool's p50 over an echo's: what the broker adds to a round trip."""

from collections.abc import Callable
from typing import Any

from benchmarks.client import Connection, tool_request
from benchmarks.measuring import in_turns
from benchmarks.report import Figure, ratio
from benchmarks.stage import PAGES, Stage

_BAR = 1.3


def reads(stage: Stage) -> list[Figure]:
    arguments: dict[str, dict[str, Any]] = {
        "get_review_status": {"review_id": stage.review_ids[500]},
        "get_proposal": {"review_id": stage.review_ids[500]},
        "broker_status": {},
        "list_reviews": {},
        "get_audit_log": {},
        "get_review_timeline": {"review_id": stage.told_review},
    }
    with stage.connection() as broker, stage.echo_connection() as echo:
        actions: dict[str, Callable[[], bytes]] = {"echo": _repeat(echo, stage.echo_request())}
        for tool, values in arguments.items():
            actions[tool] = _repeat(broker, tool_request(stage.port, tool, values))
            if tool in PAGES:
                actions[f"echo of {tool}"] = _repeat(echo, stage.echo_request(tool))
        sizes = {name: len(action()) for name, action in actions.items()}
        samples = in_turns(actions, rounds=10 if stage.quick else 50, block=10)
    figures: list[Figure] = []
    for tool in arguments:
        bare = None if tool in PAGES else _BAR
        measured = samples[tool].p50
        figures.append(ratio(f"reads: {tool}", measured, samples["echo"].p50, bare, "echo", body_bytes=sizes[tool]))
        if tool in PAGES:
            same = samples[f"echo of {tool}"].p50
            figures.append(ratio(f"reads: {tool}, same payload", measured, same, _BAR, "echo of as much"))
    return figures


def _repeat(connection: Connection, prepared: bytes) -> Callable[[], bytes]:
    return lambda: connection.exchange(prepared)
