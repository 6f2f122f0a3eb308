"""A person's verdict together with the claim that it needs: one git check, one commit, or nothing at all."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gsd_review_broker.domain.caller import LOCAL
from gsd_review_broker.domain.rules.verdicts import Seen
from gsd_review_broker.domain.words import Role, Severity, Verdict
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.commands.discussion import NewMessage
from gsd_review_broker.service.commands.verdicts import NewVerdict
from gsd_review_broker.service.validation import FindingArgument
from tests.support import asgi, invariants
from tests.support.local import LocalBroker
from tests.support.processes import git
from tests.support.spans import names, recorded_spans
from tests.support.texts import BETTER, GOOD, STALE

ADA = "human:ada"
APPROVED = NewVerdict(verdict=Verdict.APPROVED)
NO = NewVerdict(verdict=Verdict.CHANGES_REQUESTED, reason="No.")


@pytest.fixture
def spans() -> Generator[InMemorySpanExporter]:
    with recorded_spans() as recorded:
        yield recorded


async def proposed(broker: LocalBroker, diff: str | None = GOOD) -> str:
    return (await broker.create(diff=diff))["review_id"]


async def judged(broker: LocalBroker, review_id: str, given: NewVerdict = APPROVED, **more: Any) -> Any:
    named = {"reviewer_id": ADA, "seen": Seen(), **more}
    return await broker.application.broker.verdicts.give_with_claim(LOCAL, review_id, given, **named)


async def refused(broker: LocalBroker, review_id: str, given: NewVerdict = APPROVED, **more: Any) -> Code:
    with pytest.raises(BrokerError) as error:
        await judged(broker, review_id, given, **more)
    return error.value.code


async def events(broker: LocalBroker, review_id: str) -> list[str]:
    return [event["event_type"] for event in (await broker("get_review_timeline", review_id=review_id))["events"]]


async def test_a_dashboard_approval_is_one_commit_and_one_git_check(
    spans: InMemorySpanExporter, broker: LocalBroker
) -> None:
    application = broker.application
    review_id = await proposed(broker)
    page = (await asgi.request(application.asgi, "GET", f"/r/{review_id}")).text
    shown = dict(re.findall(r'name="(token|revision|claim_generation|digest)" value="([^"]*)"', page))
    spans.clear()
    answer = await asgi.post_form(application.asgi, f"/r/{review_id}/verdict", {**shown, "verdict": "approved"})
    assert answer.status == 303
    traced = names(spans)
    assert (traced.count("store.commit"), traced.count("git.check")) == (1, 1)
    assert await events(broker, review_id) == ["review_created", "review_claimed", "verdict_submitted"]
    status = await broker("get_review_status", review_id=review_id)
    assert (status["status"], status["verdict"]) == ("approved", "approved")
    assert invariants.problems(broker.database) == []


async def test_a_verdict_of_the_command_line_is_one_commit_and_one_git_check(
    spans: InMemorySpanExporter, broker: LocalBroker
) -> None:
    review_id = await proposed(broker)
    spans.clear()
    body = f'{{"reviewer_id": "{ADA}", "verdict": "changes_requested", "reason": "No."}}'.encode()
    answer = await asgi.request(
        broker.application.asgi, "POST", f"/api/reviews/{review_id[:8]}/verdict",
        body=body, headers={"content-type": "application/json"},
    )  # fmt: skip
    assert answer.status == 200, answer.text
    assert (names(spans).count("store.commit"), names(spans).count("git.check")) == (1, 1)


async def test_findings_and_a_counter_patch_come_with_the_claim(broker: LocalBroker) -> None:
    review_id = await proposed(broker)
    remark = FindingArgument(title="t", body="b", severity=Severity.LOW, path="hello.txt", line_start=2)
    given = NewVerdict(verdict=Verdict.CHANGES_REQUESTED, reason="No.", counter_patch=BETTER, findings=[remark])
    result = await judged(broker, review_id, given)
    assert (result["status"], result["verdict"]) == ("changes_requested", "changes_requested")
    discussion = await broker("get_discussion", review_id=review_id)
    assert [(one["raised_by"], one["anchor"]) for one in discussion["findings"]] == [(ADA, "anchored")]
    assert [(one["offered_by"], one["status"]) for one in discussion["counter_patches"]] == [(ADA, "pending")]
    assert invariants.problems(broker.database) == []


@pytest.mark.parametrize(
    ("given", "more", "code"),
    [
        (NewVerdict(verdict=Verdict.COMMENT, reason=" "), {}, Code.INVALID_ARGUMENT),
        (NewVerdict(verdict=Verdict.CHANGES_REQUESTED, reason="r", counter_patch="no diff"), {}, Code.DIFF_INVALID),
        (NewVerdict(verdict=Verdict.CHANGES_REQUESTED, reason="r", counter_patch=STALE), {}, Code.DIFF_INVALID),
        (NewVerdict(verdict=Verdict.APPROVED, counter_patch=BETTER), {}, Code.INVALID_ARGUMENT),
        (APPROVED, {"seen": Seen(revision=2)}, Code.CONFLICT),
        (APPROVED, {"seen": Seen(revision=1, is_complete=True)}, Code.CONFLICT),
        (APPROVED, {"reviewer_id": "gsd-executor"}, Code.SELF_REVIEW),
    ],
)
async def test_what_is_refused_claims_nothing(
    broker: LocalBroker, given: NewVerdict, more: dict[str, Any], code: Code
) -> None:
    review_id = await proposed(broker)
    assert await refused(broker, review_id, given, **more) is code
    assert await events(broker, review_id) == ["review_created"]


async def test_what_does_not_apply_goes_back_to_its_author(broker: LocalBroker) -> None:
    review_id = await proposed(broker, STALE)
    assert (await judged(broker, review_id))["auto_rejected"] is True
    assert await events(broker, review_id) == ["review_created", "review_auto_rejected"]


async def test_a_digest_that_moved_since_it_was_seen_is_not_approved(broker: LocalBroker, repository: Path) -> None:
    review_id = await proposed(broker)
    pages = broker.application.broker.page_queries
    digest = (await pages.applies(await pages.find(review_id))).digest  # type: ignore[union-attr]
    lines = (repository / "hello.txt").read_text()
    (repository / "hello.txt").write_text(lines + "four\n")
    git(repository, "commit", "-qam", "moved")
    seen = Seen(revision=1, digest=digest, is_complete=True)
    assert await refused(broker, review_id, seen=seen) is Code.CONFLICT
    assert await events(broker, review_id) == ["review_created"]


async def test_another_s_claim_is_not_judged_and_nothing_is_recorded(broker: LocalBroker) -> None:
    review_id = await proposed(broker)
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert await refused(broker, review_id) is Code.ALREADY_CLAIMED
    assert await events(broker, review_id) == ["review_created", "review_claimed"]


async def test_a_claim_that_is_held_is_judged_without_asking_git(
    spans: InMemorySpanExporter, broker: LocalBroker
) -> None:
    review_id = await proposed(broker)
    claim = await broker("claim_review", review_id=review_id, reviewer_id=ADA)
    spans.clear()
    assert await refused(broker, review_id, claim_generation=0) is Code.STALE_CLAIM
    result = await judged(broker, review_id, claim_generation=claim["claim_generation"])
    assert (result["status"], "git.check" in names(spans)) == ("approved", False)
    assert await judged(broker, review_id) == result
    assert await refused(broker, review_id, NO) is Code.INVALID_TRANSITION


async def test_a_revision_that_comes_while_git_is_asked_is_judged_only_if_none_was_named(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    review_id = await proposed(broker)
    applies = broker.application.broker.claims._applies
    demand = applies.demand

    async def revised_meanwhile(review: Any) -> Any:
        monkeypatch.setattr(applies, "demand", demand)
        answer = await demand(review)
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
        verdict = {"verdict": "changes_requested", "reason": "r", "reviewer_id": "codex"}
        await broker("submit_verdict", review_id=review_id, **verdict)
        await broker.create(review_id=review_id, diff=BETTER)
        # The revision is no longer kept for its last reviewer.
        broker.clock.pass_time(100)
        return answer

    monkeypatch.setattr(applies, "demand", revised_meanwhile)
    assert await refused(broker, review_id, seen=Seen(revision=1)) is Code.CONFLICT
    assert (await judged(broker, review_id))["status"] == "approved"
    shown = await broker("get_proposal", review_id=review_id)
    assert (shown["revision"], shown["diff"]) == (2, BETTER)


async def test_a_message_to_a_review_that_nobody_holds_is_one_commit_with_its_claim(
    spans: InMemorySpanExporter, broker: LocalBroker
) -> None:
    review_id = await proposed(broker)
    message = NewMessage(sender_role=Role.REVIEWER, body="Why?", sender_id=ADA)
    discussions = broker.application.broker.discussions
    spans.clear()
    sent = await discussions.send_with_claim(LOCAL, review_id, message, reviewer_id=ADA, seen=Seen(revision=1))
    assert (sent["status"], names(spans).count("store.commit")) == ("in_review", 1)
    assert await events(broker, review_id) == ["review_created", "review_claimed", "message_sent"]
    other = await proposed(broker)
    lost = NewMessage(sender_role=Role.REVIEWER, body="Why?", sender_id=ADA, in_reply_to=99)
    with pytest.raises(BrokerError):
        await discussions.send_with_claim(LOCAL, other, lost, reviewer_id=ADA, seen=Seen(revision=1))
    assert await events(broker, other) == ["review_created"]


async def test_a_verdict_that_its_reviewer_may_not_give_is_refused_before_git_is_asked(
    spans: InMemorySpanExporter, broker: LocalBroker
) -> None:
    review_id = await proposed(broker)
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    spans.clear()
    with pytest.raises(BrokerError) as error:
        await broker.application.broker.verdicts.give(
            LOCAL,
            review_id,
            NewVerdict(verdict=Verdict.COMMENT, reason="r", counter_patch=BETTER),
            reviewer_id="another",
            claim_generation=None,
            repeat=None,
        )
    assert error.value.code is Code.NOT_CLAIMANT
    assert (await events(broker, review_id))[-1] == "verdict_refused"
    assert names(spans).count("store.commit") == 1
