"""A broker in this process that needs tokens, and callers that carry one."""

from typing import Any
from urllib.parse import urlencode

from tests.support.asgi import AsgiAnswer, request
from tests.support.local import PROPOSAL, LocalBroker
from tests.support.mcp import request_body, request_headers, tool_result

Json = dict[str, Any]
FORM = "application/x-www-form-urlencoded"


class Holder:
    """Whoever carries this token; with None, nobody."""

    def __init__(self, broker: LocalBroker, token: str | None, **more: str) -> None:
        self._broker = broker
        self.token = token
        self._more = more

    @property
    def headers(self) -> dict[str, str]:
        return {**({} if self.token is None else {"authorization": f"Bearer {self.token}"}), **self._more}

    async def __call__(self, tool: str, path: str = "/mcp", **arguments: Any) -> Any:
        answer = await self.called(tool, path, **arguments)
        assert answer.status == 200, (answer.status, answer.body)
        return tool_result(answer.body, answer.kind)

    async def called(self, tool: str, path: str = "/mcp", **arguments: Any) -> AsgiAnswer:
        body = request_body("tools/call", {"name": tool, "arguments": arguments})
        headers = {**request_headers("tools/call", tool), **self.headers}
        return await request(self._broker.application.asgi, "POST", path, body=body, headers=headers)

    async def create(self, **arguments: Any) -> Any:
        return await self("create_review", **{**PROPOSAL, **arguments})

    async def get(self, path: str) -> AsgiAnswer:
        return await request(self._broker.application.asgi, "GET", path, headers=self.headers)

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> AsgiAnswer:
        headers = {"content-type": kind, **self.headers}
        return await request(self._broker.application.asgi, "POST", path, body=body, headers=headers)

    async def form(self, path: str, fields: Json) -> AsgiAnswer:
        return await self.post(path, urlencode(fields).encode(), FORM)


async def holder(broker: LocalBroker, role: str, name: str | None = None, **wanted: str | None) -> Holder:
    """A new token's."""
    wanted = {"project": None, "expires": None, **wanted}
    made = await broker.application.broker.tokens.new(None, role, name=name or role, **wanted)
    return Holder(broker, made["token"])
