"""The pool with real child processes: it scales up, judges, drains and goes home."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import invariants
from tests.support.mcp import ToolError
from tests.support.pool import QUICK, alive, pool_broker, program, script
from tests.support.waiting import PATIENCE


async def test_a_pending_review_starts_a_reviewer_that_judges_it(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    async with pool_broker(tmp_path, own_home, repository, program("good")) as broker:
        assert await broker.listed() == []
        review_id = await broker.create()
        await broker.until_status(review_id, "approved")
        (event,) = await broker.events("verdict_submitted")
        (reviewer,) = await broker.listed()
        assert reviewer["id"] == event["actor"]
        assert reviewer["doing"] in {"calls submit_verdict", "calls claim_next"}
        assert reviewer["id"].rpartition("-")[0] == reviewer["display_name"] == "command-r1"
        (spawned,) = await broker.events("reviewer_spawned")
        assert spawned["review_id"] is None
        assert spawned["metadata"] == {
            "reviewer_id": reviewer["id"],
            "display_name": "command-r1",
            "agent": "command",
            "model": None,
            "project": None,
            "pid": reviewer["pid"],
        }
        assert (await broker.call("broker_status"))["reviewers"][0]["id"] == reviewer["id"]


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.torture)])
async def test_many_reviews_are_judged_by_a_pool_that_grows_and_goes_to_zero(
    tmp_path: Path, own_home: Path, repository: Path, count: int
) -> None:
    async with pool_broker(tmp_path, own_home, repository, program("good"), max_pool_size=4) as broker:
        reviews = await asyncio.gather(
            *(broker.create(intent=f"{'NO' if index % 4 == 0 else 'yes'} {index}") for index in range(count))
        )
        largest = 0

        async def judged() -> bool:
            nonlocal largest
            state = await broker.pool.state()
            largest = max(largest, sum(one["state"] != "terminated" for one in state["reviewers"]))
            return len(await broker.events("verdict_submitted")) == count

        await broker.until(judged, 3 * PATIENCE)
        # Not before: on a busy machine a program may take long to begin.
        await broker.change_limits(idle_timeout=100)

        async def nobody() -> bool:
            return all(one["state"] == "terminated" for one in await broker.listed())

        await broker.until(nobody)
        assert largest == 4
        verdicts = await broker.events("verdict_submitted")
        assert {event["review_id"] for event in verdicts} == set(reviews)
        spawned = {event["metadata"]["reviewer_id"] for event in await broker.events("reviewer_spawned")}
        assert {event["actor"] for event in verdicts} <= spawned
        claims = {event["review_id"]: event for event in await broker.events("review_claimed")}
        for verdict in verdicts:
            claim = claims[verdict["review_id"]]
            assert verdict["actor"] == claim["actor"]
            assert verdict["metadata"]["claim_generation"] == claim["metadata"]["claim_generation"]
        ended = {
            event["metadata"]["reviewer_id"]: event["metadata"] for event in await broker.events("reviewer_terminated")
        }
        drained = {
            event["metadata"]["reviewer_id"]: event["metadata"] for event in await broker.events("reviewer_drain_start")
        }
        assert set(ended) == set(drained) == spawned
        assert {one["reason"] for one in (*ended.values(), *drained.values())} == {"idle"}
        assert sum(one["reviews_completed"] for one in ended.values()) == count
        for one in await broker.listed():
            assert one["reviews_completed"] == sum(event["actor"] == one["id"] for event in verdicts)
            mine = [event["metadata"]["verdict"] for event in verdicts if event["actor"] == one["id"]]
            if mine:
                assert one["approval_rate_pct"] == round(100 * mine.count("approved") / len(mine), 1)
                assert one["avg_review_seconds"] > 0
                assert one["input_tokens"] == 100 * len(mine)
        assert alive("BROKER_POOL", broker.application.pool.launcher.site.pool) == []
    assert invariants.problems(broker.database) == []


async def test_a_revision_comes_back_to_the_reviewer_that_judged_it(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    async with pool_broker(tmp_path, own_home, repository, program("good")) as broker:
        review_id = await broker.create(intent="NO, not so")
        await broker.until_status(review_id, "changes_requested")

        async def booked() -> bool:
            """What it spent is told by its output, which may be read after its verdict."""
            return (await broker.pool.work_on(review_id))[0]["input_tokens"] is not None

        await broker.until(booked)
        await broker.create(review_id=review_id, intent="then so")
        await broker.until_status(review_id, "approved")
        first, second = await broker.events("verdict_submitted")
        assert first["actor"] == second["actor"]
        work = await broker.pool.work_on(review_id)
        assert [one["outcome"] for one in work] == ["changes_requested", "approved"]
        # A third report has come for the second one by now, or comes in a moment.
        assert work[0]["input_tokens"] == 100


async def test_after_its_time_a_reviewer_finishes_what_it_holds_and_takes_nothing_more(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    go = tmp_path / "go"
    text = f"""
