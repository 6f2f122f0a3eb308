"""What happens when things are repeated, taken away or said oddly, and nothing may be lost."""

from pathlib import Path

import pytest

from gsd_review_broker.domain.gate.records import parse_records
from gsd_review_broker.git.objects import digest_of_records
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.processes import git
from tests.support.texts import BETTER, GOOD


async def claimed(broker: LocalBroker, **proposal: object) -> str:
    review_id = (await broker.create(diff=GOOD, **proposal))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    return review_id


async def refused(broker: LocalBroker, tool: str, **arguments: object) -> str:
    with pytest.raises(ToolError) as error:
        await broker(tool, **arguments)
    return error.value.code


@pytest.mark.sqlite
async def test_a_database_that_is_taken_away_is_noticed_and_nothing_is_acknowledged(
    broker: LocalBroker, tmp_path: Path
) -> None:
    kept = (await broker.create())["review_id"]
    moved = tmp_path / "elsewhere.sqlite3"
    broker.database.rename(moved)
    with pytest.raises(ToolError) as error:
        await broker.create()
    assert (error.value.code, "moved, deleted or replaced" in error.value.message) == ("unavailable", True)
    assert not broker.database.exists()
    moved.rename(broker.database)
    assert (await broker("get_review_status", review_id=kept))["status"] == "pending"
    assert (await broker.create())["status"] == "pending"


