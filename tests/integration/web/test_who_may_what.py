"""Every route and every tool, for every role and for every token that is not one: the product's table, section Tokens.

One broker for the whole table. What a request asks is wrong in itself (a review that does not exist), so an admitted
call changes nothing; only whether it is admitted counts.
"""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.mcp.tools import REGISTRY
from tests.support.asgi import AsgiAnswer
from tests.support.local import PROPOSAL, LocalBroker, local_broker
from tests.support.mcp import request_body, request_headers
from tests.support.secured import FORM, Holder, holder

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLES = ("proposer", "reviewer", "observer", "human", "admin")
EVERYBODY = frozenset(ROLES)
PEOPLE = frozenset({"human", "admin"})
PROPOSERS, REVIEWERS = PEOPLE | {"proposer"}, PEOPLE | {"reviewer"}
TALKERS = PROPOSERS | REVIEWERS
ADMIN = frozenset({"admin"})
NONE = "0123456789abcdef"
GATE = "application/x-tandem-gate"

# Who may call which tool, and with what: valid arguments, about a review that does not exist.
ID: dict[str, Any] = {"review_id": NONE}
TOOLS: dict[str, tuple[frozenset[str], dict[str, Any]]] = {
    "create_review": (PROPOSERS, {**PROPOSAL, **ID}),
    "accept_counter_patch": (PROPOSERS, ID),
    "reject_counter_patch": (PROPOSERS, ID),
    "close_review": (PROPOSERS, ID),
    "claim_next": (REVIEWERS, {"reviewer_id": "SELF"}),
    "claim_review": (REVIEWERS, {**ID, "reviewer_id": "SELF"}),
    "submit_verdict": (REVIEWERS, {**ID, "verdict": "approved", "claim_generation": 1}),
    "release_claim": (REVIEWERS, {**ID, "claim_generation": 1}),
    "add_message": (TALKERS, {**ID, "sender_role": "proposer", "body": "hello"}),
    "resolve_finding": (TALKERS, {**ID, "finding_id": "f", "disposition": "fixed"}),
    "get_review_status": (EVERYBODY, ID),
    "get_proposal": (EVERYBODY, ID),
    "list_reviews": (EVERYBODY, {}),
    "get_discussion": (EVERYBODY, ID),
    "get_activity_feed": (EVERYBODY, {}),
    "get_audit_log": (EVERYBODY, {}),
    "get_review_timeline": (EVERYBODY, ID),
    "get_review_stats": (EVERYBODY, {}),
    "broker_status": (EVERYBODY, {}),
    "spawn_reviewer": (PEOPLE, {}),
    "kill_reviewer": (PEOPLE, {"reviewer_id": "nobody"}),
    "list_reviewers": (EVERYBODY, {}),
}
# Method, path, content type, and who may. A path of every kind of route; the actions of a page are listed below.
ROUTES: list[tuple[str, str, str, frozenset[str]]] = [
    *(("GET", path, "", EVERYBODY) for path in (
        "/", "/reviews", f"/r/{NONE}", f"/r/{NONE}/live", "/pool", "/gate", "/insights", "/audit", "/nowhere",
        "/phases", "/metrics", f"/events?review={NONE}",
        f"/r/{NONE}/file", "/audit/export.jsonl", "/static/0/nothing", "/api/pool", "/api/problems", "/api/whoami",
        "/api/pool/reviewers/nobody/log",
    )),
    *(("POST", f"/api/pool/{verb}", "application/json", PEOPLE) for verb in (
        "pause", "resume", "spawn", "scale", "reviewers/nobody/drain", "reviewers/nobody/kill",
    )),
    *(("POST", f"/r/{NONE}/{verb}", FORM, PEOPLE) for verb in (
        "claim", "release", "take-over", "verdict", "remark", "message", "resolve", "accept", "reject", "close",
    )),
    *(("POST", f"/pool/{verb}", FORM, PEOPLE) for verb in ("pause", "resume", "spawn")),
    ("POST", f"/api/reviews/{NONE}/take-over", "application/json", PEOPLE),
    ("POST", f"/api/reviews/{NONE}/verdict", "application/json", REVIEWERS),
    ("POST", "/api/gate/override", "application/json", PEOPLE),
    ("POST", "/api/gate/check", GATE, EVERYBODY),
    ("POST", f"/api/gate/receipts/{NONE}", "application/json", EVERYBODY),
    ("POST", "/api/gate/receipts/override", "application/json", EVERYBODY),
    ("POST", "/api/gate/landed", GATE, PROPOSERS),
    ("POST", "/api/db/prune", "application/json", ADMIN),
    ("POST", "/api/tokens", "application/json", ADMIN),
    ("GET", "/api/tokens", "", ADMIN),
    ("POST", "/api/tokens/revoke", "application/json", ADMIN),
    ("POST", "/api/sign-in", "application/json", EVERYBODY),
    ("POST", "/a/new/route", "application/json", PEOPLE),
]  # fmt: skip
PATHS = ("/mcp", "/mcp/proposer", "/mcp/reviewer", "/mcp/observer")


