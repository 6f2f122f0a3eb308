"""The approval policy on a broker: several reviewers, a person for chosen paths, and what each front end says."""

from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.service import pool_records as records_module
from tests.support import invariants
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.texts import GOOD


async def approve(broker: LocalBroker, review_id: str, reviewer: str) -> Any:
    claim = await broker("claim_review", review_id=review_id, reviewer_id=reviewer)
    generation = claim["claim_generation"]
    return await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=generation)


async def test_two_reviewers_approve_before_it_counts(tmp_path: Path, repository: Path) -> None:
    async with local_broker(tmp_path, root=repository, approvals={"required": 2}) as broker:
        review_id = (await broker.create(diff=GOOD))["review_id"]
        first = await approve(broker, review_id, "codex-a")
        assert (first["status"], first["verdict"], first["missing"]) == ("pending", "approved", ["1 more approval"])
        status = await broker("get_review_status", review_id=review_id)
        assert (status["verdict"], status["approved_by"], status["missing"]) == (None, ["codex-a"], ["1 more approval"])
        assert "missing: 1 more approval" in await broker.page(f"/r/{review_id}")
        with pytest.raises(ToolError) as again:
            await broker("claim_review", review_id=review_id, reviewer_id="codex-a")
        assert again.value.code == "invalid_transition"
        assert await broker("claim_next", reviewer_id="codex-a") == {"claimed": False}
        second = await approve(broker, review_id, "codex-b")
        assert second["status"] == "approved"
        assert "missing" not in second
        assert "missing" not in await broker("get_review_status", review_id=review_id)
    assert invariants.problems(broker.database) == []


async def test_a_revision_begins_again(tmp_path: Path, repository: Path) -> None:
    async with local_broker(tmp_path, root=repository, approvals={"required": 2}) as broker:
        review_id = (await broker.create())["review_id"]
        await approve(broker, review_id, "codex-a")
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex-b")
        given = {"review_id": review_id, "claim_generation": claim["claim_generation"]}
        await broker("submit_verdict", **given, verdict="changes_requested", reason="no")
        await broker.create(review_id=review_id, intent="better")
        broker.clock.pass_time(61)
        assert (await broker("get_review_status", review_id=review_id))["approved_by"] == []
        assert (await approve(broker, review_id, "codex-a"))["status"] == "pending"
        assert (await approve(broker, review_id, "codex-b"))["status"] == "approved"
    assert invariants.problems(broker.database) == []


async def test_chosen_paths_need_a_person(tmp_path: Path, repository: Path) -> None:
    async with local_broker(tmp_path, root=repository, approvals={"human_paths": ["hello.*"]}) as broker:
        review_id = (await broker.create(diff=GOOD))["review_id"]
        first = await approve(broker, review_id, "codex-a")
        assert first["missing"] == ["a person's approval, for hello.txt"]
        assert (await broker("get_review_status", review_id=review_id))["needs_human"]
        assert (await approve(broker, review_id, "human:ada"))["status"] == "approved"
        status = await broker("get_review_status", review_id=review_id)
        assert status["needs_human"] is None
    assert invariants.problems(broker.database) == []


async def offered(broker: LocalBroker, reviewer: str, **more: Any) -> list[str]:
    listed = await broker("list_reviews", status="pending", reviewer_id=reviewer, **more)
    return [row["id"] for row in listed["reviews"]]


async def test_a_list_for_a_reviewer_leaves_out_what_it_cannot_add_to(tmp_path: Path, repository: Path) -> None:
    policy = {"required": 2, "distinct_vendors": True}
    async with local_broker(tmp_path, root=repository, approvals=policy) as broker:
        half: list[str] = []
        for _ in range(3):
            half.append((await broker.create())["review_id"])
            await approve(broker, half[-1], "codex-a")
            broker.clock.pass_time(1)
        fresh = (await broker.create())["review_id"]
        assert await offered(broker, "codex-a") == [fresh]
        assert await offered(broker, "codex-b") == [fresh]
        assert await offered(broker, "claude-a") == [*half, fresh]
        assert await offered(broker, "human:ada") == [*half, fresh]
        first = await broker("list_reviews", status="pending", reviewer_id="codex-b", limit=1)
        assert ([row["id"] for row in first["reviews"]], first["next_cursor"]) == ([fresh], None)
        paged = await broker("list_reviews", status="pending", reviewer_id="claude-a", limit=2)
        rest = await offered(broker, "claude-a", limit=2, cursor=paged["next_cursor"])
        assert [row["id"] for row in paged["reviews"]] + rest == [*half, fresh]
        await broker("claim_review", review_id=fresh, reviewer_id="codex-b")
        everything = await broker("list_reviews", reviewer_id="codex-b")
        assert [row["id"] for row in everything["reviews"]] == [fresh]
        nothing = await broker("list_reviews", status="pending", reviewer_id="codex-b", wait=True, wait_seconds=0.01)
        assert nothing == {"reviews": [], "next_cursor": None, "changed": False}


async def test_a_client_of_an_unknown_vendor_does_not_make_the_rule_weaker(tmp_path: Path, repository: Path) -> None:
    policy = {"required": 2, "distinct_vendors": True}
    async with local_broker(tmp_path, root=repository, approvals=policy) as broker:
        review_id = (await broker.create())["review_id"]
        await approve(broker, review_id, "opencode-a")
        half = await approve(broker, review_id, "codex-a")
        assert half["status"] == "pending"
        (missing,) = half["missing"]
        assert missing.startswith("an approval from another vendor than openai (the vendor of opencode-a is unknown;")
        assert await offered(broker, "cursor-a") == []
        assert (await approve(broker, review_id, "claude-a"))["status"] == "approved"


@pytest.mark.parametrize(
    ("policy", "approver", "waits_for"),
    [
        ({"required": 2}, "codex-a", {"codex", "claude"}),
        ({"required": 2, "distinct_vendors": True}, "codex-a", {"claude"}),
        ({"human_paths": ["hello.txt"]}, "codex-a", set()),
    ],
)
async def test_the_pool_starts_no_agent_for_a_review_that_it_could_not_claim(
    tmp_path: Path, repository: Path, policy: dict[str, Any], approver: str, waits_for: set[str]
) -> None:
    async with local_broker(tmp_path, root=repository, approvals=policy) as broker:
        review_id = (await broker.create(diff=GOOD))["review_id"]
        records = broker.application.broker.pool.records
        for agent in ("codex", "claude"):
            assert (await records.situation(agent)).pending == 1
        await approve(broker, review_id, approver)
        wanted = {agent for agent in ("codex", "claude") if (await records.situation(agent)).pending}
        assert wanted == waits_for
        assert (await records.situation()).pending == 1


async def test_the_pool_counts_what_waits_for_others_page_by_page(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "_LOOKED_AT_ONCE", 2)
    policy = {"required": 2, "distinct_vendors": True}
    async with local_broker(tmp_path, root=repository, approvals=policy) as broker:
        for number in range(5):
            review_id = (await broker.create())["review_id"]
            if number != 3:
                await approve(broker, review_id, "codex-a")
        records = broker.application.broker.pool.records
        assert (await records.situation("codex")).pending == 1
        assert (await records.situation("claude")).pending == 5
