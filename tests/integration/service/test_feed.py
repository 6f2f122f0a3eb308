"""What happened last, the whole audit and one review's story, as observers read them."""

import itertools
import re
from typing import Any

import pytest

from tests.support.local import LocalBroker
from tests.support.mcp import ToolError
from tests.support.texts import BETTER, GOOD

pytestmark = pytest.mark.slow

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def ids(broker: LocalBroker, **asked: Any) -> list[str]:
    return [row["id"] for row in (await broker("get_activity_feed", **asked))["reviews"]]


async def refused(broker: LocalBroker, tool: str, **asked: Any) -> str:
    with pytest.raises(ToolError) as error:
        await broker(tool, **asked)
    return error.value.code


async def claimed(broker: LocalBroker, **proposal: Any) -> str:
    review_id = (await broker.create(**proposal))["review_id"]
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    return review_id


# The feed.


async def test_an_empty_feed_is_an_answer(broker: LocalBroker) -> None:
    assert await broker("get_activity_feed") == {"reviews": [], "next_cursor": None}


async def test_whatever_happens_to_a_review_brings_it_to_the_top(broker: LocalBroker) -> None:
    first, second, third = [(await broker.create())["review_id"] for _ in range(3)]

    async def top_after(review_id: str, tool: str, **asked: Any) -> None:
        broker.clock.pass_time(1)
        await broker(tool, review_id=review_id, **asked)
        assert (await ids(broker))[0] == review_id

    await top_after(first, "claim_review", reviewer_id="codex")
    await top_after(second, "close_review")
    await top_after(first, "add_message", sender_role="reviewer", body="why?")
    await top_after(third, "claim_review", reviewer_id="codex")
    await top_after(first, "submit_verdict", verdict="changes_requested", reason="no", claim_generation=1)
    await top_after(third, "release_claim", claim_generation=1)
    broker.clock.pass_time(1)
    with pytest.raises(ToolError):
        await broker("submit_verdict", review_id=second, verdict="approved", claim_generation=7)
    assert await ids(broker) == [second, third, first]


