"""Two clients work a change out over real HTTP, and the timeline tells it without a gap."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.local import LocalBroker
from tests.support.mcp import Mcp, ToolError
from tests.support.processes import BrokerProcess, git
from tests.support.texts import BETTER, GOOD

SOURCE = "\n".join(f"def step_{number}():\n    return {number}\n" for number in range(1, 31)) + "\n"


def diff_in(repository: Path, changes: dict[str, str]) -> str:
    """What `git diff` says when the file's texts are replaced so; the tree is left as it was."""
    path = repository / "steps.py"
    before = path.read_text()
    text = before
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    diff = git(repository, "diff").decode()
    path.write_text(before)
    return diff


@pytest.fixture
def sides(process: BrokerProcess) -> tuple[Mcp, Mcp]:
    (process.folder / "steps.py").write_text(SOURCE)
    git(process.folder, "add", "-A")
    git(process.folder, "commit", "-qm", "steps")
    return process.client("/mcp/proposer"), process.client("/mcp/reviewer")


def test_five_rounds_with_counter_patch_findings_a_rebase_and_an_approval(
    sides: tuple[Mcp, Mcp], process: BrokerProcess
) -> None:
    proposer, reviewer = sides
    repository = process.folder
    states: list[str] = []

    def seen(result: dict[str, Any]) -> dict[str, Any]:
        states.append(result["status"])
        return result

    def propose(changes: dict[str, str], **more: Any) -> dict[str, Any]:
        return seen(
            proposer(
                "create_review",
                intent="Steps return more",
                agent_type="gsd-executor",
                agent_role="proposer",
                phase="1",
                proposer_id="claude-1",
                diff=diff_in(repository, changes),
                **more,
            )
        )

    def judge(verdict: str, generation: int, **more: Any) -> dict[str, Any]:
        return seen(
            reviewer("submit_verdict", review_id=review_id, verdict=verdict, claim_generation=generation, **more)
        )

    # Round 1: two findings, one of which points nowhere.
    review_id = propose({"return 5\n": "return 50\n", "return 9\n": "return 90\n"})["review_id"]
    claim = seen(reviewer("claim_next", reviewer_id="codex-1", wait=True))
    line = 5 * 3 - 1
    findings = [
        {"title": "Too much", "body": "50?", "severity": "P1", "path": "steps.py", "line_start": line},
        {"title": "No test", "body": "none at all", "severity": "nit", "path": "tests/x.py", "line_start": 1},
    ]
    judge("request_changes", claim["claim_generation"], reason="see findings", findings=findings)
    status = proposer("get_review_status", review_id=review_id, wait=True)
    assert (status["status"], status["open_finding_count"]) == ("changes_requested", 2)
    known = proposer("get_discussion", review_id=review_id)["findings"]
    assert [(f["title"], f["anchor"], f["severity"]) for f in known] == [
        ("Too much", "anchored", "high"),
        ("No test", "unanchored", "low"),
    ]
    too_much, no_test = (f["finding_id"] for f in known)
    deferred = proposer(
        "resolve_finding", review_id=review_id, finding_id=no_test, disposition="deferred", note="next plan"
    )
    assert deferred["disposition"] == "deferred"

    # Round 2: the base moved; the finding follows its line, and the interdiff shows the author's change only.
    path = repository / "steps.py"
    path.write_text("# header\n# of the file\n" + path.read_text().replace("return 20", "return 2000"))
    git(repository, "commit", "-qam", "upstream goes on")
    propose({"return 5\n": "return 50\n", "return 9\n": "return 91\n"}, review_id=review_id)
    claim = seen(reviewer("claim_review", review_id=review_id, reviewer_id="codex-1"))
    assert [(f["finding_id"], f["line_start"], f["anchor"]) for f in claim["open_findings"]] == [
        (too_much, line + 2, "anchored")
    ]
    delta = reviewer("get_proposal", review_id=review_id, since_revision=1, caller_id="codex-1")["diff"]
    changed = [text for text in delta.split("\n") if text[:1] in {"+", "-"} and text[:3] not in {"+++", "---"}]
    assert changed == ["-    return 90", "+    return 91"]
    asked = seen(
        reviewer(
            "add_message", review_id=review_id, sender_role="reviewer", sender_id="codex-1", body="Why 50 still?",
            path="steps.py", line=line + 2,
        )
    )  # fmt: skip
    answer = proposer(
        "add_message", review_id=review_id, sender_role="proposer", body="As the plan says",
        in_reply_to=asked["message_id"], metadata={"plan": [2]},
    )  # fmt: skip
    talk = reviewer("get_discussion", review_id=review_id, wait=True, since=asked["message_id"])
    assert [(m["message_id"], m["in_reply_to"], m["metadata"]) for m in talk["messages"]] == [
        (answer["message_id"], asked["message_id"], {"plan": [2]})
    ]
    again = [{**findings[0], "line_start": line + 2}]
    judge("changes_requested", claim["claim_generation"], reason="still", findings=again)
    rejected = proposer(
        "resolve_finding", review_id=review_id, finding_id=too_much, disposition="rejected", note="the plan says 50"
    )
    assert (rejected["disposition"], rejected["times_raised"]) == ("rejected", 2)

    # Round 3: the reviewer offers a patch of its own; the proposer declines it, then takes the second one.
    propose({"return 5\n": "return 50\n", "return 9\n": "return 92\n"}, review_id=review_id)
    claim = seen(reviewer("claim_review", review_id=review_id, reviewer_id="codex-1"))
    generation = claim["claim_generation"]
    judge("comment", generation, reason="or so?", counter_patch=diff_in(repository, {"return 5\n": "return 55\n"}))
    assert proposer("get_review_status", review_id=review_id, wait=True)["counter_patch_status"] == "pending"
    declined = seen(proposer("reject_counter_patch", review_id=review_id, reason="92 is lost", proposer_id="claude-1"))
    assert declined["counter_patch_status"] == "rejected"
    better = diff_in(repository, {"return 5\n": "return 55\n", "return 9\n": "return 92\n"})
    judge("changes_requested", generation, reason="then this", counter_patch=better)
    shown = proposer("get_proposal", review_id=review_id)
    assert (shown["counter_patch"], shown["counter_patch_status"]) == (better, "pending")
    accepted = seen(proposer("accept_counter_patch", review_id=review_id, proposer_id="claude-1"))
    assert (accepted["round"], accepted["revision"], accepted["counter_patch_status"]) == (4, 4, "accepted")

    # Round 4: the reviewer judges its own patch, which the proposer stands behind; one thing is left to fix.
    claim = seen(reviewer("claim_review", review_id=review_id, reviewer_id="codex-1"))
    assert reviewer("get_proposal", review_id=review_id)["diff"] == better
    typo = [{"title": "Off by one", "body": "93", "severity": "low", "path": "steps.py", "line_start": 28}]
    judge("changes_requested", claim["claim_generation"], reason="one more", findings=typo)

    # Round 5: from here on a person is asked, and the agents go on.
    propose({"return 5\n": "return 55\n", "return 9\n": "return 93\n"}, review_id=review_id)
    status = proposer("get_review_status", review_id=review_id)
    assert status["needs_human"] == "round 5 of at most 5 without an approval"
    assert [row["id"] for row in reviewer("list_reviews", needs_human=True)["reviews"]] == [review_id]
    claim = seen(reviewer("claim_review", review_id=review_id, reviewer_id="codex-1"))
    (left,) = claim["open_findings"]
    assert left["title"] == "Off by one"
    fixed = proposer("resolve_finding", review_id=review_id, finding_id=left["finding_id"], disposition="fixed")
    assert fixed["disposition"] == "fixed"
    approval = judge("approved", claim["claim_generation"])
    assert approval["digest"].startswith("sha256:")
    seen(proposer("close_review", review_id=review_id, proposer_id="claude-1"))

    assert states == [
        *("pending", "claimed", "changes_requested"),
        *("pending", "claimed", "in_review", "changes_requested"),
        *("pending", "claimed", "claimed", "claimed", "changes_requested", "pending"),
        *("claimed", "changes_requested"),
        *("pending", "claimed", "approved", "closed"),
    ]
    tells_it_all(process.client("/mcp/observer"), review_id)


