"""The SDK's servers, one for each endpoint. Nothing else imports the SDK, and this module is imported only when a
request needs it (server.py): importing the SDK takes as long as the rest of a start.

The low-level server, not its decorators: arguments are checked by our own models (it ignores unknown ones),
results go out as they are (it indents the text), and errors carry our codes.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from sse_starlette.sse import AppStatus

from gsd_review_broker.mcp.fast_path import METHOD, ToolRequest
from gsd_review_broker.mcp.registry import Endpoint
from gsd_review_broker.observe import telemetry

# At its stop the broker answers every open wait. This library would cut off answers after half a second.
AppStatus.disable_automatic_graceful_drain()


def make_manager(endpoint: Endpoint, *, body_limit: int) -> StreamableHTTPSessionManager:
    """Stateless, so that a restart is invisible; Host and Origin are checked for all routes together."""
    return StreamableHTTPSessionManager(
        app=make_server(endpoint), stateless=True, json_response=False, max_request_body_size=body_limit
    )


def is_well_formed(request: ToolRequest, headers: Mapping[bytes, bytes]) -> bool:
    """According to the SDK's own checks of the headers, and its own schema of the revision."""
    if request.is_modern:
        texts = {name.decode("ascii"): value.decode("latin-1") for name, value in headers.items()}
        message = {"method": METHOD, "params": request.params}
        if not isinstance(classify_inbound_request(message, headers=texts), InboundModernRoute):
            return False
    try:
        methods.validate_client_request(METHOD, request.revision, request.params)
    except ValidationError:
        return False
    return True


class _ToolServer(Server[Any]):
    """Answers that there are no resources or prompts.

    It does not advertise them: opencode offers its model three more tools for a server that does.
    """

    def get_capabilities(self, *arguments: Any, **options: Any) -> types.ServerCapabilities:
        whole = super().get_capabilities(*arguments, **options)
        return whole.model_copy(update={"resources": None, "prompts": None})


def make_server(endpoint: Endpoint) -> Server[Any]:
    listing = types.ListToolsResult(tools=[tool.wire for tool in endpoint.tools.values()])

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return listing

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> dict[str, Any]:
        return await endpoint.answer(context.request.scope, params.name, params.arguments or {})

    async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def list_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[])

    server = _ToolServer(
        endpoint.info["name"],
        version=endpoint.info["version"],
        title=endpoint.info["title"],
        instructions=endpoint.instructions,
        # No tool takes an argument by header, so there is nothing to look up for each call.
        get_tool_input_schema=lambda _name: None,
        on_list_tools=list_tools,
        on_list_resources=list_resources,
        on_list_prompts=list_prompts,
    )
    # Registered separately, because it answers in wire form: models would be built only to be serialized again.
    server.add_request_handler(METHOD, types.CallToolRequestParams, call_tool)
    if not telemetry.is_tracing():
        # The SDK's one built-in middleware makes a span for each call, even if they are not collected.
        server.middleware.clear()
    server.middleware.append(_answered_whole(call_tool, server.server_info_stamp))
    return server


_CallTool = Callable[[Any, types.CallToolRequestParams], Awaitable[dict[str, Any]]]


def _answered_whole(call_tool: _CallTool, server_info: dict[str, Any]) -> ServerMiddleware[Any]:
    """Answer calls of the newest revision whole, including the envelope; the SDK would walk through it twice more.

    Older revisions go through the SDK, which leaves out fields that they do not know.
    """

    async def middleware(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method != METHOD or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return await call_next(ctx)
        params = types.CallToolRequestParams.model_validate(ctx.params or {}, by_name=False)
        result = await call_tool(ctx, params)
        return {**result, "_meta": {types.SERVER_INFO_META_KEY: server_info}}

    return middleware
