"""A lean MCP client for tests: one POST a call, protocol 2026-07-28, standard library or aiohttp."""

import http.client
import json
from typing import Any

import aiohttp

PROTOCOL = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class ToolError(Exception):
    """A tool's refusal, with its code."""

    def __init__(self, error: dict[str, str]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]
        self.message = error["message"]
        self.hint = error["hint"]


def request_body(method: str, params: dict[str, Any], request_id: int = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": _META}}
    return json.dumps(message).encode()


def request_headers(method: str, name: str | None = None) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL,
        "Mcp-Method": method,
    }
    if name is not None:
        headers["Mcp-Name"] = name
    return headers


def result_of(body: bytes, content_type: str) -> dict[str, Any]:
    if content_type.startswith("text/event-stream"):
        lines = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
        body = lines[-1].encode()
    message = json.loads(body)
    if "error" in message:
        raise AssertionError(f"protocol error: {message['error']}")
    return message["result"]


def tool_result(body: bytes, content_type: str) -> dict[str, Any]:
    result = result_of(body, content_type)
    if result.get("isError"):
        error = result["structuredContent"]["error"]
        assert result["content"][0]["text"].startswith(f"{error['code']}: {error['message']}")
        raise ToolError(error)
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result["structuredContent"]


class Mcp:
    """Blocking; keeps its connection."""

    def __init__(self, port: int, path: str = "/mcp", *, timeout: float = 60) -> None:
        self.port = port
        self.path = path
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def raw(self, method: str, params: dict[str, Any], name: str | None = None) -> dict[str, Any]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self._timeout)
        try:
            body = request_body(method, params)
            self._connection.request("POST", self.path, body, request_headers(method, name))
            response = self._connection.getresponse()
            answer = response.read()
        except BaseException:
            self.close()
            raise
        assert response.status == 200, (response.status, answer)
        return {"body": answer, "type": response.getheader("content-type", "")}

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = self.raw("tools/call", {"name": tool, "arguments": arguments}, tool)
        return tool_result(answer["body"], answer["type"])

    def tools(self) -> list[dict[str, Any]]:
        answer = self.raw("tools/list", {})
        return result_of(answer["body"], answer["type"])["tools"]


class AsyncMcp:
    """For many clients at once."""

    def __init__(self, session: aiohttp.ClientSession, port: int, path: str = "/mcp") -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}{path}"

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        body = request_body("tools/call", {"name": tool, "arguments": arguments})
        headers = request_headers("tools/call", tool)
        async with self._session.post(self._url, data=body, headers=headers) as response:
            answer = await response.read()
            assert response.status == 200, (response.status, answer)
            return tool_result(answer, response.headers["content-type"])