def tells_it_all(observer: Mcp, review_id: str) -> None:
    timeline = observer("get_review_timeline", review_id=review_id)
    told = [event["event_type"] for event in timeline["events"]]
    assert told == [
        "review_created", "review_claimed", "verdict_submitted", "finding_resolved",
        "review_revised", "review_claimed", "message_sent", "message_sent", "verdict_submitted", "finding_resolved",
        "review_revised", "review_claimed", "verdict_comment", "counter_patch_offered", "counter_patch_rejected",
        "verdict_submitted", "counter_patch_offered", "counter_patch_accepted",
        "review_claimed", "verdict_submitted",
        "review_revised", "human_requested", "review_claimed", "finding_resolved", "verdict_submitted",
        "human_cleared", "review_closed",
    ]  # fmt: skip
    assert timeline["event_count"] == len(told) == timeline["version"]
    for before, after in zip(timeline["events"], timeline["events"][1:], strict=False):
        assert before["new_status"] == after["old_status"]
    reasons = [event["metadata"].get("reason") for event in timeline["events"] if "verdict" in event["event_type"]]
    assert reasons == ["see findings", "still", "or so?", "then this", "one more", None]


def test_a_second_round_costs_a_tenth_of_the_first(sides: tuple[Mcp, Mcp], process: BrokerProcess) -> None:
    """2,000 lines changed, then 20 of them mended: what the reviewer reads of each round, in bytes."""
    proposer, reviewer = sides
    big = process.folder / "big.py"
    big.write_text("\n".join(f"value_{number} = {number}" for number in range(2_000)) + "\n")
    git(process.folder, "add", "-A")
    git(process.folder, "commit", "-qm", "big")

    def proposal(factor: int, mended: range, **more: Any) -> dict[str, Any]:
        lines = [f"value_{n} = {n} * {factor + 1 if n in mended else factor}" for n in range(2_000)]
        big.write_text("\n".join(lines) + "\n")
        diff = git(process.folder, "diff").decode()
        git(process.folder, "checkout", "-q", "big.py")
        given = {"intent": "i", "agent_type": "a", "agent_role": "proposer", "phase": "1"}
        return proposer("create_review", **given, diff=diff, **more)

    def read(review_id: str, **more: Any) -> int:
        claim = reviewer("claim_review", review_id=review_id, reviewer_id="codex")
        size, cursor = len(json.dumps(claim)), {}
        while True:
            page = reviewer("get_proposal", review_id=review_id, **more, **cursor)
            size += len(json.dumps(page))
            if page["next_cursor"] is None:
                return size
            cursor = {"cursor": page["next_cursor"]}

    review_id = proposal(2, range(0))["review_id"]
    first = read(review_id)
    reviewer("submit_verdict", review_id=review_id, verdict="request_changes", reason="mend 20", reviewer_id="codex")
    proposal(2, range(1000, 1020), review_id=review_id)
    second = read(review_id, since_revision=1)
    assert second / first <= 0.1


