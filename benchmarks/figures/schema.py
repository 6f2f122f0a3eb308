"""What the tools of a role cost a model before its first call."""

import json

from benchmarks.client import request, result_of
from benchmarks.report import Figure
from benchmarks.stage import Stage

_BAR = 8_000


def schema(stage: Stage) -> list[Figure]:
    return [_role(stage, role) for role in ("proposer", "reviewer", "observer")]


def _role(stage: Stage, role: str) -> Figure:
    with stage.connection() as connection:
        body = connection.exchange(request(stage.port, "tools/list", {}, path=f"/mcp/{role}"))
    sizes = {tool["name"]: _bytes(tool) for tool in result_of(body)["tools"]}
    largest = ", ".join(f"{name} {size}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:4])
    return Figure(
        name=f"schema: {role}",
        value=sum(sizes.values()),
        bar=_BAR,
        unit="bytes",
        told=f"{len(sizes)} tools; largest: {largest}",
        details=sizes,
    )


def _bytes(tool: dict) -> int:
    compact = json.dumps(tool["inputSchema"], ensure_ascii=False, separators=(",", ":"))
    return len((tool["name"] + tool["description"] + compact).encode())
