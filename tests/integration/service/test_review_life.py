"""A review's life through the tools, on a real SQLite file and with real git."""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker import app
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.processes import git
from tests.support.texts import BETTER, GOOD, STALE


async def test_a_proposal_is_claimed_judged_and_closed(broker: LocalBroker) -> None:
    created = await broker.create(diff=GOOD, category="code_change", project="shop", plan="2", task="3")
    assert created["status"] == "pending"
    assert created["affected_files"] == [
        {
            "path": "hello.txt",
            "operation": "modify",
            "added": 1,
            "removed": 1,
            "old_path": None,
            "binary": False,
            "mode_change": False,
        }
    ]
    review_id = created["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert (claim["status"], claim["claim_generation"], claim["claimed_by"]) == ("claimed", 1, "codex")
    assert claim["digest"].startswith("sha256:")
    proposal = await broker("get_proposal", review_id=review_id)
    assert (proposal["diff"], proposal["next_cursor"]) == (GOOD, None)
    verdict = await broker("submit_verdict", review_id=review_id, verdict="approve", claim_generation=1)
    assert (verdict["status"], verdict["verdict"]) == ("approved", "approved")
    status = await broker("get_review_status", review_id=review_id)
    assert (status["status"], status["claimed_by"], status["version"]) == ("approved", "codex", 3)
    closed = await broker("close_review", review_id=review_id)
    assert (closed["status"], closed["outcome"]) == ("closed", "approved")
    timeline = await broker("get_review_timeline", review_id=review_id)
    assert [event["event_type"] for event in timeline["events"]] == [
        "review_created",
        "review_claimed",
        "verdict_submitted",
        "review_closed",
    ]
    assert timeline["event_count"] == 4
    assert timeline["events"][0]["timestamp"] == "2027-01-15T08:00:00.000Z"


async def test_a_diff_that_does_not_apply_is_rejected_in_gits_own_words(broker: LocalBroker) -> None:
    review_id = (await broker.create(diff=STALE))["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert claim["auto_rejected"] is True
    assert "patch does not apply" in claim["validation_error"]
    status = await broker("get_review_status", review_id=review_id)
    assert (status["status"], status["verdict"], status["claimed_by"]) == ("changes_requested",) * 2 + (None,)
    assert status["verdict_reason"] == f"Auto-rejected: {claim['validation_error']}"
    revised = await broker.create(review_id=review_id, diff=GOOD)
    assert (revised["revision"], revised["round"], revised["status"]) == (2, 1, "pending")
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert claim["claim_generation"] == 1


async def test_the_digest_is_that_of_the_commit_that_lands(broker: LocalBroker, repository) -> None:
    review_id = (await broker.create(diff=GOOD))["review_id"]
    digest = (await broker("claim_review", review_id=review_id, reviewer_id="codex"))["digest"]
    git(repository, "apply", "-", stdin=GOOD.encode())
    git(repository, "commit", "-qam", "land it")
    raw = git(repository, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", "HEAD^", "HEAD")
    import hashlib

    assert digest == "sha256:" + hashlib.sha256(raw).hexdigest()


async def test_an_unclean_work_tree_does_no_harm_and_an_uncommitted_base_gives_no_digest(
    broker: LocalBroker, repository
) -> None:
    (repository / "hello.txt").write_text("quite\nanother\nthing\n")
    first = (await broker.create(diff=GOOD))["review_id"]
    assert (await broker("claim_review", review_id=first, reviewer_id="codex"))["digest"] is not None
    on_tree = "--- a/hello.txt\n+++ b/hello.txt\n@@ -1,3 +1,3 @@\n quite\n-another\n+one\n thing\n"
    second = (await broker.create(diff=on_tree))["review_id"]
    claim = await broker("claim_review", review_id=second, reviewer_id="codex")
    assert (claim["status"], claim["digest"]) == ("claimed", None)
    assert (repository / "hello.txt").read_text() == "quite\nanother\nthing\n"


async def test_a_change_that_is_in_the_tree_already_has_a_digest_once_it_is_in_head(
    broker: LocalBroker, repository
) -> None:
    git(repository, "apply", "-", stdin=GOOD.encode())
    early = (await broker.create(diff=GOOD, skip_diff_validation=True))["review_id"]
    claim = await broker("claim_review", review_id=early, reviewer_id="codex")
    assert (claim["status"], claim["digest"]) == ("claimed", None)
    git(repository, "commit", "-qam", "landed before its review")
    late = (await broker.create(diff=GOOD, skip_diff_validation=True))["review_id"]
    claim = await broker("claim_review", review_id=late, reviewer_id="codex")
    git(repository, "revert", "--no-edit", "HEAD")
    again = (await broker.create(diff=GOOD))["review_id"]
    forward = await broker("claim_review", review_id=again, reviewer_id="codex")
    assert claim["digest"] == forward["digest"] is not None


async def test_a_worktree_is_a_workspace_and_a_foreign_folder_is_not(broker: LocalBroker, repository, tmp_path) -> None:
    worktree = tmp_path / "worktree"
    git(repository, "worktree", "add", "-q", str(worktree))
    (worktree / "hello.txt").write_text("uno\ndue\ntre\n")
    git(worktree, "commit", "-qam", "italian")
    diff = "--- a/hello.txt\n+++ b/hello.txt\n@@ -1,3 +1,3 @@\n uno\n-due\n+dos\n tre\n"
    inside = await broker.create(diff=diff, workspace=str(worktree))
    claim = await broker("claim_review", review_id=inside["review_id"], reviewer_id="codex")
    assert claim["digest"] is not None
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    git(foreign, "init", "-q")
    nested = repository / "nested"
    for path, code in ((foreign, "forbidden"), (tmp_path / "nowhere", "forbidden"), (nested, "invalid_argument")):
        with pytest.raises(ToolError) as refused:
            await broker.create(diff=diff, workspace=str(path))
        assert refused.value.code == code
    nested.mkdir()
    git(nested, "init", "-q")
    with pytest.raises(ToolError) as refused:
        await broker.create(diff=diff, workspace=str(nested))
    assert refused.value.code == "forbidden"


async def test_a_workspace_that_is_gone_leaves_the_review_pending(broker: LocalBroker, repository, tmp_path) -> None:
    worktree = tmp_path / "worktree"
    git(repository, "worktree", "add", "-q", str(worktree))
    review_id = (await broker.create(diff=GOOD, workspace=str(worktree)))["review_id"]
    git(repository, "worktree", "remove", str(worktree))
    with pytest.raises(ToolError) as refused:
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert refused.value.code == "unavailable"
    assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"


async def test_git_missing_or_too_slow_is_unavailable_and_the_review_stays_pending(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path
) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nexec sleep 30\n")
    (slow / "git").chmod(0o755)
    empty = tmp_path / "empty"
    empty.mkdir()
    path = os.environ["PATH"]
    async with local_broker(tmp_path, root=repository) as broker:
        review_id = (await broker.create(diff=GOOD))["review_id"]
    monkeypatch.setattr(app, "GitRepository", partial(app.GitRepository, timeout=0.2))
    async with local_broker(tmp_path, root=repository) as impatient:
        for broken in (str(empty), f"{slow}:{path}"):
            monkeypatch.setenv("PATH", broken)
            with pytest.raises(ToolError) as refused:
                await impatient("claim_review", review_id=review_id, reviewer_id="codex")
            assert refused.value.code == "unavailable"
    monkeypatch.setenv("PATH", path)
    async with local_broker(tmp_path, root=repository) as broker:
        assert (await broker("claim_review", review_id=review_id, reviewer_id="codex"))["status"] == "claimed"


async def test_without_a_repository_reviews_without_a_diff_are_served(tmp_path) -> None:
    async with local_broker(tmp_path, root=None) as broker:
        review_id = (await broker.create())["review_id"]
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
        assert (claim["status"], claim["has_diff"], claim["digest"]) == ("claimed", False, None)
        with pytest.raises(ToolError) as refused:
            await broker.create(diff=GOOD)
        assert refused.value.code == "unavailable"
        assert "repository" in refused.value.hint
        skipping = await broker.create(diff=GOOD, skip_diff_validation=True)
        claim = await broker("claim_review", review_id=skipping["review_id"], reviewer_id="codex")
        assert claim["digest"] is None


async def test_a_repeated_claim_gives_the_same_claim_again(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    first = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert await broker("claim_review", review_id=review_id, reviewer_id="codex") == first
    with pytest.raises(ToolError) as refused:
        await broker("claim_review", review_id=review_id, reviewer_id="claude")
    assert refused.value.code == "already_claimed"


async def test_claim_next_takes_critical_first_then_oldest_and_never_ones_own(broker: LocalBroker) -> None:
    low = (await broker.create(phase="verify"))["review_id"]
    broker.clock.pass_time(1)
    old = (await broker.create())["review_id"]
    broker.clock.pass_time(1)
    young = (await broker.create())["review_id"]
    critical = (await broker.create(agent_type="gsd-planner"))["review_id"]
    own = (await broker.create(proposer_id="codex"))["review_id"]
    taken = [(await broker("claim_next", reviewer_id="codex"))["review_id"] for _ in range(4)]
    assert taken == [critical, old, young, low]
    for review_id in taken:
        await broker("get_proposal", review_id=review_id, caller_id="codex")
    assert await broker("claim_next", reviewer_id="codex") == {"claimed": False}
    assert (await broker("claim_next", reviewer_id="claude"))["review_id"] == own


async def test_claim_next_passes_over_what_does_not_apply(broker: LocalBroker) -> None:
    bad = (await broker.create(diff=STALE))["review_id"]
    broker.clock.pass_time(1)
    good = (await broker.create(diff=GOOD))["review_id"]
    claim = await broker("claim_next", reviewer_id="codex")
    assert (claim["review_id"], claim["claimed"]) == (good, True)
    assert (await broker("get_review_status", review_id=bad))["status"] == "changes_requested"


async def test_claim_next_heeds_category_and_project(broker: LocalBroker) -> None:
    await broker.create(category="handoff", project="a")
    wanted = (await broker.create(category="code_change", project="b"))["review_id"]
    claim = await broker("claim_next", reviewer_id="codex", category="code_change", project="b")
    assert claim["review_id"] == wanted


async def test_a_released_claim_goes_back_to_the_queue_and_its_verdict_is_stale(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    released = await broker("release_claim", review_id=review_id, claim_generation=1)
    assert (released["status"], released["claim_generation"]) == ("pending", 2)
    with pytest.raises(ToolError) as refused:
        await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1)
    assert refused.value.code == "stale_claim"
    events = (await broker("get_review_timeline", review_id=review_id))["events"]
    assert events[-1]["event_type"] == "verdict_refused"
    assert events[-1]["metadata"]["code"] == "stale_claim"


async def test_a_revision_shows_the_latest_and_keeps_the_older_readable(broker: LocalBroker) -> None:
    review_id = (await broker.create(diff=GOOD, description="first"))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    await broker(
        "submit_verdict", review_id=review_id, verdict="request_changes", reason="German!", reviewer_id="codex"
    )
    await broker.create(review_id=review_id, diff=BETTER, intent="In German")
    latest = await broker("get_proposal", review_id=review_id)
    assert (latest["revision"], latest["diff"], latest["description"]) == (2, BETTER, None)
    older = await broker("get_proposal", review_id=review_id, revision=1)
    assert (older["revision"], older["diff"], older["description"]) == (1, GOOD, "first")
    with pytest.raises(ToolError) as refused:
        await broker("get_proposal", review_id=review_id, revision=3)
    assert refused.value.code == "not_found"
    with pytest.raises(ToolError) as refused:
        await broker.create(review_id=review_id, diff=GOOD)
    assert refused.value.code == "invalid_transition"


async def test_a_review_is_found_by_a_prefix_that_names_only_it(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    assert (await broker("get_review_status", review_id=review_id[:6]))["review_id"] == review_id
    assert (await broker("get_review_status", review_id=review_id.upper()))["review_id"] == review_id
    with pytest.raises(ToolError) as refused:
        await broker("get_review_status", review_id=review_id[:5])
    assert refused.value.code == "invalid_argument"
    assert review_id in refused.value.hint
    for unknown in ("0" * 16, "zzzzzz", "ünïcödé", "%%%%%%"):
        with pytest.raises(ToolError) as refused:
            await broker("get_review_status", review_id=unknown)
        assert refused.value.code == "not_found"


async def test_an_ambiguous_prefix_is_refused_with_the_matches(broker: LocalBroker, monkeypatch) -> None:
    ids = iter([f"abcdef{number:010x}" for number in range(7)])
    monkeypatch.setattr("gsd_review_broker.service.commands.proposals.new_review_id", lambda: next(ids))
    for _ in range(7):
        await broker.create()
    with pytest.raises(ToolError) as refused:
        await broker("get_review_status", review_id="abcdef")
    assert refused.value.code == "invalid_argument"
    assert "abcdef0000000000" in refused.value.hint
    assert "…" in refused.value.hint


async def test_lists_are_ordered_filtered_and_paged(broker: LocalBroker) -> None:
    parent = (await broker.create(phase="p"))["review_id"]
    made = []
    for number in range(5):
        broker.clock.pass_time(1)
        created = await broker.create(project="x", plan=str(number % 2), phase="q", parent_id=parent[:8])
        made.append(created["review_id"])
    page = await broker("list_reviews", project="x", limit=2)
    seen = [row["id"] for row in page["reviews"]]
    while page["next_cursor"]:
        page = await broker("list_reviews", project="x", limit=2, cursor=page["next_cursor"])
        seen += [row["id"] for row in page["reviews"]]
    assert seen == made
    for filters in ({"plan": "1"}, {"phase": "q"}, {"parent_id": parent}, {"status": "pending"}):
        rows = (await broker("list_reviews", **filters))["reviews"]
        assert rows
        assert all(row[name] == value for row in rows for name, value in filters.items())
    assert (await broker("list_reviews", needs_human=True))["reviews"] == []
    assert len((await broker("list_reviews", needs_human=False))["reviews"]) == 6
    for wrong in ({"limit": 501}, {"limit": 0}, {"cursor": "nonsense"}):
        with pytest.raises(ToolError) as refused:
            await broker("list_reviews", **wrong)
        assert refused.value.code == "invalid_argument"
    first = await broker("list_reviews", project="x", limit=2)
    with pytest.raises(ToolError) as refused:
        await broker("list_reviews", project="y", limit=2, cursor=first["next_cursor"])
    assert refused.value.code == "invalid_argument"


async def test_a_reviewer_is_not_shown_what_it_may_not_claim(broker: LocalBroker) -> None:
    await broker.create(proposer_id="Codex")
    other = (await broker.create(proposer_id="p"))["review_id"]
    rows = (await broker("list_reviews", status="pending", reviewer_id="codex"))["reviews"]
    assert [row["id"] for row in rows] == [other]


async def test_an_idempotency_key_makes_a_repeated_call_one_call(broker: LocalBroker) -> None:
    first = await broker.create(idempotency_key="k1")
    assert await broker.create(idempotency_key="k1") == first
    assert (await broker.create(idempotency_key="k1", project="other"))["review_id"] != first["review_id"]
    with pytest.raises(ToolError) as refused:
        await broker.create(idempotency_key="k1", intent="something else")
    assert refused.value.code == "conflict"
    review_id = first["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex", idempotency_key="k1")
    given = {"review_id": review_id, "verdict": "approved", "claim_generation": 1, "idempotency_key": "v"}
    verdict = await broker("submit_verdict", **given)
    assert await broker("submit_verdict", **given) == verdict
    closing = {"review_id": review_id, "idempotency_key": "c"}
    assert await broker("close_review", **closing) == await broker("close_review", **closing)
    # Even the claim is answered as it was, though the review is closed by now.
    again = await broker("claim_review", review_id=review_id, reviewer_id="codex", idempotency_key="k1")
    assert again == claim
    assert (await broker("get_review_timeline", review_id=review_id))["event_count"] == 4
    broker.clock.pass_time(25 * 3600)
    assert (await broker.create(idempotency_key="k1"))["review_id"] != review_id


async def test_every_mutation_repeated_with_its_key_has_one_event(broker: LocalBroker) -> None:
    async def twice(tool: str, **arguments: object) -> dict:
        first = await broker(tool, **arguments, idempotency_key="same")
        assert await broker(tool, **arguments, idempotency_key="same") == first
        return first

    review_id = (await broker.create(diff=GOOD))["review_id"]
    await twice("claim_next", reviewer_id="codex")
    await twice("add_message", review_id=review_id, sender_role="reviewer", body="hm")
    findings = [{"title": "t", "body": "b", "severity": "high", "path": "hello.txt", "line_start": 2}]
    await twice(
        "submit_verdict",
        review_id=review_id,
        verdict="changes_requested",
        reason="r",
        claim_generation=1,
        counter_patch=BETTER,
        findings=findings,
    )
    finding_id = (await broker("get_discussion", review_id=review_id))["findings"][0]["finding_id"]
    await twice("resolve_finding", review_id=review_id, finding_id=finding_id, disposition="fixed")
    await twice("accept_counter_patch", review_id=review_id)
    generation = (await broker("claim_review", review_id=review_id, reviewer_id="codex"))["claim_generation"]
    await twice("release_claim", review_id=review_id, claim_generation=generation)
    await twice("close_review", review_id=review_id)
    events = [e["event_type"] for e in (await broker("get_review_timeline", review_id=review_id))["events"]]
    assert events == [
        "review_created",
        "review_claimed",
        "message_sent",
        "verdict_submitted",
        "counter_patch_offered",
        "finding_resolved",
        "counter_patch_accepted",
        "review_claimed",
        "review_released",
        "review_closed",
    ]


async def test_the_audit_is_read_in_pages_by_the_last_id(broker: LocalBroker) -> None:
    for _ in range(3):
        await broker.create(description="d")
    first = await broker("get_audit_log", limit=2)
    assert [event["id"] for event in first["events"]] == [1, 2]
    rest = await broker("get_audit_log", after=first["next_cursor"])
    assert ([event["id"] for event in rest["events"]], rest["next_cursor"]) == ([3], None)


async def test_a_page_of_long_events_ends_early(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    for _ in range(8):
        await broker("submit_verdict", review_id=review_id, verdict="comment", reason="x" * 60_000, claim_generation=1)
    seen, after = [], None
    while True:
        page = await broker("get_audit_log", review_id=review_id, after=after)
        assert len(str(page)) < 400_000
        seen += [event["id"] for event in page["events"]]
        after = page["next_cursor"]
        if after is None:
            break
    assert seen == list(range(1, 11))
    timeline = await broker("get_review_timeline", review_id=review_id)
    assert all(len(event["metadata"].get("reason", "")) <= 500 for event in timeline["events"])


async def test_the_broker_says_how_it_is(broker: LocalBroker, repository) -> None:
    empty = await broker("broker_status")
    assert empty["queue"] == {"critical": 0, "normal": 0, "low": 0}
    assert (empty["oldest_pending_at"], empty["last_activity_at"]) == (None, None)
    await broker.create(agent_type="planner")
    broker.clock.pass_time(90)
    status = await broker("broker_status")
    assert status["queue"]["critical"] == 1
    assert (status["uptime_seconds"], status["serves"]) == (90, str(repository))
    assert status["oldest_pending_at"] == status["last_activity_at"] == "2027-01-15T08:00:00.000Z"


async def test_approve_racing_a_revision_never_lands_on_content_that_was_not_seen(broker: LocalBroker) -> None:
    for _ in range(20):
        review_id = (await broker.create(diff=GOOD))["review_id"]
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
        generation = claim["claim_generation"]
        await broker(
            "submit_verdict", review_id=review_id, verdict="changes_requested", reason="no", claim_generation=generation
        )
        approve = broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)
        revise = broker.create(review_id=review_id, diff=BETTER)
        outcomes = await asyncio.gather(approve, revise, return_exceptions=True)
        assert isinstance(outcomes[0], ToolError)
        assert outcomes[0].code in {"stale_claim", "invalid_transition"}
        status = await broker("get_review_status", review_id=review_id)
        assert (status["status"], status["revision"]) == ("pending", 2)


async def test_a_revision_while_git_checks_the_claim_is_claimed_as_it_is_then(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim commits only if the revision is the one that git checked; else it looks again."""
    review_id = (await broker.create(diff=STALE))["review_id"]
    write = broker.store.write

    async def write_after_a_revision(command: Any) -> Any:
        """git has checked revision 1, and the claim is about to be written."""
        monkeypatch.undo()
        other = await broker("claim_review", review_id=review_id, reviewer_id="other")
        assert other["auto_rejected"]
        await broker.create(review_id=review_id, diff=GOOD)
        return await write(command)

    monkeypatch.setattr(broker.store, "write", write_after_a_revision)
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert (claim["status"], claim["revision"]) == ("claimed", 2)
    assert claim["digest"] is not None


async def test_too_many_revisions_are_refused(tmp_path, repository) -> None:
    async with local_broker(tmp_path, root=repository, limits={"revisions": 2}) as broker:
        review_id = (await broker.create(diff=STALE))["review_id"]
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
        await broker.create(review_id=review_id, diff=STALE)
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
        with pytest.raises(ToolError) as refused:
            await broker.create(review_id=review_id, diff=GOOD)
        assert refused.value.code == "too_large"
