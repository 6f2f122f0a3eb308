"""The broker's end: waits are answered, nothing hangs, the file is whole, and the next start is at once."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.local import PROPOSAL
from tests.support.mcp import PROTOCOL, AsyncMcp, Mcp, request_body, request_headers, tool_result
from tests.support.processes import BrokerProcess

WAITS = 50
LONGEST_END_SECONDS = 4  # 2 s on a machine that has nothing else to do
OLDER = "2025-06-18"


def until(condition: Callable[[], bool], *, deadline: float = 10) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


async def wait_for_a_verdict(session: aiohttp.ClientSession, port: int, protocol: str, review_id: str) -> Any:
    """One wait in the given protocol; what the tool said."""
    name = "get_review_status"
    arguments = {"review_id": review_id, "wait": True, "wait_seconds": 120}
    if protocol == PROTOCOL:
        return await AsyncMcp(session, port)(name, **arguments)
    body = request_body("tools/call", {"name": name, "arguments": arguments})
    headers = request_headers("tools/call", name) | {"MCP-Protocol-Version": protocol}
    async with session.post(f"http://127.0.0.1:{port}/mcp", data=body, headers=headers) as response:
        return tool_result(await response.read(), response.headers["content-type"])


async def end_while_many_wait(process: BrokerProcess, protocol: str, kind: signal.Signals) -> tuple[list[Any], float]:
    """What each wait was answered, and how long the end took."""
    assert process.process is not None
    client = process.client()
    review_id = client("create_review", **PROPOSAL)["review_id"]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20)) as session:
        waits = [
            asyncio.create_task(wait_for_a_verdict(session, process.port, protocol, review_id)) for _ in range(WAITS)
        ]
        while await asyncio.to_thread(lambda: client("broker_status")["waiting"]) < WAITS:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        process.process.send_signal(kind)
        answers = await asyncio.gather(*waits)
        await asyncio.to_thread(process.process.wait, 15)
        took = time.monotonic() - began
    client.close()
    return answers, took


@pytest.mark.parametrize("protocol", [PROTOCOL, OLDER])
@pytest.mark.parametrize(("kind", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_waits_are_answered_before_the_broker_ends(
    process: BrokerProcess, protocol: str, kind: signal.Signals, code: int
) -> None:
    answers, took = await end_while_many_wait(process, protocol, kind)
    assert [answer["changed"] for answer in answers] == [False] * WAITS
    assert {answer["status"] for answer in answers} == {"pending"}
    assert process.stop() == code
    assert took < LONGEST_END_SECONDS
    assert not process.runtime_file.exists()
    assert "Traceback" not in process.output()
    wal = process.database.with_name(process.database.name + "-wal")
    assert not wal.exists() or wal.stat().st_size == 0