async def test_whoever_wrote_the_accepted_counter_patch_may_approve_it_and_who_accepted_it_may_not(
    broker: LocalBroker,
) -> None:
    """Two identities behind the digest, in every order of events."""
    for accepter, judge, allowed in (
        (None, "codex", True),
        (None, "claude", True),
        (None, "gsd-executor", False),
        ("human:ada", "codex", True),
        ("human:ada", "human:ada", False),
        ("codex", "codex", False),
        ("codex", "claude", True),
    ):
        review_id = (await broker.create(diff=GOOD))["review_id"]
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
        offer = {"reason": "better", "counter_patch": BETTER, "claim_generation": claim["claim_generation"]}
        await broker("submit_verdict", review_id=review_id, verdict="changes_requested", **offer)
        await broker("accept_counter_patch", review_id=review_id, **({"proposer_id": accepter} if accepter else {}))
        broker.clock.pass_time(61)
        if not allowed:
            with pytest.raises(ToolError) as refused:
                await broker("claim_review", review_id=review_id, reviewer_id=judge)
            assert refused.value.code == "self_review"
            continue
        claim = await broker("claim_review", review_id=review_id, reviewer_id=judge)
        verdict = {"verdict": "approved", "claim_generation": claim["claim_generation"]}
        assert (await broker("submit_verdict", review_id=review_id, **verdict))["digest"] == claim["digest"]


async def test_a_counter_patch_that_is_no_diff_or_does_not_apply_is_refused_with_its_verdict(
    broker: LocalBroker,
) -> None:
    review_id = (await broker.create(diff=GOOD))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    version = (await broker("get_review_status", review_id=review_id))["version"]
    for patch in ("not a diff", BETTER.replace("-two", "-elsewhere"), GOOD.replace("hello.txt", "../hello.txt")):
        with pytest.raises(ToolError) as refused:
            await broker(
                "submit_verdict",
                review_id=review_id,
                verdict="changes_requested",
                reason="r",
                claim_generation=1,
                counter_patch=patch,
            )
        assert refused.value.code == "diff_invalid"
        assert (await broker("get_review_status", review_id=review_id))["version"] == version