class Table:
    def __init__(self, broker: LocalBroker, holders: dict[str, Holder], dead: dict[str, Holder]) -> None:
        self.broker = broker
        self.holders = holders
        self.dead = dead

    async def refusals(self) -> int:
        rows = await self.broker("get_audit_log", limit=500)
        seen = len(rows["events"])
        while rows["next_cursor"]:
            rows = await self.broker("get_audit_log", limit=500, after=rows["next_cursor"])
            seen += len(rows["events"])
        return seen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def table(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Table]:
    folder = tmp_path_factory.mktemp("table")
    async with local_broker(folder, auth="token") as broker:
        expired = await holder(broker, "admin", "expired", expires="1m")
        broker.clock.pass_time(60)
        revoked = await holder(broker, "admin", "revoked")
        await broker.application.broker.tokens.revoke("revoked")
        dead = {
            "no": Holder(broker, None),
            "wrong": Holder(broker, "tdm_wrong"),
            "expired": expired,
            "revoked": revoked,
        }
        # Neither another kind of token nor another way to send one counts.
        dead["of no process"] = Holder(broker, "tandem-reviewer-x")
        dead["basic"] = Holder(broker, None, authorization="Basic dGRtOng=")
        yield Table(broker, {role: await holder(broker, role) for role in ROLES}, dead)


async def asked(caller: Holder, method: str, path: str, kind: str) -> AsgiAnswer:
    return await (caller.get(path) if method == "GET" else caller.post(path, b"", kind))


def is_refusal(answer: AsgiAnswer) -> bool:
    """By the role, and not for what the request lacks: a form without its token is forbidden too."""
    return answer.status == 403 and b"does not allow it" in answer.body


@pytest.mark.parametrize("role", ROLES)
async def test_every_route_admits_the_roles_of_the_table_and_no_other(table: Table, role: str) -> None:
    before = await table.refusals()
    refused = 0
    for method, path, kind, allowed in ROUTES:
        answer = await asked(table.holders[role], method, path, kind)
        assert is_refusal(answer) == (role not in allowed), (role, method, path, answer.status, answer.text)
        assert answer.status != 401, (role, method, path)
        refused += role not in allowed
    assert await table.refusals() == before + refused


@pytest.mark.parametrize("role", ROLES)
async def test_every_tool_is_for_the_roles_of_the_table_and_no_other(table: Table, role: str) -> None:
    for tool, (allowed, arguments) in TOOLS.items():
        name = "human:human" if role == "human" else role
        given = {key: name if value == "SELF" else value for key, value in arguments.items()}
        answer = await table.holders[role].called(tool, **given)
        assert answer.status == 200, (role, tool, answer.text)
        result = answer.message["result"]
        code = result["structuredContent"]["error"]["code"] if result["isError"] else None
        is_side = role == "reviewer" and tool == "add_message"
        assert (code == "forbidden") == (role not in allowed) or is_side, (role, tool, code)


async def test_without_a_live_token_every_route_answers_401(table: Table) -> None:
    before = await table.refusals()
    for kind_of_token, caller in table.dead.items():
        for method, path, kind, _ in ROUTES:
            answer = await asked(caller, method, path, kind)
            assert (answer.status, answer.headers.get("www-authenticate")) == (401, "Bearer"), (kind_of_token, path)
        for path in PATHS:
            # The fast path, and what the SDK answers.
            for method, name in (("tools/call", "broker_status"), ("tools/list", None), ("initialize", None)):
                body, headers = request_body(method, {}), {**request_headers(method, name), **caller.headers}
                answer = await Holder(table.broker, None, **headers).post(path, body)
                assert (answer.status, answer.headers.get("www-authenticate")) == (401, "Bearer"), (kind_of_token, path)
    assert await table.refusals() == before


async def test_health_is_told_to_everybody_and_details_to_holders_only(table: Table) -> None:
    for caller in table.dead.values():
        answer = await caller.get("/healthz")
        assert (answer.status, set(answer.message)) == (200, {"status", "version"})
    for caller in table.holders.values():
        assert {"pid", "serves", "database"} <= set((await caller.get("/healthz")).message)


async def test_the_table_has_every_tool_and_every_route(table: Table) -> None:
    assert set(TOOLS) == set(REGISTRY.shown_to(Audience.ALL))
    asked_for = {(method, path.partition("?")[0]) for method, path, _, _ in ROUTES}
    asked_for |= {("GET", "/healthz"), ("GET", "/sign-in")}
    missing = [
        (method, route.path)
        for route in _routes(table.broker)
        for method in route.methods - {"HEAD"}
        if not any(known == method and route.path_regex.match(path) for known, path in asked_for)
    ]
    assert missing == []


def _routes(broker: LocalBroker) -> list[Any]:
    *early, pages = broker.application.routes
    return [*early, *(route for route in pages.endpoint._router.routes if route.path != "/{nowhere:path}")]
