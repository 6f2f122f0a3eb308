"""Each command of a review's life through the real executable: what it prints, its JSON, its exit code."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local import PROPOSAL
from tests.support.mcp import Mcp
from tests.support.processes import BrokerProcess
from tests.support.tandem import PROGRAM, Tandem, broker_of_module

DIFF = """\
diff --git a/hello.txt b/hello.txt
--- a/hello.txt
+++ b/hello.txt
@@ -1,3 +1,3 @@
 one
-two
+deux
 three
"""
COUNTER = DIFF.replace("+deux", "+zwei")
STATUS_KEYS = {
    "review_id", "status", "version", "revision", "round", "claimed_by", "verdict", "verdict_reason",
    "open_finding_count", "counter_patch_status", "needs_human", "updated_at", "changed",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    """Each test makes reviews of its own."""
    yield from broker_of_module(tmp_path_factory)


@pytest.fixture
def mcp(broker: BrokerProcess) -> Mcp:
    return broker.client()


@pytest.fixture
def tandem(broker: BrokerProcess) -> Tandem:
    return Tandem(broker.folder, broker.home)


@pytest.fixture
def review_id(mcp: Mcp) -> str:
    return mcp("create_review", **PROPOSAL, diff=DIFF, description="Because\nit is French")["review_id"]


@pytest.fixture
def claimed(mcp: Mcp, review_id: str) -> dict[str, Any]:
    return mcp("claim_review", review_id=review_id, reviewer_id="codex")


def judged(mcp: Mcp, claim: dict[str, Any], verdict: str, **more: Any) -> dict[str, Any]:
    return mcp(
        "submit_verdict",
        review_id=claim["review_id"],
        verdict=verdict,
        claim_generation=claim["claim_generation"],
        **{"reason": "so", **more},
    )


def event_types(mcp: Mcp, review_id: str) -> list[str]:
    return [event["event_type"] for event in mcp("get_review_timeline", review_id=review_id)["events"]]


# Looking.


def test_list_shows_reviews_and_its_json_is_the_tools(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    said = tandem.run("list", "--status", "pending")
    assert said.code == 0
    row = next(line.split("\t") for line in said.out.splitlines() if line.startswith(review_id))
    assert row == [review_id, "pending", "normal", "1", "", "(gsd-executor)", "Say hello in French"]
    assert tandem("list", "--status", "pending") == mcp("list_reviews", status="pending")


def test_list_goes_on_with_its_cursor(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    mcp("create_review", **PROPOSAL)
    first = tandem("list", "--limit", "1")
    second = tandem("list", "--limit", "1", "--cursor", first["next_cursor"])
    assert first["reviews"][0]["id"] != second["reviews"][0]["id"]
    assert f"--cursor {first['next_cursor']}" in tandem.run("list", "--limit", "1").err


def test_list_without_a_match_says_so_and_is_no_failure(tandem: Tandem) -> None:
    said = tandem.run("list", "--project", "there-is-none")
    assert (said.code, said.out, said.err) == (0, "", "No reviews match.\n")
    assert tandem("list", "--project", "there-is-none")["reviews"] == []


def test_show_tells_the_whole_story(tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]) -> None:
    review_id = claimed["review_id"]
    mcp("add_message", review_id=review_id, sender_role="reviewer", sender_id="codex", body="Why French?")
    finding = {"path": "hello.txt", "line_start": 2, "line_end": 2, "severity": "high", "title": "Not English"}
    judged(mcp, claimed, "changes_requested", reason="Say two.", findings=[{**finding, "body": "It was English."}])
    said = tandem.run("show", review_id[:8])
    assert said.code == 0
    for expected in (
        "Say hello in French", "changes_requested", "gsd-executor", "it is French", "hello.txt\t+1\t-1\tmodify",
        "Say two.", "high open", "hello.txt:2", "Not English", "It was English.", "codex (reviewer)", "Why French?",
    ):  # fmt: skip
        assert expected in said.out, expected
    shown = tandem("show", review_id)
    assert set(shown) == {"status", "proposal", "discussion"}
    assert set(shown["status"]) == STATUS_KEYS
    assert shown["proposal"]["diff"] == DIFF
    assert [message["body"] for message in shown["discussion"]["messages"]] == ["Why French?"]


def test_diff_shows_the_diff_and_gives_it_byte_for_byte(tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]) -> None:
    review_id = claimed["review_id"]
    assert tandem.run("diff", review_id).out == DIFF
    assert tandem.run("diff", review_id, "--raw").out == DIFF
    found = tandem("diff", review_id)
    assert (found["diff"], found["digest"]) == (DIFF, claimed["digest"])
    assert [file["path"] for file in found["affected_files"]] == ["hello.txt"]
    assert tandem.run("diff", review_id, "--path", "hello.txt").out == DIFF
    assert tandem.run("diff", review_id, "--path", "other.txt").code == 7
    assert tandem.run("diff", review_id, "--counter").code == 7


def test_diff_puts_many_pages_together(tandem: Tandem, mcp: Mcp) -> None:
    lines = "".join(f"+line {number} of a long file\n" for number in range(9_000))
    diff = f"--- /dev/null\n+++ b/long.txt\n@@ -0,0 +1,9000 @@\n{lines}"
    review_id = mcp("create_review", **PROPOSAL, diff=diff)["review_id"]
    assert mcp("get_proposal", review_id=review_id)["next_cursor"] is not None
    assert tandem.run("diff", review_id, "--raw").out == diff
    assert tandem("diff", review_id)["diff"] == diff


def test_diff_of_a_later_revision_shows_what_changed_since(tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]) -> None:
    review_id = claimed["review_id"]
    judged(mcp, claimed, "changes_requested")
    mcp("create_review", **PROPOSAL, diff=COUNTER, review_id=review_id)
    since = tandem.run("diff", review_id, "--since", "1").out
    assert "-deux" in since
    assert "+zwei" in since
    assert tandem.run("diff", review_id, "--revision", "1").out == DIFF
    assert tandem.run("diff", review_id, "--revision", "7").code == 7


def test_a_review_without_a_diff_has_none_to_show(tandem: Tandem, mcp: Mcp) -> None:
    review_id = mcp("create_review", **PROPOSAL)["review_id"]
    assert tandem.run("diff", review_id).code == 7
    assert tandem("diff", review_id)["diff"] is None


def test_log_tells_each_step(tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]) -> None:
    judged(mcp, claimed, "approved", reason="Fine.")
    said = tandem.run("log", claimed["review_id"])
    assert said.code == 0
    steps = [line.split("  ")[1].split(" by ")[0] for line in said.out.splitlines()[2:]]
    assert steps == ["review_created", "review_claimed", "verdict_submitted"]
    assert "approved; Fine." in said.out
    assert tandem("log", claimed["review_id"]) == mcp("get_review_timeline", review_id=claimed["review_id"])


def test_audit_log_lists_events_and_goes_on_after_one(tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]) -> None:
    found = tandem("audit", "log", claimed["review_id"])
    assert [event["event_type"] for event in found["events"]] == ["review_created", "review_claimed"]
    first = found["events"][0]["id"]
    later = tandem.run("audit", "log", claimed["review_id"], "--after", str(first))
    assert [line.split("\t")[2:5] for line in later.out.splitlines()] == [
        [claimed["review_id"], "review_claimed", "codex"]
    ]
    assert "--after" in tandem.run("audit", "log", "--limit", "1").err


def test_open_prints_the_pages_address(tandem: Tandem, broker: BrokerProcess, review_id: str) -> None:
    quiet = {"BROWSER": "true"}
    assert tandem.run("open", **quiet).out == f"http://127.0.0.1:{broker.port}/\n"
    assert tandem.run("open", review_id[:6], **quiet).out == f"http://127.0.0.1:{broker.port}/r/{review_id}\n"
    assert tandem("open", review_id, **quiet)["url"] == f"http://127.0.0.1:{broker.port}/r/{review_id}"
    assert tandem.run("show", review_id, "--web", **quiet).out == f"http://127.0.0.1:{broker.port}/r/{review_id}\n"


# Judging.


def test_claim_takes_the_right_to_judge(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    claim = tandem("claim", review_id)
    assert (claim["claimed_by"], claim["status"]) == ("human:ada", "claimed")
    assert tandem("claim", review_id)["claim_generation"] == claim["claim_generation"]
    assert tandem.run("claim", review_id, "--as", "codex").code == 6
    assert f"{review_id} claimed by human:ada until " in tandem.run("claim", review_id).out


def test_claim_without_an_id_takes_the_first_that_may_be_judged(tandem: Tandem, mcp: Mcp) -> None:
    mcp("create_review", **{**PROPOSAL, "project": "alone"})
    claim = tandem("claim", "--as", "reviewer-of-anything")
    assert claim["claimed"] is True
    assert claim["claimed_by"] == "reviewer-of-anything"


def test_claim_of_what_does_not_apply_is_told_and_exits_5(tandem: Tandem, mcp: Mcp) -> None:
    review_id = mcp("create_review", **PROPOSAL, diff=DIFF.replace("-two", "-not there"))["review_id"]
    said = tandem.run("claim", review_id)
    assert said.code == 5
    first, second = said.out.splitlines()
    assert "does not apply: error: patch failed: hello.txt:1; error: hello.txt: patch does not apply" in first
    assert f"tandem propose --review {review_id}" in second
    again = mcp("create_review", **PROPOSAL, diff=DIFF.replace("-two", "-not there"))["review_id"]
    said = tandem.run("approve", again, "--json")
    assert (said.code, said.json["auto_rejected"]) == (5, True)


def test_a_person_takes_a_claim_over(tandem: Tandem, claimed: dict[str, Any]) -> None:
    taken = tandem("claim", claimed["review_id"], "--take-over")
    assert taken["claimed_by"] == "human:ada"
    assert taken["claim_generation"] > claimed["claim_generation"]
    refused = tandem.run("claim", claimed["review_id"], "--take-over", "--as", "robot", "--json")
    assert (refused.code, refused.error["code"]) == (4, "forbidden")


def test_release_gives_a_claim_back(tandem: Tandem, claimed: dict[str, Any]) -> None:
    review_id = claimed["review_id"]
    assert tandem.run("release", review_id).code == 6
    assert tandem("release", review_id, "--as", "codex")["status"] == "pending"
    said = tandem.run("release", review_id, "--as", "codex", "--json")
    assert (said.code, said.error["code"]) == (6, "invalid_transition")


def test_approve_claims_on_the_way_and_says_so_in_one_line(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    said = tandem.run("approve", review_id)
    assert (said.code, said.out, said.err) == (0, f"{review_id} approved by human:ada\n", "")
    status = mcp("get_review_status", review_id=review_id)
    assert (status["status"], status["claimed_by"]) == ("approved", "human:ada")


def test_approve_twice_is_answered_twice_and_recorded_once(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    first = tandem("approve", review_id, "-m", "fine")
    assert tandem("approve", review_id, "-m", "again") == first
    events = mcp("get_review_timeline", review_id=review_id)["events"]
    assert [event["event_type"] for event in events].count("verdict_submitted") == 1


def test_approve_of_anothers_claim_exits_6_and_changes_nothing(
    tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]
) -> None:
    said = tandem.run("approve", claimed["review_id"], "--json")
    assert (said.code, said.error["code"]) == (6, "already_claimed")
    assert f"`tandem claim {claimed['review_id']} --take-over`" in said.error["hint"]
    assert mcp("get_review_status", review_id=claimed["review_id"])["version"] == claimed["version"]


def test_hints_name_commands_and_not_tools(tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]) -> None:
    assert "`tandem list`" in tandem.run("show", "0123456789abcdef").err
    assert "`tandem message`" in tandem.run("comment", claimed["review_id"], "-m", "Hm.").err
    own = mcp("create_review", **PROPOSAL, proposer_id="human:ada")["review_id"]
    assert "`tandem claim`" in tandem.run("approve", own, "--json").error["hint"]


def test_nobody_approves_what_they_proposed(tandem: Tandem, mcp: Mcp) -> None:
    review_id = mcp("create_review", **PROPOSAL, proposer_id="human:ada")["review_id"]
    said = tandem.run("approve", review_id, "--json")
    assert (said.code, said.error["code"]) == (4, "self_review")
    assert tandem.run("approve", review_id, "--as", "human:bob").code == 0


def test_approve_of_a_revision_that_was_not_read_is_refused(tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]) -> None:
    judged(mcp, claimed, "changes_requested")
    mcp("create_review", **PROPOSAL, diff=COUNTER, review_id=claimed["review_id"])
    said = tandem.run("approve", claimed["review_id"], "--revision", "1", "--as", "codex", "--json")
    assert (said.code, said.error["code"]) == (6, "conflict")
    assert "--since 1" in said.error["hint"]
    assert mcp("get_review_status", review_id=claimed["review_id"])["status"] == "pending"
    assert tandem.run("approve", claimed["review_id"], "--revision", "2", "--as", "codex").code == 0


def test_request_changes_takes_findings_by_hand_and_from_a_file(
    tandem: Tandem, mcp: Mcp, review_id: str, tmp_path: Path
) -> None:
    listed = tmp_path / "findings.json"
    listed.write_text('[{"title": "Whole", "body": "All of it", "severity": "low"}]')
    said = tandem.run(
        "request-changes", review_id, "-m", "No.", "--finding", "hello.txt:2-3:high:Not English: really",
        "--findings", str(listed),
    )  # fmt: skip
    assert said.code == 0
    findings = mcp("get_discussion", review_id=review_id)["findings"]
    assert [(one["title"], one["path"], one["line_start"], one["line_end"]) for one in findings] == [
        ("Not English: really", "hello.txt", 2, 3),
        ("Whole", None, None, None),
    ]


@pytest.mark.parametrize("spelled", ["hello.txt", "hello.txt:high:x", "hello.txt:2", ":::"])
def test_a_finding_that_cannot_be_read_is_wrong_usage(tandem: Tandem, review_id: str, spelled: str) -> None:
    said = tandem.run("request-changes", review_id, "-m", "No.", "--finding", spelled)
    assert said.code == 2
    assert "PATH:LINE" in said.err


def test_request_changes_without_a_reason_is_wrong_usage(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    assert tandem.run("request-changes", review_id).code == 2
    said = tandem.run("request-changes", review_id, "-m", "  ", "--json")
    assert (said.code, said.error["code"]) == (2, "invalid_argument")
    assert event_types(mcp, review_id) == ["review_created"]


def test_comment_is_the_claimants_and_changes_no_state(tandem: Tandem, mcp: Mcp, claimed: dict[str, Any]) -> None:
    given = tandem("comment", claimed["review_id"], "-m", "Hm.", "--as", "codex")
    assert (given["verdict"], given["status"]) == ("comment", "claimed")
    assert tandem.run("comment", claimed["review_id"], "-m", "Hm.").code == 6
    pending = mcp("create_review", **PROPOSAL)["review_id"]
    assert tandem.run("comment", pending, "-m", "Hm.").code == 6


def test_a_counter_patch_is_offered_shown_and_accepted(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    given = tandem("counter", review_id, "-m", "Better so.", "-F", "-", stdin=COUNTER.encode())
    assert given["status"] == "changes_requested"
    assert tandem.run("diff", review_id, "--counter").out == COUNTER
    assert "tandem diff" in tandem.run("show", review_id).out
    waited = tandem.run("wait", review_id)
    assert waited.code == 5
    assert "a counter-patch is offered" in waited.out
    accepted = tandem("accept", review_id)
    assert (accepted["status"], accepted["revision"], accepted["round"]) == ("pending", 2, 2)
    assert tandem.run("diff", review_id).out == COUNTER
    assert tandem.run("accept", review_id).code == 6


def test_a_counter_patch_is_rejected_with_a_reason(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    tandem("counter", review_id, "-m", "Better so.", "-F", "-", stdin=COUNTER.encode())
    rejected = tandem("reject", review_id, "-m", "No German.")
    assert rejected["counter_patch_status"] == "rejected"
    assert tandem.run("reject", review_id).code == 6


def test_a_counter_patch_that_is_no_diff_is_wrong_usage_and_claims_nothing(
    tandem: Tandem, mcp: Mcp, review_id: str
) -> None:
    said = tandem.run("counter", review_id, "-m", "x", "-F", "-", "--json", stdin=b"no diff\n")
    assert (said.code, said.error["code"]) == (2, "invalid_argument")
    assert event_types(mcp, review_id) == ["review_created"]


REFUSED = {
    "counter": (("counter", "-F", "-"), DIFF.replace("-two", "-not there"), 5),
    "finding": (("request-changes", "--finding", "hello.txt:2:dreadful:One"), "", 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_verdict_that_is_refused_leaves_no_claim_behind(tandem: Tandem, mcp: Mcp, review_id: str, case: str) -> None:
    (command, *more), text, code = REFUSED[case]
    said = tandem.run(command, review_id, "-m", "x", *more, "--json", stdin=text.encode())
    assert said.code == code, said
    assert event_types(mcp, review_id) == ["review_created"]
    status = mcp("get_review_status", review_id=review_id)
    assert (status["status"], status["claimed_by"]) == ("pending", None)


@pytest.mark.parametrize("case", REFUSED)
def test_a_verdict_that_is_refused_keeps_a_claim_that_was_there(
    tandem: Tandem, mcp: Mcp, claimed: dict[str, Any], case: str
) -> None:
    (command, *more), text, code = REFUSED[case]
    said = tandem.run(command, claimed["review_id"], "-m", "x", *more, "--as", "codex", stdin=text.encode())
    assert said.code == code, said
    assert mcp("get_review_status", review_id=claimed["review_id"])["version"] == claimed["version"]


# Talking, and the end.


def test_message_speaks_on_the_side_of_who_speaks(tandem: Tandem, mcp: Mcp) -> None:
    review_id = mcp("create_review", **PROPOSAL, proposer_id="human:ada")["review_id"]
    mcp("claim_review", review_id=review_id, reviewer_id="codex")
    sent = tandem("message", review_id, "-m", "From the proposer", "--path", "hello.txt", "--line", "2")
    assert sent["status"] == "in_review"
    tandem("message", review_id, "-m", "From another", "--as", "human:bob", "--reply-to", str(sent["message_id"]))
    tandem("message", review_id, "-m", "From an agent", TANDEM_AGENT_TYPE="gsd-executor")
    said = mcp("get_discussion", review_id=review_id)["messages"]
    assert [(one["sender_id"], one["sender_role"], one["path"], one["in_reply_to"]) for one in said] == [
        ("human:ada", "proposer", "hello.txt", None),
        ("human:bob", "reviewer", None, sent["message_id"]),
        ("human:ada", "reviewer", None, None),
    ]
    pending = mcp("create_review", **PROPOSAL)["review_id"]
    assert tandem.run("message", pending, "-m", "too early").code == 6


def test_resolve_says_what_became_of_a_finding(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    tandem("request-changes", review_id, "-m", "No.", "--finding", "hello.txt:2:high:One")
    finding = mcp("get_discussion", review_id=review_id)["findings"][0]["finding_id"]
    assert tandem.run("resolve", review_id, finding, "rejected").code == 2
    assert tandem("resolve", review_id, finding, "rejected", "-m", "It is right.")["disposition"] == "rejected"
    assert tandem("resolve", review_id, finding, "fixed", "--role", "reviewer")["disposition"] == "fixed"
    assert tandem.run("resolve", review_id, "f000000000000", "fixed").code == 7


def test_resolve_is_by_the_side_of_who_is_named(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    tandem("request-changes", review_id, "-m", "No.", "--finding", "hello.txt:2:high:One", "--as", "codex")
    finding = mcp("get_discussion", review_id=review_id)["findings"][0]["finding_id"]
    tandem("resolve", review_id, finding, "deferred", "--as", "gsd-executor")
    tandem("resolve", review_id, finding, "fixed", "--as", "Codex")
    events = mcp("get_review_timeline", review_id=review_id)["events"]
    actors = [event["actor"] for event in events if event["event_type"] == "finding_resolved"]
    assert actors == ["gsd-executor", "codex"]
    for more in (("--as", "human:bob"), ("--as", "codex", "--role", "proposer")):
        said = tandem.run("resolve", review_id, finding, "deferred", *more, "--json")
        assert (said.code, said.error["code"]) == (4, "forbidden")


def test_close_ends_a_review_and_it_stays_ended(tandem: Tandem, mcp: Mcp, review_id: str) -> None:
    assert tandem("close", review_id, "-m", "never mind")["outcome"] == "withdrawn"
    said = tandem.run("close", review_id, "--json")
    assert (said.code, said.error["code"]) == (6, "invalid_transition")


def test_what_belongs_to_a_proposer_is_closed_by_it_or_a_person(tandem: Tandem, mcp: Mcp) -> None:
    review_id = mcp("create_review", **PROPOSAL, proposer_id="executor-7")["review_id"]
    assert tandem.run("close", review_id, TANDEM_PROPOSER_ID="executor-8").code == 4
    assert tandem.run("close", review_id, TANDEM_PROPOSER_ID="executor-7").code == 0


# What every command answers alike.

NEED_A_REVIEW = {
    "show": (), "diff": (), "log": (), "claim": (), "release": (), "approve": (), "request-changes": ("-m", "x"),
    "comment": ("-m", "x"), "accept": (), "reject": (), "apply": (), "close": (), "message": ("-m", "x"),
    "wait": (), "watch": (), "open": (), "resolve": ("f1", "fixed"),
}  # fmt: skip


@pytest.mark.parametrize("command", NEED_A_REVIEW)
def test_what_is_not_there_exits_7(tandem: Tandem, command: str) -> None:
    said = tandem.run(command, "0123456789abcdef", *NEED_A_REVIEW[command])
    assert said.code == 7, said
    assert said.out == ""
    assert said.err.startswith("tandem: not_found: there is no review '0123456789abcdef'\n")
    assert tandem.run(command, "0123456789abcdef", *NEED_A_REVIEW[command], "--json").error["code"] == "not_found"


@pytest.mark.parametrize("command", NEED_A_REVIEW)
def test_an_id_that_is_too_short_is_wrong_usage(tandem: Tandem, command: str) -> None:
    assert tandem.run(command, "0123", *NEED_A_REVIEW[command]).code == 2


WITHOUT_A_BROKER = {
    **{name: ("0123456789abcdef", *more) for name, more in NEED_A_REVIEW.items()},
    "list": (), "stats": (), "status": (), "audit": ("log",),
    "propose": ("-m", "x", "--no-diff"), "counter": ("0123456789abcdef", "-m", "x", "-F", "-"),
    "pool": ("list",),
}  # fmt: skip


@pytest.mark.parametrize("command", WITHOUT_A_BROKER)
def test_without_a_broker_every_command_exits_3_and_says_how_to_start_one(
    repository: Path, own_home: Path, command: str
) -> None:
    alone = Tandem(repository, own_home)
    said = alone.run(command, *WITHOUT_A_BROKER[command], stdin=DIFF.encode())
    assert said.code == 3, said
    assert said.out == ""
    assert f"no broker is running for {repository}" in said.err
    assert "tandem up" in said.err


def test_without_a_broker_json_is_an_error_document(repository: Path, own_home: Path) -> None:
    said = Tandem(repository, own_home).run("list", "--json")
    assert (said.code, said.err) == (3, "")
    assert said.error == {
        "code": "unavailable",
        "message": f"no broker is running for {repository}",
        "hint": "Start it with `tandem up`; `tandem doctor` finds out more.",
    }


def test_a_broker_that_serves_something_else_is_refused(
    broker: BrokerProcess, tmp_path: Path, repository: Path, own_home: Path
) -> None:
    elsewhere = Tandem(repository, own_home)
    url = f"http://127.0.0.1:{broker.port}"
    for how in ({"BROKER_URL": url}, {}):
        arguments = ("list",) if how else ("list", "--url", url)
        said = elsewhere.run(*arguments, **how)
        assert said.code == 3
        assert f"serves {broker.folder}, not {repository}" in said.err
    # A runtime file that was left behind, and somebody else has the port by now.
    runtime_file = repository / ".planning" / broker.runtime_file.name
    runtime_file.parent.mkdir()
    runtime_file.write_text(broker.runtime_file.read_text())
    assert elsewhere.run("list").code == 3
    assert elsewhere.run("down").out.startswith("no broker is running")
    # From no repository at all, an address that was asked for is taken.
    assert Tandem(tmp_path, own_home).run("list", "--url", f"{url}/mcp/reviewer").code == 0


@pytest.mark.parametrize("content", ["", "[]", '{"url": 7}', '{"url": "ftp://x"}', '{"url": "http://127.0.0.1:99999"}'])
def test_a_runtime_file_that_says_nothing_of_use_is_no_broker(repository: Path, own_home: Path, content: str) -> None:
    (repository / ".planning").mkdir()
    (repository / ".planning" / "codex_review_broker.sqlite3.runtime.json").write_text(content)
    assert Tandem(repository, own_home).run("list").code == 3


def test_what_answers_and_is_no_broker_is_unavailable(tandem: Tandem) -> None:
    assert tandem.run("list", "--url", "http://127.0.0.1:1").code == 3
    assert tandem.run("list", "--url", "ftp://127.0.0.1").code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("lst",), "Did you mean list?"), (("list", "--nope"), "--nope"), (("list", "--status", "open"), "pending")],
)
def test_wrong_usage_exits_2_and_names_what_is_wrong(tandem: Tandem, arguments: tuple[str, ...], said: str) -> None:
    answer = tandem.run(*arguments)
    assert answer.code == 2
    assert said in answer.err


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("diff", "ID"), ("audit", "export"), ("--help",), ("list", "--help"), ("show", "none", "--json")],
    ids=" ".join,
)
def test_a_reader_that_has_seen_enough_ends_it_quietly(
    tandem: Tandem, review_id: str, arguments: tuple[str, ...]
) -> None:
    words = [review_id if word == "ID" else word for word in arguments]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [PROGRAM, *words], cwd=tandem.folder, env=tandem.environment, stdout=write, stderr=subprocess.PIPE,
        check=False,
    )  # fmt: skip
    os.close(write)
    # argparse itself takes no notice when nobody reads its help.
    assert done.returncode == 141 or (done.returncode == 0 and arguments == ("list", "--help"))
    assert done.stderr == b""


def test_errors_that_nobody_reads_end_it_quietly(tandem: Tandem) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [PROGRAM, "nonsense"], cwd=tandem.folder, env=tandem.environment, stdout=write, stderr=write, check=False
    )
    os.close(write)
    assert done.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_that_cannot_be_written_is_told_in_a_sentence(tandem: Tandem, review_id: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [PROGRAM, "diff", review_id], cwd=tandem.folder, env=tandem.environment, stdout=full,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


def test_an_approval_that_is_not_enough_says_what_is_missing(repository: Path, own_home: Path) -> None:
    settings = own_home / "config/gsd-review-broker/config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"approvals": {"required": 2}}')
    with BrokerProcess(repository, home=own_home) as process:
        review_id = process.client()("create_review", **PROPOSAL, diff=DIFF)["review_id"]
        tandem = Tandem(repository, own_home)
        said = tandem.run("approve", review_id)
        assert (said.code, said.out) == (
            0, f"{review_id} pending; your approval is recorded, and it still needs 1 more approval\n",
        )  # fmt: skip
        shown = tandem.run("show", review_id).out
        assert "approved by    human:ada\n" in shown
        assert "still needs    1 more approval\n" in shown


def test_what_is_refused_is_told_without_moves_that_are_none_and_without_numbers_of_the_system(
    tandem: Tandem, mcp: Mcp
) -> None:
    review_id = mcp("create_review", **PROPOSAL)["review_id"]
    told = tandem.run("accept", review_id, "--as", "gsd-executor").err
    assert f"review {review_id} is pending: not possible while pending\n" in told
    said = tandem.run("request-changes", review_id, "-m", "No.", "--findings", "nowhere.json")
    assert said.err == (
        "tandem: invalid_argument: --findings nowhere.json: No such file or directory\nGive a JSON list.\n"
    )
    tandem("close", review_id)
    assert f"review {review_id} is closed: not possible while closed\n" in tandem.run("close", review_id).err
