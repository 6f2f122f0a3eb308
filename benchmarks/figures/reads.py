"""A read tool's p50 over an echo's on the SDK, and over the floor of the wire: what the broker adds to a round trip."""

from collections.abc import Callable
from typing import Any

from benchmarks.client import HANDSHAKE_ERA, MODERN, Connection, tool_request
from benchmarks.measuring import in_turns
from benchmarks.report import Figure, ratio
from benchmarks.stage import PAGES, Stage

_BAR = 1.3
_FLOOR_BAR = 2.0


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


def reads_over_floor(stage: Stage) -> list[Figure]:
    """Small answers, in both eras; with a page, its size would be measured instead of the round trip."""
    arguments: dict[str, dict[str, Any]] = {
        "get_review_status": {"review_id": stage.review_ids[500]},
        "get_proposal": {"review_id": stage.review_ids[500]},
        "broker_status": {},
    }
    figures: list[Figure] = []
    with stage.connection() as broker, stage.floor_connection() as floor:
        for era in (MODERN, HANDSHAKE_ERA):
            actions: dict[str, Callable[[], bytes]] = {"floor": _repeat(floor, stage.floor_request(era))}
            for tool, values in arguments.items():
                actions[tool] = _repeat(broker, tool_request(stage.port, tool, values, protocol=era))
            samples = in_turns(actions, rounds=10 if stage.quick else 50, block=10)
            figures += [
                ratio(f"reads: {tool} ÷ floor, {era}", samples[tool].p50, samples["floor"].p50, _FLOOR_BAR, "floor")
                for tool in arguments
            ]
    return figures
