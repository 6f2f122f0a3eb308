"""The least that an MCP tool can cost on this stack: the same SDK server, transport, HTTP server and loop.

`echo` answers a small result. With a payload's name it answers that payload, serialized at each call as in every tool:
the cost of a tool that has its answer ready.
"""

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from benchmarks.serving import serve, settle

_SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "payload": {"type": "string"}},
    "additionalProperties": False,
}


def make_server(payloads: dict[str, Any]) -> Server[Any]:
    listing = types.ListToolsResult(tools=[types.Tool(name="echo", description="Echo.", input_schema=_SCHEMA)])

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return listing

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        name = arguments.get("payload")
        result = payloads[name] if name else {"text": arguments["text"], "length": len(arguments["text"])}
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=result)

    return Server(
        "echo",
        get_tool_input_schema={"echo": _SCHEMA}.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def make_application(payloads: dict[str, Any]) -> Starlette:
    manager = StreamableHTTPSessionManager(app=make_server(payloads), stateless=True, json_response=False)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            settle()
            yield

    return Starlette(routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(manager))], lifespan=lifespan)


if __name__ == "__main__":
    serve(make_application(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