import client, os, time
claimed = client.claim()
while not os.path.exists({str(go)!r}): time.sleep(0.02)
client.judge(claimed)
client.claim()
"""
    quick = replace(QUICK, max_pool_size=1, exit_grace=30_000)
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text), limits=quick) as broker:
        review_id = await broker.create()
        await broker.until_status(review_id, "claimed")
        await broker.change_limits(max_ttl=1)
        await broker.change_limits(max_ttl=quick.max_ttl)
        (reviewer,) = await broker.until_state("draining")
        assert reviewer["current_review"] == review_id
        other = await broker.create()
        assert await broker.status(review_id) == "claimed"
        go.touch()
        await broker.until_status(review_id, "approved")
        (ended,) = await broker.until_state("terminated")
        assert (ended["id"], ended["end_reason"], ended["exit_code"]) == (reviewer["id"], "ttl", 0)
        # The next one takes the next review.
        await broker.until_status(other, "approved")


async def test_a_reviewer_that_dies_gives_its_claim_back_at_once(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    text = "import client, os\nclaimed = client.claim()\nos.kill(os.getpid(), 9)\n"
    slow = replace(QUICK, failure_pause=600_000)
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text), limits=slow) as broker:
        review_id = await broker.create()
        (ended,) = await broker.until_state("terminated")
        assert (ended["exit_code"], ended["end_reason"]) == (-9, "exited")
        assert await broker.status(review_id) == "pending"
        (reclaimed,) = await broker.events("review_reclaimed")
        assert reclaimed["metadata"]["reason"] == f"the process of {ended['id']} ended (exit code -9)"
        state = await broker.pool.state()
        assert "ended without a verdict" in state["problem"]
        [held] = state["held_back"]
        assert (held["review_id"], held["failures"], held["needs_human"]) == (review_id, 1, None)
        assert held["retry_at"] is not None
        assert state["pending"] == 0


async def test_why_reviewers_fail_is_told_in_their_words_everywhere(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    reason = "The model 'gpt-0' does not exist or you do not have access to it."
    error = {"type": "turn.failed", "error": {"message": f"unexpected status 404: {'x' * 200} {reason}"}}
    text = f"print({json.dumps(json.dumps(error))}, flush=True)\nraise SystemExit(1)\n"
    quick = replace(QUICK, failure_pause=1)
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text), limits=quick) as broker:
        review_id = await broker.create()

        async def asked() -> str | None:
            return (await broker.call("get_review_status", review_id=review_id))["needs_human"]

        assert (await broker.until(asked)).endswith(reason)
        state = await broker.pool.state()
        assert state["problem"].endswith(reason)
        [held] = state["held_back"]
        assert (held["failures"], held["retry_at"]) == (3, None)
        for page in ("/", "/pool"):
            async with broker.session.get(f"http://127.0.0.1:{broker.port}{page}") as answer:
                assert "does not exist or you do not have access to it." in await answer.text()


async def test_a_reviewer_that_lets_its_claim_run_out_is_ended(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    text = "import client, time\nclient.claim()\ntime.sleep(600)\n"
    # Only one at a time: another would take the review as soon as it is free.
    slow = replace(QUICK, failure_pause=600_000, max_pool_size=1)
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text), limits=slow) as broker:
        review_id = await broker.create()
        await broker.until_status(review_id, "claimed")
        store, sweep = broker.application.store, broker.application.broker.sweep
        await store.write(lambda tx: tx.shift_deadlines(-2_000_000))
        sweep._grace_until = 0
        await sweep.once()
        (ended,) = await broker.until_state("terminated")
        assert (ended["end_reason"], ended["exit_code"]) == ("hung", -15)
        assert await broker.status(review_id) == "pending"


async def test_the_pool_waits_while_it_is_paused_and_stays_paused_over_a_restart(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    async with pool_broker(tmp_path, own_home, repository, program("good")) as broker:
        assert (await broker.pool.pause())["paused"]
        review_id = await broker.create()
        await broker.application.pool.look()
        assert await broker.listed() == []
    async with pool_broker(tmp_path, own_home, repository, program("good")) as broker:
        assert (await broker.pool.state())["paused"]
        await broker.application.pool.look()
        assert await broker.listed() == []
        assert not (await broker.pool.resume())["paused"]
        await broker.until_status(review_id, "approved")


async def test_the_days_caps_on_starts_and_on_tokens_hold(tmp_path: Path, own_home: Path, repository: Path) -> None:
    spent = "{'type': 'usage', 'input_tokens': 90, 'output_tokens': 10}"
    text = f"import client, json\nclient.judge(client.claim())\nprint(json.dumps({spent}))\n"
    capped = replace(QUICK, max_tokens_per_day=150)
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text), limits=capped) as broker:
        for expected in (1, 2):
            await broker.until_status(await broker.create(), "approved")
            await broker.until_state("terminated", expected)
        await broker.create()

        async def problem() -> str | None:
            """A reviewer stays in the pool for a moment after its end is recorded, until its processes are gone."""
            return (await broker.pool.state())["problem"]

        assert await broker.until(problem) == "the pool has spent as many tokens as max_tokens_per_day allows"
        await broker.application.pool.look()
        assert len(await broker.events("reviewer_spawned")) == 2
        state = await broker.pool.state()
        assert (state["tokens_today"], state["max_tokens_per_day"]) == (200, 150)
        with pytest.raises(ToolError) as error:
            await broker.call("spawn_reviewer")
        assert error.value.code == "unavailable"


async def test_a_report_at_the_end_is_shared_by_the_reviews_it_is_about(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    spent = "{'type': 'turn.completed', 'usage': {'input_tokens': 101, 'output_tokens': 10}}"
    text = f"""
