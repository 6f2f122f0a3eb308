"""`/pool` with reviewers of every kind: what it shows, and what its switches ask for."""

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette

from gsd_review_broker.web.insights_page import cost_of
from gsd_review_broker.web.pool_page import PoolPage
from gsd_review_broker.web.site import Site
from tests.support.local import LocalBroker

ROW: dict[str, Any] = {
    "id": "codex-r1-1a2b3c4d", "display_name": "codex-r1", "agent": "codex", "model": "gpt", "project": None,
    "state": "active", "pid": 4711, "current_review": "ab12cd34ab12cd34", "doing": "calls get_proposal <b>",
    "started_at": "2026-01-01T00:00:00.000Z", "last_activity_at": "2026-01-01T00:00:01.000Z", "ended_at": None,
    "end_reason": None, "exit_code": None, "reviews_completed": 2, "avg_review_seconds": 81.5,
    "approval_rate_pct": 50.0, "input_tokens": 1000, "output_tokens": 200, "cost_usd": 0.25,
}  # fmt: skip
ENDED = {
    **ROW, "id": "claude-r2-1a2b3c4d", "display_name": "claude-r2", "state": "terminated", "pid": None, "doing": None,
    "current_review": None, "ended_at": "2026-01-01T00:10:00.000Z", "end_reason": "idle", "exit_code": 0,
    "approval_rate_pct": None, "input_tokens": None, "output_tokens": None, "cost_usd": None,
}  # fmt: skip
STATE: dict[str, Any] = {
    "enabled": True, "paused": False, "agent": "codex", "model": "gpt", "max_pool_size": 3, "pending": 4,
    "spawns_today": 3, "max_spawns_per_day": 200, "tokens_today": 120345, "max_tokens_per_day": None,
    "next_spawn_at": None, "problem": "codex was not found on the PATH", "reviewers": [ROW, ENDED],
}  # fmt: skip


class Scripted:
    """The pool's service with the shapes that it promises: writes down what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def state(self) -> dict[str, Any]:
        return STATE

    async def log(self, reviewer_id: str, characters: int) -> dict[str, Any]:
        return {"reviewer_id": reviewer_id, "display_name": "codex-r1", "text": "\x1b[31m<script>", "left_out": True}

    async def spawn(self, agent: str | None = None, project: str | None = None) -> None:
        self.asked.append(("spawn", agent, project))

    async def kill(self, reviewer_id: str, force: bool = False) -> None:
        self.asked.append(("kill", reviewer_id, force))

    async def pause(self) -> None:
        self.asked.append(("pause",))

    async def resume(self) -> None:
        self.asked.append(("resume",))

    async def scale(self, max_pool_size: int) -> None:
        self.asked.append(("scale", max_pool_size))


def site_of(broker: LocalBroker, reviewers: Any) -> Site:
    services = broker.application.broker
    parts = SimpleNamespace(
        pages=services.pages, inboxes=services.inboxes, insight=services.insight, reviewers=reviewers
    )
    return Site(parts, person="human:ada", serves="x", url="http://x", form_limit=10_000)  # type: ignore[arg-type]


async def ask(
    site: Site, method: str, path: str, query: str = "", fields: dict[str, str] | None = None
) -> tuple[int, str]:
    sent: list[Any] = []
    body = urlencode({"token": site.token.value, **(fields or {})}).encode()
    headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"x")]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": headers, "scheme": "http", "server": ("x", 80), "root_path": "",
    }  # fmt: skip
    await Starlette(routes=PoolPage(site).routes())(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]).decode()


async def test_a_broker_without_a_pool_says_how_to_turn_it_on(broker: LocalBroker) -> None:
    status, page = await ask(site_of(broker, None), "GET", "/pool")
    assert status == 200
    assert "tandem pool enable" in page
    assert (await ask(site_of(broker, None), "POST", "/pool/pause"))[0] == 503


async def test_each_reviewer_is_shown_with_what_it_does_and_its_log(broker: LocalBroker) -> None:
    status, page = await ask(site_of(broker, Scripted()), "GET", "/pool", "log=codex-r1-1a2b3c4d")
    assert status == 200
    for said in ("1 of at most 3 reviewers run; 4 reviews wait", "calls get_proposal &lt;b&gt;", "pid 4711",
                 "50 % approved",
                 "1200 tokens, 0.25 USD", "codex was not found on the PATH", "claude-r2", "idle (0)", "U+001B",
                 "[31m&lt;script&gt;"):  # fmt: skip
        assert said in page, said


async def test_every_switch_asks_the_pool_and_comes_back(broker: LocalBroker) -> None:
    pool = Scripted()
    site = site_of(broker, pool)
    asked = [
        ("pause", {}), ("resume", {}), ("scale", {"max_pool_size": "5"}), ("spawn", {"agent": "claude", "project": ""}),
        ("drain", {"reviewer_id": "codex-r1"}), ("kill", {"reviewer_id": "codex-r1"}),
    ]  # fmt: skip
    for what, fields in asked:
        assert (await ask(site, "POST", f"/pool/{what}", fields=fields))[0] == 303
    assert pool.asked == [
        ("pause",), ("resume",), ("scale", 5), ("spawn", "claude", None), ("kill", "codex-r1", False),
        ("kill", "codex-r1", True),
    ]  # fmt: skip
    assert (await ask(site, "POST", "/pool/nosuch"))[0] == 404
    assert (await ask(site, "POST", "/pool/pause", fields={"token": "wrong"}))[0] == 403


def test_cost_is_told_by_agent_where_it_is_reported() -> None:
    chart = cost_of([ROW, {**ROW, "cost_usd": None}, ENDED, {**ROW, "agent": "claude", "output_tokens": None}])
    assert chart.rows == (("codex", "2400", "0.25"), ("claude", "1000", "0.25"))
