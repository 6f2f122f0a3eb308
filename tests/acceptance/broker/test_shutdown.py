"""The broker's end: waits are answered, nothing hangs, the file is whole, and the next start is at once."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gsd_review_broker.settings.runtime_file import runtime_path
from gsd_review_broker.settings.state_files import Database
from tests.support.local import PROPOSAL
from tests.support.mcp import PROTOCOL, AsyncMcp, request_body, request_headers, tool_result
from tests.support.processes import DATABASE, BrokerProcess, free_environment
from tests.support.waiting import PATIENCE, until

WAITS = 50
# What the broker logs when it gives up on a call that is still under way.
CUT_OFF = "timeout graceful shutdown exceeded"
OLDER = "2025-06-18"


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


async def end_while_many_wait(process: BrokerProcess, protocol: str, kind: signal.Signals) -> list[Any]:
    """What each wait was answered. Each would last longer than a test waits for anything."""
    assert process.process is not None
    client = process.client()
    review_id = client("create_review", **PROPOSAL)["review_id"]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session:
        waits = [
            asyncio.create_task(wait_for_a_verdict(session, process.port, protocol, review_id)) for _ in range(WAITS)
        ]
        while await asyncio.to_thread(lambda: client("broker_status")["waiting"]) < WAITS:
            await asyncio.sleep(0.01)
        process.process.send_signal(kind)
        answers = await asyncio.gather(*waits)
        await asyncio.to_thread(process.process.wait, PATIENCE)
    client.close()
    return answers


@pytest.mark.parametrize("protocol", [PROTOCOL, OLDER])
@pytest.mark.parametrize(("kind", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_waits_are_answered_before_the_broker_ends(
    process: BrokerProcess, protocol: str, kind: signal.Signals, code: int
) -> None:
    answers = await end_while_many_wait(process, protocol, kind)
    assert [answer["changed"] for answer in answers] == [False] * WAITS
    assert {answer["status"] for answer in answers} == {"pending"}
    assert process.stop() == code
    assert not process.runtime_file.exists()
    assert "Traceback" not in process.output()
    assert CUT_OFF not in process.output()
    wal = process.database.with_name(process.database.name + "-wal")
    assert not wal.exists() or wal.stat().st_size == 0


def test_an_idle_connection_and_half_a_request_do_not_keep_the_broker(process: BrokerProcess) -> None:
    assert process.process is not None
    with (
        socket.create_connection(("127.0.0.1", process.port), timeout=PATIENCE) as stream,
        socket.create_connection(("127.0.0.1", process.port), timeout=PATIENCE) as half,
    ):
        host = f"Host: 127.0.0.1:{process.port}\r\n"
        # Without sessions there is no stream to listen to; the connection stays open all the same.
        stream.sendall(f"GET /mcp HTTP/1.1\r\n{host}Accept: text/event-stream\r\n\r\n".encode())
        assert stream.recv(100).startswith(b"HTTP/1.1 405")
        half.sendall(f"POST /mcp HTTP/1.1\r\n{host}Content-Length: 100\r\n\r\n{{".encode())
        process.client()("broker_status")
        assert process.stop() == 0
    assert CUT_OFF in process.output()


async def test_a_call_during_the_end_is_answered_or_cut_off_and_never_hangs(process: BrokerProcess) -> None:
    assert process.process is not None
    answered = 0
    ended = asyncio.Event()

    async def call_until_it_is_gone(session: aiohttp.ClientSession) -> None:
        nonlocal answered
        client = AsyncMcp(session, process.port)
        while True:
            try:
                result = await client("list_reviews", status="pending", wait=True, wait_seconds=0.05)
            except (aiohttp.ClientError, ConnectionError):
                return
            assert result["reviews"] == []
            answered += 1
            if answered == 40:
                ended.set()

    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session,
        asyncio.timeout(PATIENCE),
    ):
        callers = [asyncio.create_task(call_until_it_is_gone(session)) for _ in range(8)]
        await ended.wait()
        process.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*callers)
    assert process.stop() == 0
    assert "Traceback" not in process.output()


def test_what_was_acknowledged_is_there_after_the_end(process: BrokerProcess) -> None:
    review_id = process.client()("create_review", **PROPOSAL)["review_id"]
    assert process.stop() == 0
    process.start()
    assert process.client()("get_review_status", review_id=review_id)["status"] == "pending"


def test_after_kill_9_the_next_start_is_hindered_by_nothing_left_behind(process: BrokerProcess) -> None:
    review_id = process.client()("create_review", **PROPOSAL)["review_id"]
    assert process.stop(signal.SIGKILL) == -signal.SIGKILL
    assert process.process is not None
    lock = process.database.with_name(process.database.name + ".lock")
    left_behind = [json.loads(file.read_text())["pid"] for file in (lock, process.runtime_file)]
    assert left_behind == [process.process.pid] * 2
    with subprocess.Popen(
        [sys.executable, "-m", "gsd_review_broker", "--port", str(process.port)],
        cwd=process.folder,
        env=free_environment(process.home),
        stderr=subprocess.DEVNULL,
    ) as again:
        until(lambda: json.loads(process.runtime_file.read_text())["pid"] == again.pid)
        assert process.client()("get_review_status", review_id=review_id)["status"] == "pending"
        again.terminate()
        assert again.wait(PATIENCE) == 0
    assert not process.runtime_file.exists()


def test_a_second_interrupt_ends_it_at_once(process: BrokerProcess) -> None:
    """Even with half a request open, for which the first would wait a moment."""
    assert process.process is not None
    with socket.create_connection(("127.0.0.1", process.port), timeout=PATIENCE) as half:
        half.sendall(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{process.port}\r\nContent-Length: 99\r\n\r\n{{".encode())
        assert process.client()("broker_status")["waiting"] == 0
        process.process.send_signal(signal.SIGINT)
        # Two signals that are both pending are delivered as one.
        until(lambda: not process.runtime_file.exists())
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(PATIENCE) == 130
    assert CUT_OFF not in process.output()
    assert not process.runtime_file.exists()


WATCHED = """
from gsd_review_broker.settings.runtime_file import runtime_path
from gsd_review_broker.store.lock import DatabaseLock

release = DatabaseLock.release

def told(self):
    held = self._descriptor is not None
    if held:
        print("announced" if runtime_path(self._database).exists() else "no longer announced", flush=True)
    release(self)

DatabaseLock.release = told
from gsd_review_broker.cli.main import serve_command

raise SystemExit(serve_command())
"""


def test_the_runtime_file_is_removed_while_the_lock_is_still_held(repository: Path, own_home: Path) -> None:
    """Afterwards it may be the next broker's."""
    runtime_file = runtime_path(Database(repository / DATABASE))
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED, "--port", "0"],
        cwd=repository, env=free_environment(own_home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as running:  # fmt: skip
        until(runtime_file.exists)
        running.terminate()
        told, _ = running.communicate(timeout=20)
    assert told.decode().split("\n")[0] == "no longer announced"
    assert not runtime_file.exists()