async def test_remarks_of_one_title_about_several_lines_are_several_findings(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    for line in (1, 2, 3):
        remark = {"title": "Missing check", "body": f"line {line}", "severity": "low", "path": "hello.txt"}
        given = {"verdict": "comment", "reason": "r", "claim_generation": 1}
        await broker("submit_verdict", review_id=review_id, **given, findings=[{**remark, "line_start": line}])
    findings = (await broker("get_discussion", review_id=review_id))["findings"]
    assert sorted((f["line_start"], f["body"], f["times_raised"]) for f in findings) == [
        (1, "line 1", 1),
        (2, "line 2", 1),
        (3, "line 3", 1),
    ]
    events = (await broker("get_audit_log", review_id=review_id))["events"]
    told = [event["metadata"]["findings"][0]["body"] for event in events if "findings" in event["metadata"]]
    assert told == ["line 1", "line 2", "line 3"]


async def test_the_same_verdict_with_something_new_is_refused_and_not_lost(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    verdict = {"review_id": review_id, "verdict": "changes_requested", "reason": "r", "claim_generation": 1}
    await broker("submit_verdict", **verdict)
    remark = {"title": "t", "body": "b", "severity": "low"}
    assert await refused(broker, "submit_verdict", **verdict, findings=[remark]) == "invalid_transition"
    assert await refused(broker, "submit_verdict", **verdict, counter_patch=BETTER) == "invalid_transition"


async def test_a_repeated_verdict_with_its_own_findings_is_answered_again(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    remark = {"title": "t", "body": "b", "severity": "low", "path": "hello.txt", "line_start": 2}
    verdict = {"review_id": review_id, "verdict": "changes_requested", "reason": "r", "claim_generation": 1}
    whole = {**verdict, "findings": [remark], "counter_patch": BETTER}
    assert await broker("submit_verdict", **whole) == await broker("submit_verdict", **whole)
    assert len((await broker("get_discussion", review_id=review_id))["findings"]) == 1


async def test_a_retry_with_its_key_is_answered_even_if_the_base_has_moved(
    broker: LocalBroker, repository: Path
) -> None:
    review_id = await claimed(broker)
    verdict = {"review_id": review_id, "verdict": "changes_requested", "reason": "r", "claim_generation": 1}
    whole = {**verdict, "counter_patch": BETTER, "idempotency_key": "k"}
    first = await broker("submit_verdict", **whole)
    (repository / "hello.txt").write_text("all\nis\nnew\n")
    git(repository, "commit", "-qam", "moved")
    assert await broker("submit_verdict", **whole) == first


async def test_the_fence_comes_before_the_counter_patch(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    stale = {"review_id": review_id, "verdict": "comment", "reason": "r", "claim_generation": 0}
    assert await refused(broker, "submit_verdict", **stale, counter_patch="garbage") == "stale_claim"
    events = (await broker("get_review_timeline", review_id=review_id))["events"]
    assert events[-1]["event_type"] == "verdict_refused"
    pending = (await broker.create())["review_id"]
    bare = {"review_id": pending, "verdict": "comment", "reason": "r", "reviewer_id": "x"}
    assert await refused(broker, "submit_verdict", **bare, counter_patch="garbage") == "invalid_transition"


async def test_every_counter_patch_stays_readable_with_what_became_of_it(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    third = BETTER.replace("zwei", "tre")
    for patch in (BETTER, third):
        offer = {"verdict": "comment", "reason": "r", "claim_generation": 1, "counter_patch": patch}
        await broker("submit_verdict", review_id=review_id, **offer)
    await broker("reject_counter_patch", review_id=review_id, reason="no")
    offered = (await broker("get_discussion", review_id=review_id))["counter_patches"]
    assert [(p["status"], p["diff"], p["reason"]) for p in offered] == [
        ("superseded", BETTER, None),
        ("rejected", third, "no"),
    ]


async def test_an_older_revision_shows_its_own_patch_with_its_own_status(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    offer = {"verdict": "changes_requested", "reason": "r", "counter_patch": BETTER}
    await broker("submit_verdict", review_id=review_id, **offer, claim_generation=1)
    await broker("accept_counter_patch", review_id=review_id)
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    generation = claim["claim_generation"]
    await broker("submit_verdict", review_id=review_id, **{**offer, "counter_patch": GOOD}, claim_generation=generation)
    first = await broker("get_proposal", review_id=review_id, revision=1)
    assert (first["counter_patch"], first["counter_patch_status"]) == (BETTER, "accepted")


@pytest.mark.parametrize(
    ("name", "spelling"),
    [*(("René", spelling) for spelling in ("RENÉ", "Rene\u0301", "\uff32ené", " René ")), ("codex", " CoDeX ")],
)
async def test_no_spelling_of_a_name_is_another_identity(broker: LocalBroker, name: str, spelling: str) -> None:
    review_id = (await broker.create(proposer_id=name))["review_id"]
    assert await refused(broker, "claim_review", review_id=review_id, reviewer_id=spelling) == "self_review"
    shown = await broker("list_reviews", status="pending", reviewer_id=spelling)
    assert shown["reviews"] == []


@pytest.mark.parametrize(
    "name",
    ["\u200b\x01", "René\u200b", "René\x01", "co\u00addex", "codex\ufe0f", "codex\u3164", "a\u00a0b", "x\u2028y",
     "codex\u034f", "\u2800", "broker", "Broker-Validator", " BROKER "],
)  # fmt: skip
async def test_a_name_that_cannot_be_told_from_another_is_refused_wherever_it_is_given(
    broker: LocalBroker, name: str
) -> None:
    review_id = await claimed(broker)
    for tool, arguments in (
        ("claim_next", {"reviewer_id": name}),
        ("claim_review", {"review_id": review_id, "reviewer_id": name}),
        ("submit_verdict", {"review_id": review_id, "reviewer_id": name, "verdict": "approved"}),
        ("add_message", {"review_id": review_id, "sender_role": "reviewer", "sender_id": name, "body": "b"}),
        ("get_discussion", {"review_id": review_id, "caller_id": name}),
        ("close_review", {"review_id": review_id, "proposer_id": name}),
        ("create_review", {"intent": "i", "agent_type": name, "agent_role": "proposer", "phase": "1"}),
    ):
        assert await refused(broker, tool, **arguments) == "invalid_argument", tool


@pytest.mark.parametrize("position", [5, None, [10**30, 1, "a"], [0, 0, "\ud800"], {"a": 1}, [1.5]])
@pytest.mark.parametrize("tool", ["list_reviews", "get_discussion", "get_proposal"])
async def test_an_altered_cursor_is_an_invalid_argument(broker: LocalBroker, tool: str, position: object) -> None:
    from gsd_review_broker.ports.store import ReviewFilter
    from gsd_review_broker.service.commands.discussion import _DiscussionQuery
    from gsd_review_broker.service.queries.proposal import _ProposalQuery
    from gsd_review_broker.service.wire.encoding import make_cursor

    review_id = await claimed(broker)
    queries = {
        "list_reviews": ReviewFilter(),
        "get_discussion": _DiscussionQuery(review_id, None, None),
        "get_proposal": _ProposalQuery(review_id, None, None, None),
    }
    given = {"cursor": make_cursor(queries[tool], position)}
    named = {} if tool == "list_reviews" else {"review_id": review_id}
    assert await refused(broker, tool, **named, **given) == "invalid_argument"


@pytest.mark.parametrize("workspace", ["", " ", ".", "relative/path"])
async def test_a_workspace_that_is_no_whole_path_is_refused(broker: LocalBroker, workspace: str) -> None:
    with pytest.raises(ToolError) as error:
        await broker.create(workspace=workspace)
    assert error.value.code == "invalid_argument"


@pytest.mark.parametrize("name", ["vt\vname", "para\u2029graph", "new\nline", "a:b c'd\"e", "ünï"])
async def test_a_repository_of_any_name_is_served(tmp_path: Path, name: str) -> None:
    from tests.support.processes import make_repository

    root = make_repository(tmp_path / name)
    async with local_broker(tmp_path, root=root) as broker:
        review_id = (await broker.create(diff=GOOD))["review_id"]
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
        assert (claim["status"], claim["digest"] is not None) == ("claimed", True)


async def test_an_accepted_counter_patch_counts_as_a_revision(tmp_path: Path, repository: Path) -> None:
    async with local_broker(tmp_path, root=repository, limits={"revisions": 1}) as broker:
        review_id = await claimed(broker)
        offer = {"verdict": "changes_requested", "reason": "r", "counter_patch": BETTER, "claim_generation": 1}
        await broker("submit_verdict", review_id=review_id, **offer)
        assert await refused(broker, "accept_counter_patch", review_id=review_id) == "too_large"


async def test_a_finding_resolved_twice_the_same_way_has_one_event(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    remark = {"title": "t", "body": "b", "severity": "low"}
    verdict = {"verdict": "comment", "reason": "r", "claim_generation": 1, "findings": [remark]}
    await broker("submit_verdict", review_id=review_id, **verdict)
    finding_id = (await broker("get_discussion", review_id=review_id))["findings"][0]["finding_id"]
    once = {"review_id": review_id, "finding_id": finding_id, "disposition": "fixed"}
    assert await broker("resolve_finding", **once) == await broker("resolve_finding", **once)


async def test_a_file_that_the_author_dropped_can_be_looked_at(broker: LocalBroker) -> None:
    both = GOOD + "--- /dev/null\n+++ b/two.txt\n@@ -0,0 +1 @@\n+x\n"
    review_id = (await broker.create(diff=both))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    verdict = {"verdict": "changes_requested", "reason": "r", "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, **verdict)
    await broker.create(review_id=review_id, diff=GOOD)
    shown = await broker("get_proposal", review_id=review_id, since_revision=1, path="two.txt")
    assert "(no longer touched)" in shown["diff"]


async def test_the_interdiff_of_one_file_is_not_found_inside_another_file(broker: LocalBroker) -> None:
    def proposal(inner: str, line: str) -> str:
        patch = f"--- /dev/null\n+++ b/fix.patch\n@@ -0,0 +1,2 @@\n+diff --git a/z.txt b/z.txt\n+{inner}\n"
        return f"{patch}--- /dev/null\n+++ b/z.txt\n@@ -0,0 +1 @@\n+{line}\n"

    review_id = (await broker.create(diff=proposal("x", "one")))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    verdict = {"verdict": "changes_requested", "reason": "r", "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, **verdict)
    await broker.create(review_id=review_id, diff=proposal("y", "two"))
    shown = await broker("get_proposal", review_id=review_id, since_revision=1, path="z.txt")
    assert shown["diff"] == ("diff --git a/z.txt b/z.txt\n--- a/z.txt\n+++ b/z.txt\n@@ -1,1 +1,1 @@\n-one\n+two\n")
    other = await broker("get_proposal", review_id=review_id, since_revision=1, path="fix.patch")
    assert (other["diff"].count("\n+"), "+y\n" in other["diff"], "two" in other["diff"]) == (2, True, False)


async def test_a_long_story_says_where_it_goes_on(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsd_review_broker.service.queries.reviews._TIMELINE_EVENTS", 3)
    review_id = await claimed(broker)
    for _ in range(3):
        await broker("add_message", review_id=review_id, sender_role="proposer", body="b")
    story = await broker("get_review_timeline", review_id=review_id)
    rest = await broker("get_audit_log", review_id=review_id, after=story["next_cursor"])
    assert len(story["events"]) + len(rest["events"]) == story["event_count"] == 5


async def test_a_wait_that_is_too_long_is_refused_even_if_nobody_waits(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    assert await refused(broker, "get_review_status", review_id=review_id, wait_seconds=241) == "invalid_argument"


async def test_the_first_change_of_a_repository_without_commits_can_be_approved(tmp_path: Path) -> None:
    root = tmp_path / "new"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "first.txt").write_text("hello\n")
    diff = "--- /dev/null\n+++ b/first.txt\n@@ -0,0 +1 @@\n+hello\n"
    async with local_broker(tmp_path, root=root) as broker:
        review_id = (await broker.create(diff=diff))["review_id"]
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
        generation = claim["claim_generation"]
        await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    raw = git(
        root, "diff-tree", "--root", "-r", "-z", "--raw", "--no-renames", "--full-index", "--no-commit-id", "HEAD"
    )
    assert claim["digest"] == digest_of_records(parse_records(raw))


async def test_what_is_possible_now_does_not_name_what_was_just_refused(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    with pytest.raises(ToolError) as refused:
        await broker("accept_counter_patch", review_id=review_id)
    assert "counter_patch" not in refused.value.hint
    assert "submit_verdict approved" in refused.value.hint
