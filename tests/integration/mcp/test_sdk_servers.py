"""The SDK is imported and started by the first request that needs it: once, whoever hangs up or fails meanwhile."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gsd_review_broker.mcp.server import Endpoints, make_endpoints
from tests.support.asgi import AsgiAnswer, send_request
from tests.support.local import LocalBroker
from tests.support.waiting import PATIENCE

HEADERS = [
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", b"2025-06-18"),
]
LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()


@pytest.fixture
async def endpoints(broker: LocalBroker) -> AsyncGenerator[Endpoints]:
    made = make_endpoints(broker.application.broker, body_limit=100_000)
    yield made
    await made.stop()


async def tools(endpoints: Endpoints, path: str = "/mcp") -> list[str]:
    answer = await send_request(endpoints.by_path[path], HEADERS, LIST)
    assert isinstance(answer, AsgiAnswer)
    return [tool["name"] for tool in answer.message["result"]["tools"]]


class Held:
    """A start that waits until it is let go, and counts how often it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.count = threading.Event(), threading.Event(), 0
        make = Endpoints._make

        def held(servers: Endpoints) -> Any:
            self.count += 1
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
            return make(servers)

        monkeypatch.setattr(Endpoints, "_make", held)


async def test_all_endpoints_share_one_start(endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    asking = [asyncio.create_task(tools(endpoints, path)) for path in ("/mcp", "/mcp/reviewer", "/mcp")]
    await asyncio.to_thread(held.begun.wait, PATIENCE)
    held.go_on.set()
    everything, of_reviewer, again = await asyncio.gather(*asking)
    assert "claim_next" in of_reviewer
    assert set(of_reviewer) < set(everything)
    assert everything == again
    assert held.count == 1


async def test_a_caller_that_hangs_up_leaves_the_start_to_the_others(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    first = asyncio.create_task(tools(endpoints))
    await asyncio.to_thread(held.begun.wait, PATIENCE)
    second = asyncio.create_task(tools(endpoints))
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    held.go_on.set()
    assert "create_review" in await second
    assert held.count == 1


async def test_a_start_that_failed_is_tried_again(endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    make, failures = Endpoints._make, [OSError("too many open files")]

    def sometimes(servers: Endpoints) -> Any:
        if failures:
            raise failures.pop()
        return make(servers)

    monkeypatch.setattr(Endpoints, "_make", sometimes)
    with pytest.raises(OSError, match="too many open files"):
        await tools(endpoints)
    assert "create_review" in await tools(endpoints)


async def test_a_stop_during_the_start_waits_for_it(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    endpoints = make_endpoints(broker.application.broker, body_limit=100_000)
    asking = asyncio.create_task(tools(endpoints))
    await asyncio.to_thread(held.begun.wait, PATIENCE)
    stopping = asyncio.create_task(endpoints.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    held.go_on.set()
    await stopping
    asking.cancel()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asking
