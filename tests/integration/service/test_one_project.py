"""The holder of a project's token: other projects do not exist, whatever is asked and wherever."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from gsd_review_broker.ports.store import Transaction
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.secured import Holder, holder
from tests.support.stores import STORES, on_each_store

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Street:
    """Two shops on one broker, and those who may enter."""

    broker: LocalBroker
    # Sees everything.
    everybody: Holder
    # A person, a proposer and a reviewer of the bakery.
    person: Holder
    baker: Holder
    taster: Holder
    bread: str
    meat: str


# One broker for all tests on one store.
database_kind = pytest.fixture(scope="module", params=STORES)(on_each_store)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def street(database_kind: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Street]:
    async with local_broker(tmp_path_factory.mktemp("street"), auth="token") as broker:
        everybody = await holder(broker, "human", "mayor")
        meat = (await everybody.create(project="butcher", intent="Cut the MEAT"))["review_id"]
        await everybody.create(project="butcher", intent="More MEAT", agent_type="planner")
        baker = await holder(broker, "proposer", "baker", project="bakery")
        bread = (await baker.create(intent="Bake BREAD"))["review_id"]
        assert broker.store.is_shared == (database_kind == "postgres")
        yield Street(
            broker,
            everybody,
            await holder(broker, "human", "miller", project="bakery"),
            baker,
            await holder(broker, "reviewer", "taster", project="bakery"),
            bread,
            meat,
        )


async def refused(calling: Any) -> str:
    with pytest.raises(ToolError) as error:
        await calling
    return error.value.code


async def test_a_proposal_takes_the_tokens_project_and_no_other(street: Street) -> None:
    assert (await street.baker("get_proposal", review_id=street.bread))["project"] == "bakery"
    assert await refused(street.baker.create(project="butcher")) == "forbidden"
    assert (await street.person.get("/api/whoami")).message["project"] == "bakery"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get_review_status", {}),
        ("get_proposal", {}),
        ("get_discussion", {}),
        ("get_review_timeline", {}),
        ("get_audit_log", {}),
        ("claim_review", {"reviewer_id": "human:miller"}),
        ("submit_verdict", {"verdict": "approved", "claim_generation": 1}),
        ("submit_verdict", {"verdict": "comment", "reason": "r", "claim_generation": 1, "findings": []}),
        ("release_claim", {"claim_generation": 1}),
        ("add_message", {"sender_role": "proposer", "body": "b"}),
        ("resolve_finding", {"finding_id": "f", "disposition": "fixed"}),
        ("close_review", {}),
        ("accept_counter_patch", {}),
        ("reject_counter_patch", {}),
        ("create_review", {"intent": "i", "agent_type": "a", "agent_role": "proposer", "phase": "1"}),
    ],
)
async def test_a_review_of_another_project_answers_as_one_that_does_not_exist(
    street: Street, tool: str, arguments: dict[str, Any]
) -> None:
    errors: list[str] = []
    for review_id in (street.meat, "0123456789abcdef"):
        with pytest.raises(ToolError) as error:
            await street.person(tool, review_id=review_id, **arguments)
        assert error.value.code == "not_found"
        errors.append(str(error.value).replace(review_id, "ID"))
    assert errors[0] == errors[1]


async def test_a_prefix_and_a_parent_are_not_found_either(street: Street) -> None:
    assert await refused(street.person("get_review_status", review_id=street.meat[:8])) == "not_found"
    assert await refused(street.baker.create(parent_id=street.meat)) == "not_found"
    assert await refused(street.person("list_reviews", parent_id=street.meat)) == "not_found"
    assert (await street.person("get_review_status", review_id=street.bread[:8]))["review_id"] == street.bread


async def test_lists_feeds_counts_and_the_audit_have_one_project(street: Street) -> None:
    person = street.person
    for tool in ("list_reviews", "get_activity_feed"):
        assert [row["project"] for row in (await person(tool))["reviews"]] == ["bakery"]
        assert (await person(tool, project="butcher"))["reviews"] == []
    assert (await person("get_review_stats"))["total_reviews"] == 1
    assert (await person("get_review_stats", project="butcher"))["total_reviews"] == 0
    status, whole = await person("broker_status"), await street.everybody("broker_status")
    assert status["queue"] == {"critical": 0, "normal": 1, "low": 0}
    assert whole["queue"] == {"critical": 1, "normal": 2, "low": 0}
    assert (
        status["oldest_pending_at"]
        == status["last_activity_at"]
        == (await person("list_reviews"))["reviews"][0]["created_at"]
    )
    assert {event["review_id"] for event in (await person("get_audit_log"))["events"]} == {street.bread}


async def test_a_sparse_project_pages_through_the_audit(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the other tests did to its review is there too.
    every = (await street.person("get_audit_log"))["events"]
    monkeypatch.setattr("gsd_review_broker.service.queries.reviews._LOOKS", 1)
    monkeypatch.setattr("gsd_review_broker.service.queries.reviews._LOOKED_AT_ONCE", 2)
    events: list[Any] = []
    page = await street.person("get_audit_log", limit=1)
    assert page["events"] == []
    while True:
        events += page["events"]
        if page["next_cursor"] is None:
            break
        page = await street.person("get_audit_log", limit=1, after=page["next_cursor"])
    assert events == every
    assert events[0]["event_type"] == "review_created"


async def test_work_is_claimed_in_one_project(street: Street) -> None:
    claim = await street.taster("claim_next", reviewer_id="taster")
    assert claim["review_id"] == street.bread
    await street.taster("release_claim", review_id=street.bread, claim_generation=claim["claim_generation"])
    assert (await street.taster("claim_next", reviewer_id="taster", project="butcher")) == {"claimed": False}


@pytest.mark.parametrize(
    "path",
    ["/", "/reviews", "/phases", "/reviews?project=butcher", "/audit", "/insights", "/gate", "/pool"],
)
async def test_pages_show_one_project(street: Street, path: str) -> None:
    page = await street.person.get(path)
    assert page.status == 200
    assert "MEAT" not in page.text
    assert street.meat not in page.text
    everything = await street.everybody.get(path)
    if path in {"/", "/reviews"}:
        assert street.meat in everything.text
    if path == "/phases":
        assert ("butcher" in page.text, "butcher" in everything.text) == (False, True)


async def test_routes_know_one_project(street: Street) -> None:
    person = street.person
    export = "/audit/export.jsonl"
    assert street.bread in (await person.get(export)).text
    assert street.meat not in (await person.get(export)).text
    assert street.meat in (await street.everybody.get(export)).text
    for path in (f"/r/{street.meat}", f"/r/{street.meat}/live", f"/events?review={street.meat}"):
        assert (await person.get(path)).status == 404
        assert (await person.get(path.replace(street.meat, "0123456789abcdef"))).status == 404
    body = b'{"reviewer_id": "human:miller", "verdict": "approved"}'
    assert (await person.post(f"/api/reviews/{street.meat}/verdict", body)).status == 404
    assert (await person.post(f"/api/reviews/{street.meat}/take-over", b'{"person": "human:miller"}')).status == 404
    assert (await person.post(f"/api/gate/receipts/{street.meat}", b"{}")).status == 404
    assert b"tandem_reviews_created_total 1.0" in (await person.get("/metrics")).body


async def test_what_is_for_the_whole_broker_is_forbidden(street: Street) -> None:
    for path, body in (("pause", b"{}"), ("resume", b"{}"), ("scale", b'{"max_pool_size": 2}')):
        assert (await street.person.post(f"/api/pool/{path}", body)).status == 403
    assert (await street.person.post("/api/pool/spawn", b'{"project": "butcher"}')).status == 403
    override = b'{"folder": "/x/.git", "reason": "in a hurry", "elsewhere": true}'
    answer = await street.person.post("/api/gate/override", override)
    assert (answer.status, "for the whole broker" in answer.text) == (403, True)
    assert (await street.everybody.post("/api/gate/override", override)).status == 200
    admin = await holder(street.broker, "admin", "root", project="bakery")
    assert (await admin.get("/api/tokens")).status == 403
    assert (await admin.post("/api/db/prune", b'{"closed_before": "2020-01-01"}')).status == 403
    await street.broker.application.broker.tokens.revoke("root")


async def test_what_the_store_offers_and_a_project_was_not_given_raises(street: Street) -> None:
    """A method that is added to the store is missing here, until it is narrowed or forwarded by its name."""
    for_the_whole_broker = {
        "announce", "expired_claims", "failure", "forget_keys_before", "lock_open_work", "lock_token", "lock_work_of",
        "pause_pool", "reservation_ended", "reviewer_ids", "reviewers_of_silent_brokers", "revoke_token",
        "save_failure", "save_heartbeat", "save_override", "save_reviewer", "save_sign_in_link", "save_token",
        "save_work", "shift_deadlines", "take_sign_in_link", "token", "tokens",
    }  # fmt: skip
    store = street.broker.application.broker.for_project("bakery").review_queries._core.store
    named = await store.write(lambda tx: {name for name in dir(tx) if not name.startswith("_")} - {"whole"})
    every = {name for name in dir(Transaction) if not name.startswith("_")}
    assert every - named == for_the_whole_broker
    assert named - every == set()
    with pytest.raises(AttributeError):
        await store.read(lambda reader: reader.tokens(1))
