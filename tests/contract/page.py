"""What the code says of itself: the snapshot, and the reference page made from it."""

import inspect
import json
import types as python_types
import typing
from pathlib import Path
from typing import Any

from gsd_review_broker.domain import words
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import Code
from gsd_review_broker.mcp.registry import Tool
from gsd_review_broker.mcp.tools import REGISTRY

ROOT = Path(__file__).parents[2]
SNAPSHOT = ROOT / "tests" / "contract" / "contract.json"
PAGE = ROOT / "docs" / "tools.md"


_ABOUT = (
    "Made from the code by `make docs`; a test keeps it current. `?` marks what may be left out. Every tool that "
    "writes also takes `idempotency_key?`. All results are structured; the text content repeats them as compact "
    "JSON."
)


def tools() -> list[Tool]:
    return list(REGISTRY.shown_to(Audience.ALL).values())


def result_types(tool: Tool) -> list[type]:
    """A union of typed dictionaries, taken apart."""
    returned = typing.get_type_hints(tool.function)["return"]
    is_union = isinstance(returned, python_types.UnionType) or typing.get_origin(returned) is typing.Union
    return list(typing.get_args(returned)) if is_union else [returned]


def snapshot() -> dict[str, Any]:
    return {
        "tools": {
            tool.name: {
                "shown_to": sorted(audience.value for audience in tool.audiences),
                "input_schema": tool.wire.input_schema,
                "annotations": tool.wire.annotations.model_dump(exclude_none=True) if tool.wire.annotations else {},
                "results": {kind.__name__: sorted(typing.get_type_hints(kind)) for kind in result_types(tool)},
            }
            for tool in tools()
        },
        "states": [status.value for status in words.Status],
        "verdicts": [verdict.value for verdict in words.Verdict],
        "categories": [category.value for category in words.Category],
        "priorities": [priority.value for priority in words.Priority],
        "events": [event.value for event in words.EventType],
        "error_codes": [code.value for code in Code],
    }


def snapshot_text() -> str:
    return json.dumps(snapshot(), indent=1, sort_keys=True) + "\n"


def page() -> str:
    parts = [
        "# Tools",
        "",
        _ABOUT,
        "",
        "| endpoint | for | tools |",
        "|---|---|---|",
        *(_endpoint(audience) for audience in Audience),
        "",
    ]
    for tool in tools():
        parts += _tool(tool)
    parts += ["## Error codes", "", ", ".join(f"`{code.value}`" for code in Code), ""]
    parts += ["## States", "", ", ".join(f"`{status.value}`" for status in words.Status), ""]
    parts += ["## Audit events", "", ", ".join(f"`{event.value}`" for event in words.EventType), ""]
    return "\n".join(parts)


def _endpoint(audience: Audience) -> str:
    path = "/mcp" if audience is Audience.ALL else f"/mcp/{audience.value}"
    names = ", ".join(f"`{name}`" for name in REGISTRY.shown_to(audience))
    return f"| `{path}` | {audience.value} | {names} |"


def _tool(tool: Tool) -> list[str]:
    schema = tool.wire.input_schema
    required = set(schema.get("required", []))
    rows = [
        f"| `{name}{'' if name in required else '?'}` | {_kind(value)} | {value.get('description', '')} |"
        for name, value in schema["properties"].items()
        if name != "idempotency_key"
    ]
    table = ["| parameter | type | |", "|---|---|---|", *rows, ""] if rows else ["No parameters.", ""]
    gives = [
        f"- {kind.__name__}: {', '.join(f'`{key}`' for key in typing.get_type_hints(kind))}"
        + (f". {inspect.getdoc(kind)}" if kind.__doc__ and not kind.__doc__.startswith("dict(") else "")
        for kind in result_types(tool)
    ]
    roles = ", ".join(sorted(audience.value for audience in tool.audiences)) or "only clients of `/mcp`"
    return [
        f"## {tool.name}",
        "",
        tool.wire.description or "",
        "",
        f"Shown to: {roles}.",
        "",
        *table,
        "Gives:",
        "",
        *gives,
        "",
    ]


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema["type"])