import client, json
for _ in range(2): client.judge(client.claim())
print(json.dumps({spent}))
"""
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text)) as broker:
        await broker.pool.pause()
        reviews = [await broker.create() for _ in range(2)]
        await broker.pool.resume()
        (ended,) = await broker.until_state("terminated")
        assert (ended["input_tokens"], ended["output_tokens"], ended["reviews_completed"]) == (101, 10, 2)
        shares = [(await broker.pool.work_on(review_id))[0] for review_id in reviews]
        assert sorted(one["input_tokens"] for one in shares) == [50, 51]
        (event,) = await broker.events("reviewer_terminated")
        assert event["metadata"]["input_tokens"] == 101


@pytest.mark.parametrize("how", ["released", "withdrawn", "superseded"])
async def test_a_claim_that_ends_without_a_verdict_is_known_for_how_it_ended(
    tmp_path: Path, own_home: Path, repository: Path, how: str
) -> None:
    diff = "--- a/hello.txt\n+++ b/hello.txt\n@@ -1,3 +1,3 @@\n-one\n+ONE\n two\n three\n"
    step = {
        "released": "client.call('release_claim', **it)",
        "withdrawn": "pass",
        "superseded": f"client.call('submit_verdict', verdict='comment', reason='so?', counter_patch={diff!r}, **it)",
    }[how]
    text = f"""
import client, time
claimed = client.claim()
it = {{"review_id": claimed["review_id"], "claim_generation": claimed["claim_generation"]}}
{step}
print("ready", flush=True)
time.sleep(600)
"""
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text)) as broker:
        review_id = await broker.create(diff=diff.replace("ONE", "Eins"))
        (reviewer,) = await broker.until_state("active")

        async def ready() -> bool:
            return "ready" in (await broker.pool.log(reviewer["id"]))["text"]

        await broker.until(ready)
        if how == "withdrawn":
            await broker.call("close_review", review_id=review_id)
        if how == "superseded":
            await broker.call("accept_counter_patch", review_id=review_id)
        work = (await broker.pool.work_on(review_id))[0]
        assert (work["outcome"], work["reviewer_id"]) == (how, reviewer["id"])
        (row,) = [one for one in await broker.listed() if one["id"] == reviewer["id"]]
        assert (row["current_review"], row["reviews_completed"], row["approval_rate_pct"]) == (None, 0, None)


async def test_a_reviewers_own_number_is_used_again_but_not_its_name(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    text = "import client\nclient.judge(client.claim())\n"
    async with pool_broker(tmp_path, own_home, repository, script(tmp_path, text)) as broker:
        for count in (1, 2):
            await broker.until_status(await broker.create(), "approved")
            await broker.until_state("terminated", count)
        one, two = await broker.listed()
        assert one["display_name"] == two["display_name"] == "command-r1"
        assert one["id"] != two["id"]
