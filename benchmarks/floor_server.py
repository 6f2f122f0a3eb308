"""The floor of the wire: a bare Starlette endpoint that answers JSON-RPC, without the SDK.

It reads a call, checks its name and answers a small result: the least that one POST with a JSON answer can cost on this
HTTP server.
"""

import contextlib
import json
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.serving import serve, settle


async def answer(request: Request) -> Response:
    call = json.loads(await request.body())
    text = call["params"]["arguments"]["text"]
    result = {"text": text, "length": len(text)}
    message = {
        "jsonrpc": "2.0",
        "id": call["id"],
        "result": {
            "content": [{"type": "text", "text": json.dumps(result, separators=(",", ":"))}],
            "structuredContent": result,
            "isError": False,
        },
    }
    return Response(json.dumps(message, separators=(",", ":")), media_type="application/json")


@contextlib.asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    settle()
    yield


if __name__ == "__main__":
    serve(Starlette(routes=[Route("/mcp", answer, methods=["POST"])], lifespan=lifespan))
