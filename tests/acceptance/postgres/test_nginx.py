"""A real nginx, with the configuration of docs/deployment.md, in front of two brokers of one database.

`make test-teams` runs it. Clients work while the brokers are restarted and killed, and no call of theirs fails."""

import asyncio
import contextlib
import itertools
import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.acceptance.broker.test_elsewhere import certificate, configure
from tests.acceptance.postgres.test_teams import copy_of, note
from tests.support import postgres
from tests.support.invariants import events_of, problems
from tests.support.local import PROPOSAL
from tests.support.mcp import request_body, request_headers, tool_result
from tests.support.postgres import broker_on
from tests.support.processes import BrokerProcess, make_repository
from tests.support.tandem import Tandem
from tests.support.waiting import until

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
NAME = "reviews.example.org"
DOCUMENT = Path(__file__).parents[3] / "docs" / "deployment.md"
CLIENTS = 8
pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(NGINX is None, reason="needs nginx (apt-get install nginx)"),
]
# What the example leaves to nginx's own file.
AROUND = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 1024; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/tandem.conf;
}}
"""


class Site(NamedTuple):
    port: int
    brokers: list[BrokerProcess]
    tokens: dict[str, str]
    url: str
    folder: Path


def free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def example(folder: Path, port: int, brokers: list[BrokerProcess]) -> str:
    """The document's own configuration, with this test's addresses and files."""
    (text,) = re.findall(r"```nginx\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    replacements = {
        "10.0.0.11:8321": f"127.0.0.1:{brokers[0].port}",
        "10.0.0.12:8321": f"127.0.0.1:{brokers[1].port}",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/tandem/": f"{folder}/",
    }
    for before, after in replacements.items():
        assert before in text
        text = text.replace(before, after)
    return text


@contextlib.contextmanager
def nginx_before(brokers: list[BrokerProcess], folder: Path) -> Generator[int]:
    assert NGINX is not None
    folder.mkdir()
    certificate(folder)
    port = free_port()
    (folder / "tandem.conf").write_text(example(folder, port, brokers))
    is_root = subprocess.run(["/usr/bin/id", "-u"], check=True, capture_output=True).stdout.strip() == b"0"
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user="user root;" if is_root else ""))
    process = subprocess.Popen([NGINX, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    try:
        until(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, (folder / "error.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    folder = tmp_path_factory.mktemp("nginx")
    repository = make_repository(folder / "repository")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(postgres.own_database("nginx", empty=True))
        brokers: list[BrokerProcess] = []
        for number in range(2):
            home = folder / f"home-{number}"
            home.mkdir()
            configure(home, auth="token", allowed_hosts=[NAME], trusted_proxies=["127.0.0.1"])
            brokers.append(stack.enter_context(broker_on(url, repository, home)))
        tandem = Tandem(repository, brokers[0].home)
        tokens: dict[str, str] = {}
        for role, name in (("proposer", "bo"), ("reviewer", "codex"), ("human", "ada")):
            made = tandem.run("token", "new", "--role", role, "--name", name, "--db", url)
            assert made.code == 0, made.err
            tokens[role] = made.out.strip()
        port = stack.enter_context(nginx_before(brokers, folder / "nginx"))
        yield Site(port, brokers, tokens, url, folder)


@pytest.fixture
async def session() -> AsyncGenerator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0, ssl=False)
    async with aiohttp.ClientSession(connector=connector, connector_owner=False, headers={"Host": NAME}) as one:
        yield one
    # A connection with TLS would say goodbye when nobody listens any more.
    await connector.close(abort_ssl=True)
    # What was aborted is closed within the next turns of the loop.
    for _ in range(10):
        await asyncio.sleep(0)


class Client:
    def __init__(self, site: Site, session: aiohttp.ClientSession, role: str) -> None:
        self.url = f"https://127.0.0.1:{site.port}"
        self.session = session
        self.headers = {"Authorization": f"Bearer {site.tokens[role]}"}

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        body = request_body("tools/call", {"name": tool, "arguments": arguments})
        headers = {**request_headers("tools/call", tool), **self.headers}
        async with self.session.post(f"{self.url}/mcp", data=body, headers=headers) as response:
            answer = await response.read()
            assert response.status == 200, (tool, response.status, answer)
            return tool_result(answer, response.headers["content-type"])


class Traffic:
    """Clients that go through whole reviews until they are stopped. Any failed call fails the test."""

    def __init__(self, site: Site, session: aiohttp.ClientSession, project: str, *, waits: bool) -> None:
        self.proposer, self.reviewer = Client(site, session, "proposer"), Client(site, session, "reviewer")
        self.project = project
        self.waits = waits
        self.stopping = asyncio.Event()
        self.numbers = itertools.count()
        self.closed: list[str] = []
        self.more = asyncio.Event()

    async def run(self) -> None:
        while not self.stopping.is_set():
            await self._one(f"{self.project} {next(self.numbers)}")
            self.more.set()

    async def _one(self, intent: str) -> None:
        """No call here has a key of its own: the proxy names the requests."""
        proposal = {**PROPOSAL, "intent": intent, "project": self.project}
        review_id = (await self.proposer("create_review", **proposal))["review_id"]
        claim = await self.reviewer("claim_review", review_id=review_id, reviewer_id="codex")
        async with asyncio.TaskGroup() as group:
            if self.waits:
                group.create_task(self._verdict(review_id, claim["version"]))
            await self.reviewer("add_message", review_id=review_id, sender_role="reviewer", body=f"about {intent}")
            given = {"review_id": review_id, "verdict": "approved", "claim_generation": claim["claim_generation"]}
            await self.reviewer("submit_verdict", **given)
        await self.proposer("close_review", review_id=review_id)
        self.closed.append(intent)

    async def _verdict(self, review_id: str, since: int) -> None:
        while True:
            waiting = {"review_id": review_id, "wait": True, "wait_seconds": 60, "since": since}
            status = await self.proposer("get_review_status", **waiting)
            if status["status"] == "approved":
                return
            since = status["version"]

    async def until_more(self, count: int) -> None:
        wanted = len(self.closed) + count
        while len(self.closed) < wanted:
            self.more.clear()
            await self.more.wait()


@contextlib.asynccontextmanager
async def traffic(site: Site, session: aiohttp.ClientSession, project: str, *, waits: bool) -> AsyncGenerator[Traffic]:
    one = Traffic(site, session, project, waits=waits)
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(one.run())
        yield one
        one.stopping.set()


def require_once(site: Site, done: Traffic) -> None:
    copy = copy_of(site.url, site.folder)
    assert problems(copy) == []
    events = events_of(copy)
    created = [event.metadata["intent"] for event in events if event.event_type == "review_created"]
    said = [event.metadata["body_preview"] for event in events if event.event_type == "message_sent"]
    assert len(created) == len(set(created))
    assert len(said) == len(set(said))
    assert set(done.closed) <= set(created)


async def test_brokers_restarted_one_after_the_other_fail_no_call(site: Site, session: aiohttp.ClientSession) -> None:
    async with traffic(site, session, "rolling", waits=True) as running:
        for broker in [*site.brokers, *site.brokers]:
            await running.until_more(CLIENTS)
            assert await asyncio.to_thread(broker.stop, signal.SIGTERM) == 0
            await running.until_more(CLIENTS)
            await asyncio.to_thread(broker.start, port=broker.port)
        await running.until_more(CLIENTS)
    note(rolling_restarts=4, whole_reviews=len(running.closed), failed_calls=0)
    await asyncio.to_thread(require_once, site, running)


async def test_a_broker_that_is_killed_fails_no_call_and_doubles_none(
    site: Site, session: aiohttp.ClientSession
) -> None:
    async with traffic(site, session, "killed", waits=False) as running:
        for broker in [*site.brokers, *site.brokers, *site.brokers]:
            await running.until_more(CLIENTS)
            assert await asyncio.to_thread(broker.stop, signal.SIGKILL) == -signal.SIGKILL
            await running.until_more(CLIENTS)
            await asyncio.to_thread(broker.start, port=broker.port)
    note(kills=6, whole_reviews=len(running.closed), failed_calls=0)
    await asyncio.to_thread(require_once, site, running)


async def test_a_client_of_an_older_revision_needs_no_session(site: Site, session: aiohttp.ClientSession) -> None:
    """Each request reaches the next broker."""
    client = Client(site, session, "proposer")
    headers = {
        **client.headers,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }

    async def post(number: int | None, method: str, params: dict[str, Any]) -> aiohttp.ClientResponse:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
        response = await session.post(f"{client.url}/mcp", data=json.dumps(message), headers=headers)
        await response.read()
        return response

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    begun = await post(1, "initialize", hello)
    assert (begun.status, "mcp-session-id" in begun.headers) == (200, False)
    assert (await post(None, "notifications/initialized", {})).status == 202
    statuses = [(await post(2, "tools/list", {})).status for _ in range(4)]
    for number in range(4):
        answer = await post(3 + number, "tools/call", {"name": "list_reviews", "arguments": {}})
        assert tool_result(await answer.read(), answer.headers["content-type"])["changed"] is True
    assert statuses == [200] * 4


async def test_a_person_signs_in_and_acts_whichever_broker_answers(site: Site, session: aiohttp.ClientSession) -> None:
    ada = Client(site, session, "human")
    review_id = (await Client(site, session, "proposer")("create_review", **PROPOSAL))["review_id"]
    async with session.post(f"{ada.url}/api/sign-in", json={"page": f"/r/{review_id}"}, headers=ada.headers) as made:
        path = (await made.json())["path"]
    async with session.get(f"{ada.url}{path}", allow_redirects=False) as signed_in:
        assert (signed_in.status, signed_in.headers["location"]) == (303, f"/r/{review_id}")
        cookie = signed_in.headers["set-cookie"]
    assert "Secure" in cookie
    browser = {"Cookie": cookie.split(";")[0], "Origin": f"https://{NAME}"}
    for _ in range(3):
        async with session.get(f"{ada.url}/r/{review_id}", headers=browser) as page:
            assert page.status == 200
            token = (await page.text()).split('name="token" value="')[1].split('"')[0]
    form = {"token": token, "body": "from a browser"}
    async with session.post(
        f"{ada.url}/r/{review_id}/claim", data=form, headers=browser, allow_redirects=False
    ) as acted:
        assert acted.status == 303


async def test_events_come_through_as_they_happen(site: Site, session: aiohttp.ClientSession) -> None:
    ada = Client(site, session, "human")
    async with session.get(f"{ada.url}/events", headers=ada.headers) as stream:
        assert stream.status == 200
        made = asyncio.create_task(Client(site, session, "proposer")("create_review", **PROPOSAL, project="events"))
        review_id = (await made)["review_id"]
        async with asyncio.timeout(60):
            async for line in stream.content:
                if review_id.encode() in line:
                    break
        # The stream does not end by itself, and a goodbye by TLS would wait for its end.
        assert stream.connection is not None
        assert stream.connection.transport is not None
        stream.connection.transport.abort()
