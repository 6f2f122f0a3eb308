"""Signing in to the dashboard: a link that works once, and a cookie."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.support.asgi import AsgiAnswer, send_request
from tests.support.local import LocalBroker, local_broker
from tests.support.secured import Holder, holder


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncGenerator[LocalBroker]:
    async with local_broker(tmp_path, auth="token") as running:
        yield running


async def link(of: Holder, page: Any = "/") -> str:
    return (await of.post("/api/sign-in", json.dumps({"page": page}).encode())).message["path"]


async def signed_in(broker: LocalBroker, of: Holder) -> Holder:
    answer = await Holder(broker, None).get(await link(of))
    assert answer.status == 303
    return Holder(broker, None, cookie=answer.headers["set-cookie"].split(";")[0])


async def test_a_link_works_once_and_sets_a_strict_cookie(secured: LocalBroker) -> None:
    nobody, path = Holder(secured, None), await link(await holder(secured, "human", "ada"), "/reviews")
    first, second = await nobody.get(path), await nobody.get(path)
    assert (first.status, first.headers["location"]) == (303, "/reviews")
    attributes = first.headers["set-cookie"].lower().split("; ")[1:]
    assert {"httponly", "samesite=strict", "path=/"} <= set(attributes)
    assert second.status == 401
    assert "set-cookie" not in second.headers


async def test_a_link_is_over_after_a_minute(secured: LocalBroker) -> None:
    path = await link(await holder(secured, "human", "ada"))
    secured.clock.pass_time(60)
    assert (await Holder(secured, None).get(path)).status == 401


@pytest.mark.parametrize("page", ["//evil.example", "https://evil.example", "/\\evil.example", "/a?b", 7, None])
async def test_a_link_leads_to_a_page_of_ours(secured: LocalBroker, page: Any) -> None:
    path = await link(await holder(secured, "human", "ada"), page)
    assert (await Holder(secured, None).get(path)).headers["location"] == "/"


async def test_pages_and_forms_take_the_cookie_and_nothing_else_does(secured: LocalBroker) -> None:
    browser = await signed_in(secured, await holder(secured, "human", "ada"))
    review_id = (await (await holder(secured, "proposer", "bo")).create())["review_id"]
    page = await browser.get(f"/r/{review_id}")
    assert "ada" in page.text
    token = page.text.split('name="token" value="')[1].split('"')[0]
    assert (await browser.form(f"/r/{review_id}/claim", {"token": token})).status == 303
    assert (await browser.get("/api/whoami")).status == 401
    assert (await browser.called("broker_status")).status == 401


async def test_a_revoked_token_has_signed_out(secured: LocalBroker) -> None:
    browser = await signed_in(secured, await holder(secured, "observer", "eve"))
    assert (await browser.get("/")).status == 200
    await secured.application.broker.tokens.revoke("eve")
    assert (await browser.get("/")).status == 401


async def test_a_revoked_token_gets_no_more_events(secured: LocalBroker) -> None:
    eve, ada = await holder(secured, "observer", "eve"), await holder(secured, "proposer", "ada")
    headers = [(b"host", b"127.0.0.1:8321"), (b"authorization", f"Bearer {eve.token}".encode())]
    watching: asyncio.Task[AsgiAnswer | None] = asyncio.create_task(
        send_request(secured.application.asgi, headers, b"", method="GET", path="/events")
    )
    while not secured.application.wakeups._waiters:
        await asyncio.sleep(0)
    await secured.application.broker.tokens.revoke("eve")
    review_id = (await ada.create())["review_id"]
    answer = await watching
    assert answer is not None
    assert review_id not in answer.text


async def test_a_browser_without_a_cookie_is_told_what_to_run(secured: LocalBroker) -> None:
    answer = await Holder(secured, None, accept="text/html,*/*").get("/")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "tandem open" in answer.text


async def test_without_tokens_the_link_is_the_page(broker: LocalBroker) -> None:
    assert await link(Holder(broker, None), "/reviews") == "/reviews"
