"""A proxy in front of two brokers of one database: each request of one client may reach the other broker."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gsd_review_broker import server
from gsd_review_broker.settings.schema import Settings
from gsd_review_broker.web.edge import Admission, Edge, Guard
from tests.support import postgres
from tests.support.asgi import request
from tests.support.local import PROPOSAL, LocalBroker, MovableClock, local_broker
from tests.support.mcp import ToolError, request_body, request_headers, tool_result
from tests.support.secured import Holder, holder

Pair = tuple[LocalBroker, LocalBroker]
PROXY, STRANGER = "10.0.0.7", "10.0.0.8"


@pytest.fixture
async def pair(postgres_database: str, tmp_path: Path) -> AsyncGenerator[Pair]:
    await postgres.emptied(postgres_database)
    clock, settings = MovableClock(), {"db": postgres_database, "auth": "token"}
    async with (
        local_broker(tmp_path, clock=clock, **settings) as one,
        local_broker(tmp_path, clock=clock, instance="two", **settings) as other,
    ):
        yield one, other


async def link(of: Holder, page: str = "/") -> str:
    return (await of.post("/api/sign-in", json.dumps({"page": page}).encode())).message["path"]


async def form_token(of: Holder, review_id: str) -> str:
    page = await of.get(f"/r/{review_id}")
    return page.text.split('name="token" value="')[1].split('"')[0]


async def test_a_sign_in_link_of_one_broker_works_on_the_other_and_once(pair: Pair) -> None:
    one, other = pair
    path = await link(await holder(one, "human", "ada"), "/reviews")
    answers = [await Holder(broker, None).get(path) for broker in (other, one, other)]
    assert [answer.status for answer in answers] == [303, 401, 401]
    cookie = answers[0].headers["set-cookie"].split(";")[0]
    for broker in pair:
        assert (await Holder(broker, None, cookie=cookie).get("/")).status == 200


async def test_the_database_holds_neither_a_links_code_nor_its_token(tmp_path: Path) -> None:
    async with local_broker(tmp_path, auth="token") as broker:
        ada = await holder(broker, "human", "ada")
        code = (await link(ada)).partition("code=")[2]
        content = b"".join(path.read_bytes() for path in tmp_path.glob("broker.sqlite3*"))
        assert ada.token is not None
        for secret in (code, ada.token):
            assert secret.encode() not in content
            assert secret.encode().hex().encode() not in content


async def test_expired_links_are_removed(tmp_path: Path) -> None:
    async with local_broker(tmp_path, auth="token") as broker:
        ada = await holder(broker, "human", "ada")
        first = await link(ada)
        broker.clock.pass_time(60)
        await link(ada)
        with contextlib.closing(sqlite3.connect(broker.database)) as connection:
            assert connection.execute("SELECT count(*) FROM sign_in_links").fetchall() == [(1,)]
        assert (await Holder(broker, None).get(first)).status == 401


async def test_without_the_database_nobody_signs_in(tmp_path: Path) -> None:
    async with local_broker(tmp_path, auth="off") as broker:
        await broker.store.close()
        assert (await Holder(broker, None).get("/sign-in?code=x")).status == 503


async def test_a_form_of_a_page_of_one_broker_is_taken_by_the_other(pair: Pair) -> None:
    one, other = pair
    ada = await holder(one, "human", "ada")
    review_id = (await (await holder(one, "proposer", "bo")).create())["review_id"]
    token = await form_token(ada, review_id)
    assert (await Holder(other, ada.token).form(f"/r/{review_id}/claim", {"token": token})).status == 303


async def test_a_form_with_the_token_of_somebody_else_is_refused(pair: Pair) -> None:
    one, _ = pair
    ada, eve = await holder(one, "human", "ada"), await holder(one, "human", "eve")
    review_id = (await (await holder(one, "proposer", "bo")).create())["review_id"]
    token = await form_token(eve, review_id)
    assert (await ada.form(f"/r/{review_id}/claim", {"token": token})).status == 403


async def sent(broker: LocalBroker, of: Holder, key: str, tool: str, **arguments: Any) -> Any:
    body = request_body("tools/call", {"name": tool, "arguments": arguments})
    headers = {**request_headers("tools/call", tool), **of.headers, "idempotency-key": key}
    answer = await request(broker.application.asgi, "POST", "/mcp", body=body, headers=headers)
    return tool_result(answer.body, answer.kind)


async def test_a_request_that_a_proxy_repeats_on_the_other_broker_is_done_once(pair: Pair) -> None:
    one, other = pair
    bo = await holder(one, "proposer", "bo")
    answers = [await sent(broker, bo, "request-1", "create_review", **PROPOSAL) for broker in (one, other)]
    assert answers[0] == answers[1]
    assert (await sent(other, bo, "request-2", "create_review", **PROPOSAL))["review_id"] != answers[0]["review_id"]
    assert (await bo("get_review_stats"))["total_reviews"] == 2


async def test_a_calls_own_key_counts_more_than_the_header_and_a_read_ignores_it(pair: Pair) -> None:
    one, _ = pair
    bo = await holder(one, "proposer", "bo")
    own = [await sent(one, bo, f"r{n}", "create_review", **PROPOSAL, idempotency_key="mine") for n in range(2)]
    assert own[0] == own[1]
    assert (await sent(one, bo, "r9", "get_review_stats"))["total_reviews"] == 1
    with pytest.raises(ToolError, match="was used for another create_review call"):
        await sent(one, bo, "mine", "create_review", **{**PROPOSAL, "intent": "Another"})


async def test_a_call_that_is_cut_off_by_a_stop_is_unavailable(tmp_path: Path) -> None:
    """503 and not 500, so that a proxy asks another broker."""
    working = asyncio.Event()

    async def never(_scope: Scope, _receive: Receive, _send: Send) -> None:
        working.set()
        await asyncio.Event().wait()

    async with local_broker(tmp_path) as broker:
        call = asyncio.create_task(request(edge_before(never, broker), "POST", "/mcp"))
        await working.wait()
        call.cancel()
        answer = await call
    assert (answer.status, answer.message["error"]["code"]) == (503, "unavailable")


async def test_an_answer_that_has_begun_is_not_given_twice(tmp_path: Path) -> None:
    """The server refuses a second beginning; the call ends as it would without us."""
    begun = asyncio.Event()

    async def half(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        await asyncio.Event().wait()

    sent: list[Message] = []

    async def send(message: Message) -> None:
        if sent:
            raise RuntimeError("the answer has begun")
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"127.0.0.1:8321")]}
    async with local_broker(tmp_path) as broker:
        call = asyncio.create_task(edge_before(half, broker)(scope, receive, send))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert [message["type"] for message in sent] == ["http.response.start"]


def edge_before(endpoint: ASGIApp, broker: LocalBroker) -> Edge:
    services = broker.application.broker
    return Edge(
        Guard(hosts=["127.0.0.1:8321"], origins=[], body_limit=1_000),
        Admission(services.identification, services.gatekeeper, tools=["/mcp"]),
        endpoints={"/mcp": endpoint},
        pages=endpoint,
    )


def as_uvicorn_runs_it(broker: LocalBroker, *trusted: str) -> ASGIApp:
    """The application with the layer that uvicorn puts around it, which reads what proxies say."""
    configuration = server._uvicorn_config(broker.application, Settings(trusted_proxies=list(trusted)))
    configuration.load()
    return configuration.loaded_app


@pytest.mark.parametrize(
    ("trusted", "sender", "is_secure"),
    [
        ((PROXY,), PROXY, True),
        (("10.0.0.0/24",), PROXY, True),
        ((PROXY,), STRANGER, False),
        ((), PROXY, False),
        ((), "127.0.0.1", False),
    ],
)
async def test_what_a_proxy_says_about_a_request_counts_only_if_it_is_trusted(
    tmp_path: Path, trusted: tuple[str, ...], sender: str, *, is_secure: bool
) -> None:
    """The cookie is for HTTPS alone where the browser speaks HTTPS, and only a trusted proxy knows that it does."""
    async with local_broker(tmp_path, auth="token") as broker:
        path = await link(await holder(broker, "human", "ada"))
        answer = await request(
            as_uvicorn_runs_it(broker, *trusted),
            "GET",
            path,
            headers={"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"},
            client=(sender, 1),
        )
        assert answer.status == 303
        assert ("secure" in answer.headers["set-cookie"].lower().split("; ")) is is_secure


async def test_a_trusted_proxys_public_name_counts_as_https_alone(tmp_path: Path) -> None:
    settings = {"auth": "token", "allowed_hosts": ["reviews.example.org"], "trusted_proxies": [PROXY]}
    async with local_broker(tmp_path, **settings) as broker:
        statuses = [
            (
                await request(
                    broker.application.asgi,
                    "GET",
                    "/healthz",
                    headers={"host": "reviews.example.org", "origin": f"{scheme}://reviews.example.org"},
                )
            ).status
            for scheme in ("https", "http")
        ]
    assert statuses == [200, 403]
