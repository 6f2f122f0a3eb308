"""Tokens: who is let in, under which name, and until when."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.errors import BrokerError, Code
from tests.support.local import LocalBroker, MovableClock, local_broker
from tests.support.mcp import ToolError
from tests.support.secured import Holder, holder


@pytest.fixture
async def secured(tmp_path: Path, repository: Path) -> AsyncGenerator[LocalBroker]:
    async with local_broker(tmp_path, root=repository, auth="token") as running:
        yield running


async def refused(calling: Any) -> str:
    with pytest.raises(ToolError) as error:
        await calling
    assert error.value.hint
    return error.value.code


async def events(reader: Holder, kind: str) -> list[Any]:
    return [event for event in (await reader("get_audit_log"))["events"] if event["event_type"] == kind]


async def test_two_tokens_negotiate_a_review_under_their_own_names(secured: LocalBroker) -> None:
    proposer, reviewer = await holder(secured, "proposer", "ada"), await holder(secured, "reviewer", "bo")
    review_id = (await proposer.create())["review_id"]
    claim = await reviewer("claim_next", reviewer_id="BO")
    given = {"review_id": review_id, "claim_generation": claim["claim_generation"]}
    await reviewer("add_message", review_id=review_id, sender_role="reviewer", body="why?")
    await proposer("add_message", review_id=review_id, sender_role="proposer", body="because")
    await reviewer("submit_verdict", **given, verdict="approved")
    assert (await proposer("get_proposal", review_id=review_id))["proposer_id"] == "ada"
    assert (await proposer("get_review_status", review_id=review_id))["claimed_by"] == "bo"
    await proposer("close_review", review_id=review_id)
    told = (await proposer("get_audit_log", review_id=review_id))["events"]
    assert [event["actor"] for event in told] == ["ada", "bo", "bo", "ada", "bo", "ada"]
    messages = (await proposer("get_discussion", review_id=review_id))["messages"]
    assert [message["sender_id"] for message in messages] == ["bo", "ada"]


async def test_a_name_that_is_not_the_tokens_is_forbidden_and_recorded(secured: LocalBroker) -> None:
    proposer, reviewer = await holder(secured, "proposer", "ada"), await holder(secured, "reviewer", "bo")
    review_id = (await proposer.create())["review_id"]
    assert await refused(proposer.create(proposer_id="cy")) == "forbidden"
    assert await refused(reviewer("claim_review", review_id=review_id, reviewer_id="ada")) == "forbidden"
    assert await refused(reviewer("get_review_status", review_id=review_id, caller_id="ada")) == "forbidden"
    assert await refused(reviewer("list_reviews", reviewer_id="ada")) == "forbidden"
    told = [(event["actor"], event["metadata"]["tool"]) for event in await events(proposer, "access_refused")]
    tools = ["create_review", "claim_review", "get_review_status", "list_reviews"]
    assert told == list(zip(("ada", "bo", "bo", "bo"), tools, strict=True))


async def test_who_uploaded_under_one_name_cannot_approve_by_anothers_claim(secured: LocalBroker) -> None:
    person, reviewer = await holder(secured, "human", "ada"), await holder(secured, "reviewer", "bo")
    review_id = (await person.create())["review_id"]
    claim = await reviewer("claim_review", review_id=review_id, reviewer_id="bo")
    given = {"review_id": review_id, "claim_generation": claim["claim_generation"], "verdict": "approved"}
    assert await refused(person("submit_verdict", **given)) == "forbidden"
    assert await refused(person("submit_verdict", **given, reviewer_id="human:ada")) == "not_claimant"
    assert await refused(person("claim_review", review_id=review_id, reviewer_id="human:ada")) == "self_review"
    assert (await person("get_review_status", review_id=review_id))["status"] == "claimed"


async def test_only_its_proposer_a_person_or_an_administrator_closes_a_review(secured: LocalBroker) -> None:
    ada, other = await holder(secured, "proposer", "ada"), await holder(secured, "proposer", "other")
    for closer in (ada, await holder(secured, "human", "cy"), await holder(secured, "admin", "root")):
        review_id = (await ada.create())["review_id"]
        assert await refused(other("close_review", review_id=review_id)) == "forbidden"
        assert (await closer("close_review", review_id=review_id))["status"] == "closed"


async def test_an_administrator_acts_for_any_proposer_under_its_own_name(secured: LocalBroker) -> None:
    ada, bo = await holder(secured, "proposer", "ada"), await holder(secured, "reviewer", "bo")
    root = await holder(secured, "admin", "root")
    review_id = (await ada.create())["review_id"]
    claim = await bo("claim_review", review_id=review_id, reviewer_id="bo")
    await bo("submit_verdict", review_id=review_id, claim_generation=claim["claim_generation"],
             verdict="changes_requested", reason="no")  # fmt: skip
    await root.create(review_id=review_id, intent="as it should be")
    told = (await ada("get_audit_log", review_id=review_id))["events"]
    assert told[-1]["actor"] == "root"


async def test_a_token_is_dead_when_it_expires_or_is_revoked(tmp_path: Path, repository: Path) -> None:
    clock = MovableClock()
    async with local_broker(tmp_path, root=repository, auth="token", clock=clock) as broker:
        short, long = await holder(broker, "observer", "short", expires="2m"), await holder(broker, "observer", "long")
        assert (await short.called("list_reviews")).status == 200
        clock.pass_time(119)
        assert (await short.called("list_reviews")).status == 200
        clock.pass_time(1)
        dead = await short.called("list_reviews")
        assert (dead.status, dead.headers["www-authenticate"]) == (401, "Bearer")
        await broker.application.broker.tokens.revoke("LONG")
        assert (await long.called("list_reviews")).status == 401
        states = {row["name"]: row["state"] for row in (await broker.application.broker.tokens.listed())["tokens"]}
        assert states == {"short": "expired", "long": "revoked"}


async def test_a_token_that_is_nearly_right_is_nobodys(secured: LocalBroker) -> None:
    token = (await holder(secured, "observer", "eve")).token
    assert token is not None
    other = "a" if token[-1] != "a" else "b"
    for wrong in (token[:-1] + other, token[:-1], token + "a", token.swapcase(), "tdm_", ""):
        assert (await Holder(secured, wrong).called("list_reviews")).status == 401
    assert (await Holder(secured, token).called("list_reviews")).status == 200


async def test_a_name_is_free_again_when_its_token_is_dead(secured: LocalBroker) -> None:
    tokens = secured.application.broker.tokens
    first = await holder(secured, "observer", "ada", expires="1m")
    with pytest.raises(BrokerError) as taken:
        await holder(secured, "human", "ADA")
    assert taken.value.code is Code.CONFLICT
    secured.clock.pass_time(60)
    second = await holder(secured, "observer", "ada")
    assert (await first.called("list_reviews")).status == 401
    await tokens.revoke("ada")
    with pytest.raises(BrokerError) as gone:
        await tokens.revoke("ada")
    assert gone.value.code is Code.NOT_FOUND
    third = await holder(secured, "observer", "ada")
    assert [(await one.called("list_reviews")).status for one in (second, third)] == [401, 200]


@pytest.mark.parametrize(
    "wanted", [{"role": "king"}, {"name": "broker"}, {"project": "no such name"}, {"expires": "1y"}]
)
async def test_a_token_that_cannot_be_made_is_refused_with_the_argument(secured: LocalBroker, wanted: Any) -> None:
    with pytest.raises(BrokerError) as refusal:
        await holder(secured, **{"role": "observer", **wanted})
    assert refusal.value.code is Code.INVALID_ARGUMENT
    assert refusal.value.message.startswith(next(iter(wanted)))


async def test_the_database_holds_no_token(secured: LocalBroker) -> None:
    made = await holder(secured, "admin")
    assert made.token is not None
    assert made.token.startswith("tdm_")
    await secured.application.store.close()
    with sqlite3.connect(secured.database) as connection:
        assert made.token[4:] not in "\n".join(connection.iterdump())


async def test_each_holder_has_its_own_idempotency_keys(secured: LocalBroker) -> None:
    ada, bo = await holder(secured, "proposer", "ada"), await holder(secured, "proposer", "bo")
    first = await ada.create(idempotency_key="1")
    second = await bo.create(idempotency_key="1", intent="Something else")
    assert first["review_id"] != second["review_id"]
    assert (await ada.create(idempotency_key="1"))["review_id"] == first["review_id"]


async def test_who_has_no_proof_makes_no_token_even_where_callers_are_trusted(broker: LocalBroker) -> None:
    nobody = Holder(broker, None)
    assert (await nobody.post("/api/tokens", b'{"role": "admin"}')).status == 403
    assert (await nobody.get("/api/tokens")).status == 403
    assert (await nobody.post("/api/tokens/revoke", b'{"name": "x"}')).status == 403
    assert (await broker.application.broker.tokens.listed())["tokens"] == []


async def test_where_callers_are_trusted_a_token_is_not_looked_at(broker: LocalBroker) -> None:
    observer = await holder(broker, "observer", "ada")
    assert (await observer.create(proposer_id="bo"))["status"] == "pending"
    assert (await Holder(broker, "tdm_unknown").get("/api/whoami")).message["identity"] is None


async def test_a_dashboard_form_acts_as_the_holder(secured: LocalBroker) -> None:
    person, proposer = await holder(secured, "human", "cy"), await holder(secured, "proposer", "ada")
    review_id = (await proposer.create())["review_id"]
    page = await person.get(f"/r/{review_id}")
    assert page.status == 200
    form_token = page.text.split('name="token" value="')[1].split('"')[0]
    assert (await proposer.form(f"/r/{review_id}/claim", {"token": form_token})).status == 403
    assert (await person.form(f"/r/{review_id}/claim", {"token": form_token})).status == 303
    assert (await person("get_review_status", review_id=review_id))["claimed_by"] == "human:cy"


async def test_of_many_who_make_a_token_of_one_name_at_the_same_time_one_gets_it(secured: LocalBroker) -> None:
    answers = await asyncio.gather(*(holder(secured, "proposer", "ada") for _ in range(8)), return_exceptions=True)
    (made,) = [answer for answer in answers if isinstance(answer, Holder)]
    codes = [answer.code for answer in answers if isinstance(answer, BrokerError)]
    assert codes == [Code.CONFLICT] * 7
    assert (await made.create())["status"] == "pending"
    assert len((await secured.application.broker.tokens.listed())["tokens"]) == 1