async def test_reading_moves_nothing(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    broker.clock.pass_time(1)
    await broker.create()
    before = await broker("get_activity_feed")
    broker.clock.pass_time(5)
    for tool in ("get_review_status", "get_proposal", "get_discussion"):
        await broker(tool, review_id=review_id, caller_id="codex")
    assert await broker("get_activity_feed") == before


async def test_a_row_tells_of_the_review_and_of_what_was_said_last(broker: LocalBroker) -> None:
    proposal = {"project": "site", "category": "code_change", "plan": "p", "task": "t", "proposer_id": "ada"}
    review_id = await claimed(broker, **proposal, diff=GOOD)
    broker.clock.pass_time(1.5)
    await broker("add_message", review_id=review_id, sender_role="reviewer", body="one")
    broker.clock.pass_time(0.007)
    await broker("add_message", review_id=review_id, sender_role="proposer", body="two")
    (row,) = (await broker("get_activity_feed"))["reviews"]
    assert row == {
        "id": review_id, "status": "in_review", "version": 4, "revision": 1, "round": 1,
        "intent": "Say hello in French", "agent_type": "gsd-executor", "agent_role": "proposer", "phase": "1",
        "plan": "p", "task": "t", "category": "code_change", "priority": "normal", "project": "site",
        "proposer_id": "ada", "parent_id": None, "has_diff": True, "claimed_by": "codex", "verdict": None,
        "open_finding_count": 0, "counter_patch_status": None, "needs_human": None,
        "created_at": "2027-01-15T08:00:00.000Z", "updated_at": "2027-01-15T08:00:01.507Z",
        "message_count": 2, "last_message_at": "2027-01-15T08:00:01.507Z", "last_message_preview": "two",
    }  # fmt: skip


async def test_where_nothing_was_said_there_are_no_words(broker: LocalBroker) -> None:
    await broker.create()
    (row,) = (await broker("get_activity_feed"))["reviews"]
    assert (row["message_count"], row["last_message_at"], row["last_message_preview"]) == (0, None, None)


async def test_later_events_leave_the_last_words_as_they_are(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    await broker("add_message", review_id=review_id, sender_role="proposer", body="the last words")
    said_at = (await broker("get_activity_feed"))["reviews"][0]["last_message_at"]
    broker.clock.pass_time(9)
    comment = {"verdict": "comment", "reason": "a comment is no message", "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, **comment)
    (row,) = (await broker("get_activity_feed"))["reviews"]
    assert (row["message_count"], row["last_message_at"], row["last_message_preview"]) == (1, said_at, "the last words")
    assert row["updated_at"] > said_at


PREVIEWS = {
    "x" * 120: "x" * 120,
    "x" * 121: "x" * 120,
    "審" * 200: "審" * 120,
    "🦉" * 121: "🦉" * 120,
    "first line\nsecond line": "first line\nsecond line",
}


async def test_the_preview_is_the_first_120_characters(broker: LocalBroker) -> None:
    review_id = await claimed(broker)
    for body, preview in PREVIEWS.items():
        await broker("add_message", review_id=review_id, sender_role="proposer", body=body)
        assert (await broker("get_activity_feed"))["reviews"][0]["last_message_preview"] == preview


STATUSES = ("pending", "claimed", "closed")
CATEGORIES = ("code_change", "handoff", None)
PROJECTS = ("site", "api", None)


async def of_every_kind(broker: LocalBroker) -> list[dict[str, Any]]:
    """Each combination twice, the oldest first, all with their own moment."""
    made = []
    for status, category, project in itertools.product(STATUSES, CATEGORIES, PROJECTS):
        for _ in range(2):
            broker.clock.pass_time(1)
            review_id = (await broker.create(category=category, project=project))["review_id"]
            if status == "claimed":
                await broker("claim_review", review_id=review_id, reviewer_id="codex")
            if status == "closed":
                await broker("close_review", review_id=review_id)
            made.append({"id": review_id, "status": status, "category": category, "project": project})
    return made


async def test_each_filter_and_each_combination_gives_what_fits_newest_first(broker: LocalBroker) -> None:
    made = await of_every_kind(broker)
    for status, category, project in itertools.product(
        (None, *STATUSES, "approved"), (None, *CATEGORIES[:2], "verification"), (None, *PROJECTS[:2], "other")
    ):
        asked = {"status": status, "category": category, "project": project}
        wanted = {name: value for name, value in asked.items() if value is not None}
        fitting = [row["id"] for row in reversed(made) if all(row[name] == value for name, value in wanted.items())]
        assert await ids(broker, **wanted, limit=500) == fitting, wanted


@pytest.mark.parametrize("asked", [{}, {"status": "pending"}, {"project": "site"}, {"category": "handoff"}])
async def test_pages_together_are_the_whole_feed(broker: LocalBroker, asked: dict[str, str]) -> None:
    await of_every_kind(broker)
    whole = await ids(broker, **asked, limit=500)
    for size in (1, 2, 5, 9, len(whole)):
        read: list[str] = []
        page = await broker("get_activity_feed", **asked, limit=size)
        while page["next_cursor"] is not None:
            assert len(page["reviews"]) == size
            read += [row["id"] for row in page["reviews"]]
            page = await broker("get_activity_feed", **asked, limit=size, cursor=page["next_cursor"])
        # The last page holds something: a cursor is given only where there is more.
        assert page["reviews"]
        assert [*read, *(row["id"] for row in page["reviews"])] == whole


async def test_reviews_of_one_moment_are_neither_lost_nor_doubled_between_pages(broker: LocalBroker) -> None:
    made = {(await broker.create())["review_id"] for _ in range(9)}
    read: list[str] = []
    page = await broker("get_activity_feed", limit=2)
    while page["next_cursor"] is not None:
        read += [row["id"] for row in page["reviews"]]
        page = await broker("get_activity_feed", limit=2, cursor=page["next_cursor"])
    read += [row["id"] for row in page["reviews"]]
    assert (len(read), set(read)) == (9, made)


async def test_what_moves_to_the_top_while_one_reads_on_is_not_seen_twice(broker: LocalBroker) -> None:
    made = []
    for _ in range(4):
        broker.clock.pass_time(1)
        made.append((await broker.create())["review_id"])
    page = await broker("get_activity_feed", limit=2)
    broker.clock.pass_time(1)
    await broker("close_review", review_id=made[3])
    rest = await broker("get_activity_feed", limit=2, cursor=page["next_cursor"])
    assert [row["id"] for row in rest["reviews"]] == [made[1], made[0]]


async def test_a_cursor_belongs_to_its_filters(broker: LocalBroker) -> None:
    for _ in range(2):
        await broker.create(project="site")
    cursor = (await broker("get_activity_feed", project="site", limit=1))["next_cursor"]
    others = [{}, {"status": "pending"}, {"category": "handoff"}, {"project": "api"}]
    for other in (*others, {"project": "site", "status": "pending"}):
        assert await refused(broker, "get_activity_feed", **other, limit=1, cursor=cursor) == "invalid_argument"
    # The size of a page is no filter.
    assert len(await ids(broker, project="site", limit=5, cursor=cursor)) == 1


async def test_a_lists_cursor_belongs_to_every_argument(broker: LocalBroker) -> None:
    parent = (await broker.create())["review_id"]
    given = {"status": "pending", "category": "handoff", "project": "site", "phase": "1", "plan": "p",
             "proposer_id": "ada", "parent_id": parent, "needs_human": False, "reviewer_id": "codex"}  # fmt: skip
    fields = {name: given[name] for name in ("category", "project", "phase", "plan", "proposer_id", "parent_id")}
    for _ in range(2):
        await broker.create(**fields)
    page = await broker("list_reviews", **given, limit=1)
    assert page["next_cursor"] is not None
    assert (await broker("list_reviews", **given, limit=1, cursor=page["next_cursor"]))["reviews"]
    for name in given:
        others = {other: value for other, value in given.items() if other != name}
        again = {"limit": 1, "cursor": page["next_cursor"]}
        assert await refused(broker, "list_reviews", **others, **again) == "invalid_argument", name
    other_reviewer = {**given, "reviewer_id": "claude", "limit": 1, "cursor": page["next_cursor"]}
    assert await refused(broker, "list_reviews", **other_reviewer) == "invalid_argument"


async def test_what_is_no_cursor_is_refused(broker: LocalBroker) -> None:
    for cursor in ("", "nonsense", "e30", "審", "=" * 9):
        assert await refused(broker, "get_activity_feed", cursor=cursor) == "invalid_argument"


async def test_a_cursor_of_the_list_is_none_of_the_feed(broker: LocalBroker) -> None:
    for _ in range(2):
        await broker.create()
    of_list = (await broker("list_reviews", limit=1))["next_cursor"]
    of_feed = (await broker("get_activity_feed", limit=1))["next_cursor"]
    assert await refused(broker, "get_activity_feed", limit=1, cursor=of_list) == "invalid_argument"
    assert await refused(broker, "list_reviews", limit=1, cursor=of_feed) == "invalid_argument"


@pytest.mark.parametrize("tool", ["get_activity_feed", "get_audit_log"])
async def test_a_page_that_is_too_large_or_none_is_refused(broker: LocalBroker, tool: str) -> None:
    for limit in (0, -1, 501, 10**30):
        assert await refused(broker, tool, limit=limit) == "invalid_argument"


async def test_a_page_has_50_rows_unless_said(broker: LocalBroker) -> None:
    for _ in range(51):
        await broker.create()
    page = await broker("get_activity_feed")
    assert (len(page["reviews"]), page["next_cursor"] is None) == (50, False)
    assert len(await ids(broker, limit=500)) == 51
    assert len((await broker("get_audit_log"))["events"]) == 50


async def test_a_filter_that_is_none_is_refused(broker: LocalBroker) -> None:
    for asked in ({"status": "open"}, {"category": "uncategorized"}, {"needs_human": True}):
        assert await refused(broker, "get_activity_feed", **asked) == "invalid_argument"


async def test_a_project_that_cannot_be_one_is_refused(broker: LocalBroker) -> None:
    for project in ("half \ud800", "nul\0"):
        assert await refused(broker, "get_activity_feed", project=project) == "invalid_argument"


# The audit log.


async def long_story(broker: LocalBroker) -> str:
    review_id = await claimed(broker, diff=GOOD, category="code_change")
    broker.clock.pass_time(1)
    await broker("add_message", review_id=review_id, sender_role="reviewer", body="why? " * 100)
    remark = {"title": "t", "body": "b", "severity": "low", "path": "hello.txt", "line_start": 2}
    no = {"verdict": "changes_requested", "reason": "r" * 2_000, "claim_generation": 1}
    await broker("submit_verdict", review_id=review_id, **no, counter_patch=BETTER, findings=[remark])
    await broker("accept_counter_patch", review_id=review_id)
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    yes = {"verdict": "approved", "claim_generation": claim["claim_generation"]}
    await broker("submit_verdict", review_id=review_id, **yes)
    await broker("close_review", review_id=review_id, reason="done")
    return review_id


TOLD = [
    ("review_created", None, "pending"),
    ("review_claimed", "pending", "claimed"),
    ("message_sent", "claimed", "in_review"),
    ("verdict_submitted", "in_review", "changes_requested"),
    ("counter_patch_offered", "changes_requested", "changes_requested"),
    ("counter_patch_accepted", "changes_requested", "pending"),
    ("review_claimed", "pending", "claimed"),
    ("verdict_submitted", "claimed", "approved"),
    ("review_closed", "approved", "closed"),
]


def told(events: list[dict[str, Any]]) -> list[tuple[str, str | None, str]]:
    return [(event["event_type"], event["old_status"], event["new_status"]) for event in events]


async def test_the_audit_log_has_every_event_in_the_order_of_ids(broker: LocalBroker) -> None:
    review_id = await long_story(broker)
    await broker.create()
    log = await broker("get_audit_log")
    assert log["next_cursor"] is None
    assert [event["id"] for event in log["events"]] == list(range(1, 11))
    assert told(log["events"]) == [*TOLD, ("review_created", None, "pending")]
    assert {event["review_id"] for event in log["events"][:9]} == {review_id}
    names = {"id", "review_id", "event_type", "actor", "old_status", "new_status", "metadata", "timestamp"}
    assert all(set(event) == names for event in log["events"])
    assert all(MOMENT.fullmatch(event["timestamp"]) for event in log["events"])
    assert all(isinstance(event["metadata"], dict) for event in log["events"])


async def test_events_carry_what_is_needed_to_replay_them(broker: LocalBroker) -> None:
    await long_story(broker)
    events = [event["metadata"] for event in (await broker("get_audit_log"))["events"]]
    created, first_claim, message, rejection, offer, accepted, _, approval, closing = events
    assert (created["intent"], created["category"], created["round"]) == ("Say hello in French", "code_change", 1)
    assert first_claim["claimed_by"] == "codex"
    assert first_claim["digest"].startswith("sha256:")
    assert message["body_preview"] == ("why? " * 100)[:100]
    assert (rejection["verdict"], rejection["reason"], rejection["has_counter_patch"]) == (
        "changes_requested", "r" * 2_000, True,
    )  # fmt: skip
    assert offer["counter_patch_status"] == "pending"
    assert (accepted["old_claimant"], accepted["written_by"], accepted["revision"]) == ("codex", "codex", 2)
    assert approval["digest"].startswith("sha256:")
    assert (approval["verdict"], approval["round"]) == ("approved", 2)
    assert (closing["outcome"], closing["reason"]) == ("approved", "done")


async def test_the_audit_log_is_read_on_after_the_last_id(broker: LocalBroker) -> None:
    await long_story(broker)
    await broker.create()
    for size in (1, 3, 10, 500):
        seen: list[int] = []
        page = await broker("get_audit_log", limit=size)
        seen += [event["id"] for event in page["events"]]
        while page["next_cursor"] is not None:
            assert page["next_cursor"] == seen[-1]
            page = await broker("get_audit_log", limit=size, after=page["next_cursor"])
            seen += [event["id"] for event in page["events"]]
        assert seen == list(range(1, 11))


async def test_the_audit_log_of_one_review_is_its_own(broker: LocalBroker) -> None:
    other = (await broker.create())["review_id"]
    review_id = await long_story(broker)
    await broker("close_review", review_id=other)
    mine = (await broker("get_audit_log", review_id=review_id))["events"]
    assert (told(mine), {event["review_id"] for event in mine}) == (TOLD, {review_id})
    after = (await broker("get_audit_log", review_id=review_id[:8], after=mine[3]["id"], limit=2))["events"]
    assert after == mine[4:6]


async def test_after_the_end_there_is_nothing(broker: LocalBroker) -> None:
    await broker.create()
    for after in (1, 2, 10**9, 2**62):
        assert await broker("get_audit_log", after=after) == {"events": [], "next_cursor": None}
    for no_id in (2**63, -(10**30)):
        assert await refused(broker, "get_audit_log", after=no_id) == "invalid_argument"


@pytest.mark.parametrize("tool", ["get_audit_log", "get_review_timeline"])
async def test_of_a_review_that_is_not_there_nothing_can_be_told(broker: LocalBroker, tool: str) -> None:
    assert await refused(broker, tool, review_id="0123456789abcdef") == "not_found"
    assert await refused(broker, tool, review_id="abc") == "invalid_argument"


# One review's story.


async def test_the_timeline_tells_one_review_from_proposal_to_end(broker: LocalBroker) -> None:
    await broker.create()
    review_id = await long_story(broker)
    story = await broker("get_review_timeline", review_id=review_id[:6])
    events = story.pop("events")
    assert story == {
        "review_id": review_id,
        "intent": "Say hello in French",
        "current_status": "closed",
        "category": "code_change",
        "version": 9,
        "event_count": 9,
        "next_cursor": None,
    }
    assert told(events) == TOLD
    assert [event["id"] for event in events] == list(range(2, 11))
    log = (await broker("get_audit_log", review_id=review_id))["events"]
    assert [{**event, "metadata": None} for event in events] == [{**event, "metadata": None} for event in log]


async def test_the_timeline_shortens_long_texts_and_the_audit_log_has_them_whole(broker: LocalBroker) -> None:
    review_id = await long_story(broker)
    story = (await broker("get_review_timeline", review_id=review_id))["events"]
    log = (await broker("get_audit_log", review_id=review_id))["events"]
    assert story[3]["metadata"]["reason"] == "r" * 499 + "…"
    assert log[3]["metadata"]["reason"] == "r" * 2_000


async def test_a_review_without_a_category_says_so(broker: LocalBroker) -> None:
    review_id = (await broker.create())["review_id"]
    story = await broker("get_review_timeline", review_id=review_id)
    assert (story["category"], story["current_status"], story["event_count"]) == (None, "pending", 1)