async def test_a_counter_patch_that_no_longer_applies_is_not_accepted(broker: LocalBroker, repository: Path) -> None:
    review_id = (await broker.create(diff=GOOD))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    offer = {"reason": "better", "counter_patch": BETTER, "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, verdict="changes_requested", **offer)
    (repository / "hello.txt").write_text("all\nis\nnew\n")
    git(repository, "commit", "-qam", "everything changed")
    with pytest.raises(ToolError) as refused:
        await broker("accept_counter_patch", review_id=review_id)
    assert refused.value.code == "diff_invalid"
    status = await broker("get_review_status", review_id=review_id)
    assert (status["status"], status["counter_patch_status"]) == ("changes_requested", "pending")


async def test_older_counter_patches_are_superseded_and_stay_readable(broker: LocalBroker) -> None:
    review_id = (await broker.create(diff=GOOD))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    for patch in (BETTER, BETTER.replace("zwei", "dos")):
        offer = {"reason": "better", "counter_patch": patch, "claim_generation": 1}
        await broker("submit_verdict", review_id=review_id, verdict="comment", **offer)
    assert (await broker("get_proposal", review_id=review_id))["counter_patch"] == BETTER.replace("zwei", "dos")
    await broker("submit_verdict", review_id=review_id, verdict="changes_requested", reason="r", claim_generation=1)
    await broker.create(review_id=review_id, diff=GOOD)
    latest = await broker("get_proposal", review_id=review_id)
    assert (latest["counter_patch"], latest["counter_patch_status"]) == (None, "superseded")
    assert (await broker("get_proposal", review_id=review_id, revision=1))["counter_patch"] is not None
    with pytest.raises(ToolError) as refused:
        await broker("accept_counter_patch", review_id=review_id)
    assert refused.value.code == "invalid_transition"


async def test_a_finding_that_comes_back_a_third_time_asks_for_a_person_whose_message_clears_it(
    broker: LocalBroker,
) -> None:
    finding = {"title": "Off by one!", "body": "b", "severity": "blocker", "path": "hello.txt", "line_start": 2}
    review_id = (await broker.create(diff=GOOD))["review_id"]
    for number in range(3):
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
        spelled = {**finding, "title": ["Off by one!", "off by one", "OFF BY ONE"][number]}
        verdict = {"verdict": "changes_requested", "reason": "r", "findings": [spelled]}
        generation = claim["claim_generation"]
        await broker("submit_verdict", review_id=review_id, claim_generation=generation, **verdict)
        if number < 2:
            assert (await broker("get_review_status", review_id=review_id))["needs_human"] is None
            await broker.create(review_id=review_id, diff=GOOD)
    known = (await broker("get_discussion", review_id=review_id))["findings"]
    assert [(f["times_raised"], f["severity"]) for f in known] == [(3, "critical")]
    assert "3 times" in (await broker("get_review_status", review_id=review_id))["needs_human"]
    person = {"sender_role": "reviewer", "sender_id": "human:ada", "body": "leave it"}
    await broker("add_message", review_id=review_id, **person)
    assert (await broker("get_review_status", review_id=review_id))["needs_human"] is None


async def test_the_same_remark_twice_in_one_verdict_is_two_findings(broker: LocalBroker) -> None:
    review_id = (await broker.create(diff=GOOD))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    twice = [{"title": "t", "body": body, "severity": "low", "path": "hello.txt", "line_start": 2} for body in "ab"]
    for _ in range(2):
        given = {"verdict": "comment", "reason": "r", "claim_generation": 1, "findings": twice}
        await broker("submit_verdict", review_id=review_id, **given)
    assert (await broker("get_review_status", review_id=review_id))["open_finding_count"] >= 2


async def test_a_long_discussion_comes_in_pages(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    sent = []
    for number in range(9):
        said = {"sender_role": "proposer", "body": f"{number}" * 50_000}
        sent.append((await broker("add_message", review_id=review_id, **said))["message_id"])
    seen: list[int] = []
    page = await broker("get_discussion", review_id=review_id, limit=4)
    while True:
        seen += [message["message_id"] for message in page["messages"]]
        if page["next_cursor"] is None:
            break
        page = await broker("get_discussion", review_id=review_id, limit=4, cursor=page["next_cursor"])
    assert seen == sent
    assert (await broker("get_discussion", review_id=review_id, round=2))["messages"] == []
    assert len((await broker("get_discussion", review_id=review_id, round=1, since=sent[6]))["messages"]) == 2
    nothing = await broker("get_discussion", review_id=review_id, since=sent[-1], wait=True, wait_seconds=0)
    assert nothing["changed"] is False
    assert set(nothing) == {"review_id", "status", "version", "changed"}


async def test_a_large_counter_patch_comes_in_pages_too(broker: LocalBroker, repository: Path) -> None:
    added = "".join(f"+new line number {number}\n" for number in range(4_000))
    big = f"--- /dev/null\n+++ b/big.txt\n@@ -0,0 +1,4000 @@\n{added}"
    review_id = (await broker.create(diff=GOOD))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    offer = {"reason": "better", "counter_patch": big, "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, verdict="comment", **offer)
    page = await broker("get_proposal", review_id=review_id)
    assert (page["diff"], page["next_cursor"]) == (GOOD, None)
    text, cursor = page["counter_patch"], page["counter_patch_next_cursor"]
    while cursor is not None:
        page = await broker("get_proposal", review_id=review_id, cursor=cursor)
        text, cursor = text + page["diff"], page["next_cursor"]
    assert text == big
