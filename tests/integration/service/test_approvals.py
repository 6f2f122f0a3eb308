"""The approval policy on a broker: several reviewers, a person for chosen paths, and what each front end says."""

from pathlib import Path
from typing import Any

import pytest

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
