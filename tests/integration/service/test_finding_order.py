"""The order of a list is part of its meaning: findings come back as their reviewer gave them, on each surface."""

import io
import re
from typing import Any

import pytest

from gsd_review_broker.cli import describe
from gsd_review_broker.cli.screen import Screen
from tests.support.invariants import problems
from tests.support.local import LocalBroker

# Neither by name nor by severity.
GIVEN = [(f"remark {number:02}", severity) for number, severity in zip(
    (9, 3, 7, 1, 8, 2, 6, 4, 5, 0), ("low", "high", "critical", "low", "medium") * 2, strict=True)]  # fmt: skip
TITLES = [title for title, _ in GIVEN]


async def judged(broker: LocalBroker, verdict: str, given: list[tuple[str, str]], **more: Any) -> str:
    review_id = more.get("review_id") or (await broker.create())["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    await broker(
        "submit_verdict",
        review_id=review_id,
        verdict=verdict,
        reason="see there",
        claim_generation=claim["claim_generation"],
        findings=[{"title": title, "body": "b", "severity": severity} for title, severity in given],
    )
    return review_id


async def test_the_discussion_has_them_in_order(broker: LocalBroker) -> None:
    review_id = await judged(broker, "changes_requested", GIVEN)
    told = (await broker("get_discussion", review_id=review_id))["findings"]
    assert [finding["title"] for finding in told] == TITLES
    # What becomes of one does not move it.
    await broker("resolve_finding", review_id=review_id, finding_id=told[0]["finding_id"], disposition="fixed")
    told = (await broker("get_discussion", review_id=review_id))["findings"]
    assert [finding["title"] for finding in told] == TITLES


async def test_the_next_claim_and_the_next_verdict_keep_the_order(broker: LocalBroker) -> None:
    review_id = await judged(broker, "changes_requested", GIVEN)
    await broker.create(review_id=review_id, intent="again")
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert [finding["title"] for finding in claim["open_findings"]] == TITLES
    later = [("remark 99", "critical"), GIVEN[-1], ("remark 11", "low")]
    await broker(
        "submit_verdict",
        review_id=review_id,
        verdict="changes_requested",
        reason="still",
        claim_generation=claim["claim_generation"],
        findings=[{"title": title, "body": "b", "severity": severity} for title, severity in later],
    )
    told = (await broker("get_discussion", review_id=review_id))["findings"]
    assert [finding["title"] for finding in told] == [*TITLES, "remark 99", "remark 11"]
    assert problems(broker.database) == []


async def test_the_timeline_has_them_in_order(broker: LocalBroker) -> None:
    review_id = await judged(broker, "comment", GIVEN)
    events = (await broker("get_review_timeline", review_id=review_id))["events"]
    (verdict,) = [event for event in events if event["event_type"] == "verdict_comment"]
    assert [finding["title"] for finding in verdict["metadata"]["findings"]] == TITLES


async def test_the_dashboard_has_them_in_order(broker: LocalBroker) -> None:
    review_id = await judged(broker, "changes_requested", GIVEN)
    page = await broker.page(f"/r/{review_id}")
    assert list(dict.fromkeys(re.findall(r"remark \d\d", page))) == TITLES


async def test_the_command_line_has_them_in_order(broker: LocalBroker) -> None:
    review_id = await judged(broker, "changes_requested", GIVEN)
    out = io.StringIO()
    tools = ("get_review_status", "get_proposal", "get_discussion")
    describe.page(Screen(out), *[await broker(tool, review_id=review_id) for tool in tools])
    assert re.findall(r"remark \d\d", out.getvalue()) == TITLES


async def test_of_more_than_an_answer_holds_the_most_severe_are_shown_in_order(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    remarks = [{"title": title, "body": "b" * 60_000, "severity": severity} for title, severity in GIVEN[:5]]
    judge = {"review_id": review_id, "verdict": "comment", "reason": "r", "claim_generation": 1}
    await broker("submit_verdict", **judge, findings=remarks)
    told = await broker("get_discussion", review_id=review_id)
    # The critical one and the high one have room; the high one was given first.
    assert [finding["severity"] for finding in told["findings"]] == ["high", "critical"]
    assert told["findings_left_out"] == 3


async def test_a_page_with_too_many_threads_leaves_out_settled_findings(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gsd_review_broker.web.pages.review._MOST_THREADS", 9)
    review_id = await judged(broker, "changes_requested", GIVEN)
    settled = (await broker("get_discussion", review_id=review_id))["findings"][4]
    await broker("resolve_finding", review_id=review_id, finding_id=settled["finding_id"], disposition="fixed")
    page = await broker.page(f"/r/{review_id}")
    assert list(dict.fromkeys(re.findall(r"remark \d\d", page))) == [*TITLES[:4], *TITLES[5:]]
