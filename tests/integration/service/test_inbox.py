"""What stands in the inbox, why, and since when."""

from typing import Any

import pytest

from gsd_review_broker.service.queries.inbox import InboxEntry
from tests.support.invariants import problems
from tests.support.local import LocalBroker

ADA = "human:ada"


async def entries(broker: LocalBroker) -> list[InboxEntry]:
    return list((await broker.application.broker.inboxes.of(ADA)).entries)


async def needs(broker: LocalBroker) -> list[tuple[str, str]]:
    return [(entry.need.value, entry.review.id) for entry in await entries(broker)]


async def claimed(broker: LocalBroker, by: str = "codex-r1", **arguments: Any) -> tuple[str, int]:
    review_id = (await broker.create(**arguments))["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id=by)
    return review_id, claim["claim_generation"]


async def test_an_empty_broker_has_an_empty_inbox(broker: LocalBroker) -> None:
    inbox = await broker.application.broker.inboxes.of(ADA)
    assert inbox.is_empty_broker
    await broker.create()
    inbox = await broker.application.broker.inboxes.of(ADA)
    assert not inbox.is_empty_broker
    assert len(inbox.under_way) == 1


async def test_what_nobody_claims_is_stuck_after_a_quarter_of_an_hour(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    broker.clock.pass_time(14 * 60)
    assert await needs(broker) == []
    broker.clock.pass_time(60)
    assert await needs(broker) == [("stuck", review_id)]
    since = (await entries(broker))[0].since
    assert broker.clock.now() - since == 15 * 60_000
    await broker("claim_review", review_id=review_id, reviewer_id="codex-r1")
    assert await needs(broker) == []


async def test_a_question_between_agents_waits_ten_minutes_for_a_person(broker: LocalBroker) -> None:
    review_id, _ = await claimed(broker)
    say = {"review_id": review_id, "sender_role": "reviewer", "sender_id": "codex-r1"}
    await broker("add_message", body="Reading.", **say)
    broker.clock.pass_time(11 * 60)
    assert await needs(broker) == []
    await broker("add_message", body="Why this way?", **say)
    broker.clock.pass_time(9 * 60)
    assert await needs(broker) == []
    broker.clock.pass_time(60)
    assert await needs(broker) == [("question", review_id)]
    assert (await entries(broker))[0].why == "codex-r1 asked, and gsd-executor has not answered"
    await broker("add_message", review_id=review_id, sender_role="proposer", body="Because.")
    assert await needs(broker) == []


async def test_a_person_s_own_side_is_told_at_once(broker: LocalBroker) -> None:
    review_id, _ = await claimed(broker, by=ADA)
    assert await needs(broker) == [("verdict", review_id)]
    await broker("add_message", review_id=review_id, sender_role="proposer", body="Please look at line 3.")
    assert await needs(broker) == [("question", review_id)]
    await broker("add_message", review_id=review_id, sender_role="reviewer", sender_id=ADA, body="I did.")
    assert await needs(broker) == [("verdict", review_id)]


async def test_a_person_s_proposal_comes_back_to_its_author(broker: LocalBroker) -> None:
    review_id, generation = await claimed(broker, proposer_id=ADA)
    assert await needs(broker) == []
    verdict = {"review_id": review_id, "claim_generation": generation, "reason": "no"}
    await broker("submit_verdict", verdict="changes_requested", **verdict)
    assert await needs(broker) == [("proposal", review_id)]
    approved, generation = await claimed(broker, proposer_id=ADA)
    await broker("submit_verdict", review_id=approved, verdict="approved", claim_generation=generation)
    assert ("proposal", approved) in await needs(broker)
    await broker("close_review", review_id=approved, proposer_id=ADA)
    assert await needs(broker) == [("proposal", review_id)]


async def test_who_was_asked_for_stands_first_and_goes_when_a_person_answers(broker: LocalBroker) -> None:
    waiting = (await broker.create())["review_id"]
    broker.clock.pass_time(3600)
    review_id, generation = await claimed(broker)
    for _ in range(5):
        await broker(
            "submit_verdict", review_id=review_id, verdict="changes_requested", reason="no", claim_generation=generation
        )
        await broker.create(review_id=review_id)
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex-r1")
        generation = claim["claim_generation"]
    asked_at = broker.clock.now()
    broker.clock.pass_time(120)
    assert await needs(broker) == [("asked", review_id), ("stuck", waiting)]
    assert (await entries(broker))[0].since == asked_at
    await broker("add_message", review_id=review_id, sender_role="reviewer", sender_id=ADA, body="Do it so.")
    assert await needs(broker) == [("stuck", waiting)]


async def asked(broker: LocalBroker, **arguments: Any) -> str:
    """Three reviewers ended without a verdict on it."""
    review_id = (await broker.create(**arguments))["review_id"]
    for _ in range(3):
        await broker.application.broker.pool.records.failed_to_start("codex-r1", "no program", lambda _failures: 0)
    return review_id


async def test_closing_takes_back_the_call_for_a_person(broker: LocalBroker) -> None:
    review_id = await asked(broker)
    assert await needs(broker) == [("asked", review_id)]
    await broker("close_review", review_id=review_id)
    assert (await broker("get_review_status", review_id=review_id))["needs_human"] is None
    events = (await broker("get_review_timeline", review_id=review_id))["events"]
    assert [event["event_type"] for event in events][-2:] == ["human_cleared", "review_closed"]
    assert await needs(broker) == []
    assert problems(broker.database) == []


async def test_closed_reviews_leave_room_for_a_live_one(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in databases from before closing took the call back: closed reviews that a person was asked about."""
    monkeypatch.setattr("gsd_review_broker.domain.rules.proposals.no_human_needed", lambda *_args, **_fields: None)
    monkeypatch.setattr("gsd_review_broker.service.queries.inbox._MOST", 3)
    for _ in range(4):
        await broker("close_review", review_id=await asked(broker))
    live = await asked(broker)
    assert await needs(broker) == [("asked", live)]
