"""What a person sees: a real pseudo-terminal, and an emulator's screen compared."""

import re
import signal
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.local import PROPOSAL
from tests.support.mcp import Mcp
from tests.support.processes import BrokerProcess
from tests.support.tandem import PROGRAM, Tandem, broker_of_module
from tests.support.terminal import Terminal

# A colour, a title, a link, the clipboard, a line overwritten, C1, text turned round, and what is not there.
ATTACK = "A\x1b[31mB\x1b]0;T\x07C\x1b]8;;http://evil\x1b\\D\x1b]52;c;eA==\x07E\rF\x9bG\u202eH\u200bI"
SHOWN = "A\\x1b[31mB\\x1b]0;T\\x07C\\x1b]8;;http://evil\\x1b\\D\\x1b]52;c;eA==\\x07E\\rF\\x9bG\\u202eH\\u200bI"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200b\u202e]")
# All that we send of our own: colours, a cleared line, the other screen, the cursor.
OURS = re.compile(r"\x1b\[(?:\d+m|K|J|H|\?25[hl]|\?1049[hl])|\r")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    yield from broker_of_module(tmp_path_factory)


@pytest.fixture
def mcp(shared: BrokerProcess) -> Mcp:
    return shared.client()


@pytest.fixture
def tandem(shared: BrokerProcess) -> Tandem:
    return Tandem(shared.folder, shared.home)


def terminal(tandem: Tandem, *arguments: str, size: tuple[int, int] = (100, 24), **environment: str) -> Terminal:
    return Terminal(
        [PROGRAM, *arguments], folder=tandem.folder, environment={**tandem.environment, **environment}, size=size
    )


def hostile_review(mcp: Mcp) -> str:
    """The attack in every field that takes it; names with such characters are refused."""
    diff = f"--- a/hello.txt\n+++ b/hello.txt\n@@ -1,3 +1,4 @@\n one\n two\n three\n+{ATTACK}\n"
    name = ATTACK.replace("\n", "")
    created = mcp(
        "create_review", intent=ATTACK, agent_type="gsd-executor", agent_role="proposer", phase=name, plan=name,
        task=name, project="shop", description=ATTACK, diff=diff,
    )  # fmt: skip
    review_id = created["review_id"]
    claim = mcp("claim_review", review_id=review_id, reviewer_id="codex")
    mcp("add_message", review_id=review_id, sender_role="reviewer", sender_id="codex", body=ATTACK, path="hello.txt")
    mcp(
        "submit_verdict", review_id=review_id, verdict="changes_requested", reason=ATTACK,
        claim_generation=claim["claim_generation"], counter_patch=diff.replace("+A", "+Z"),
        findings=[{"title": ATTACK, "body": ATTACK, "suggestion": ATTACK, "severity": "high", "path": "hello.txt"}],
    )  # fmt: skip
    finding = mcp("get_discussion", review_id=review_id)["findings"][0]["finding_id"]
    mcp("resolve_finding", review_id=review_id, finding_id=finding, disposition="rejected", note=ATTACK)
    return review_id


def test_hostile_characters_in_every_field_are_seen_as_escapes(mcp: Mcp, tandem: Tandem) -> None:
    review_id = hostile_review(mcp)
    for arguments in (
        ("show", review_id), ("list",), ("diff", review_id), ("diff", review_id, "--counter"), ("log", review_id),
        ("wait", review_id), ("audit", "log", review_id), ("watch", review_id, "--for", "0.2"),
        ("watch", "--after", "0", "--for", "0.2"), ("close", "0123456789abcdef" + ATTACK),
    ):  # fmt: skip
        said = tandem.run(*arguments)
        assert FORBIDDEN.search(said.out + said.err) is None, arguments
        assert "\x1b" not in said.out + said.err, arguments
        assert "\\x1b" in said.out + said.err, arguments
    whole = tandem.run("show", review_id).out
    assert whole.count(SHOWN) >= 9


def test_json_gives_what_the_agent_wrote(mcp: Mcp, tandem: Tandem) -> None:
    review_id = hostile_review(mcp)
    said = tandem.run("show", review_id, "--json")
    assert said.out.isascii()
    assert said.json["proposal"]["intent"] == ATTACK
    assert said.json["discussion"]["messages"][0]["body"] == ATTACK
    assert ATTACK in tandem.run("diff", review_id, "--raw").out


def test_a_terminal_that_shows_a_hostile_review_is_as_it_was(mcp: Mcp, tandem: Tandem) -> None:
    review_id = hostile_review(mcp)
    for arguments in (("show", review_id), ("list",), ("diff", review_id, "--no-pager"), ("log", review_id)):
        with terminal(tandem, *arguments) as seen:
            assert seen.end() == 0
            assert FORBIDDEN.search(OURS.sub("", seen.received.decode())) is None, arguments
            assert "\x1b" not in OURS.sub("", seen.received.decode()), arguments
            assert seen.screen.title == ""
            assert seen.modes == seen.modes_before
            assert seen.screen.cursor.attrs == seen.screen.default_char
            assert SHOWN[:20] in seen.everything.replace("\n", ""), arguments


def test_a_list_on_a_terminal_is_a_table_in_colour(mcp: Mcp, tandem: Tandem) -> None:
    review_id = mcp("create_review", **{**PROPOSAL, "project": "table", "intent": "x" * 300})["review_id"]
    with terminal(tandem, "list", "--project", "table", size=(80, 24)) as seen:
        assert seen.end() == 0
        header, row = seen.text.splitlines()
        assert header.split() == ["ID", "STATUS", "PRIORITY", "ROUND", "REVIEWER", "INTENT"]
        assert row.startswith(f"{review_id[:8]}  pending  normal    1")
        assert (len(row), row[-1]) == (80, "…")
        assert seen.screen.buffer[1][10].fg == "brown"
    with terminal(tandem, "list", "--project", "table", NO_COLOR="1") as seen:
        assert seen.end() == 0
        assert b"\x1b[" not in seen.received


def test_a_long_diff_goes_through_the_pager(mcp: Mcp, tandem: Tandem) -> None:
    diff = "--- /dev/null\n+++ b/long.txt\n@@ -0,0 +1,100 @@\n" + "+line\n" * 100
    review_id = mcp("create_review", **PROPOSAL, diff=diff)["review_id"]
    with terminal(tandem, "diff", review_id, PAGER="sed s/line/paged/") as seen:
        assert seen.end() == 0
        assert seen.everything.count("+paged") == 100
    with terminal(tandem, "diff", review_id, "--no-pager", PAGER="sed s/line/paged/") as seen:
        assert seen.end() == 0
        assert seen.everything.count("+line") == 100


def test_what_takes_longer_than_a_second_says_so_and_cleans_up(mcp: Mcp, tandem: Tandem) -> None:
    review_id = mcp("create_review", **PROPOSAL)["review_id"]
    with terminal(tandem, "wait", review_id, "--timeout", "3") as seen:
        seen.until(lambda: f"waiting for a verdict on {review_id}… 1 s" in seen.text)
        assert seen.end() == 8
        assert seen.text == f"{review_id} pending"


# Live.


def watched(mcp: Mcp) -> dict[str, Any]:
    return mcp("create_review", **{**PROPOSAL, "intent": "Watch me"})


def test_watch_shows_what_is_open_and_what_happens_and_leaves_the_terminal_as_it_was(
    process: BrokerProcess, own_home: Any
) -> None:
    tandem, mcp = Tandem(process.folder, process.home), process.client()
    title = f"tandem watch  live  {process.folder}"
    # Wide enough for the temporary folder's name, however long it is.
    with terminal(tandem, "watch", size=(max(100, len(title)), 14)) as seen:
        seen.until(lambda: "Nothing is open." in seen.text)
        assert seen.text.splitlines()[0] == title
        review_id = watched(mcp)["review_id"]
        seen.until(lambda: "review_created" in seen.text)
        claim = mcp("claim_review", review_id=review_id, reviewer_id="codex")
        seen.until(lambda: "review_claimed by codex" in seen.text)
        lines = seen.text.splitlines()
        assert lines[2].split() == ["ID", "STATUS", "PRIORITY", "ROUND", "REVIEWER", "INTENT"]
        assert lines[3].split() == [review_id[:8], "claimed", "normal", "1", "codex", "Watch", "me"]
        assert [re.sub(r"^\S+Z", "TIME", line) for line in lines[5:]] == [
            f"TIME  {review_id[:8]}  review_created by gsd-executor: Watch me",
            f"TIME  {review_id[:8]}  review_claimed by codex: pending → claimed",
        ]
        mcp("submit_verdict", review_id=review_id, verdict="approved", claim_generation=claim["claim_generation"])
        mcp("close_review", review_id=review_id)
        seen.until(lambda: "Nothing is open." in seen.text and "review_closed" in seen.text)
        mcp.close()
        process.stop()
        seen.until(lambda: "the broker does not answer" in seen.text)
        process.start()
        seen.until(lambda: "live" in seen.text.splitlines()[0])
        seen.process.send_signal(signal.SIGINT)
        assert seen.end() == 130
        assert seen.modes == seen.modes_before
        assert seen.received.endswith(b"\x1b[?25h\x1b[?1049l")


def test_watch_never_draws_past_a_small_terminal(process: BrokerProcess, own_home: Any) -> None:
    tandem, mcp = Tandem(process.folder, process.home), process.client()
    for _ in range(30):
        mcp("create_review", **{**PROPOSAL, "intent": "世界 " * 100})
    with terminal(tandem, "watch", "--after", "0", "--for", "1.5", size=(40, 8)) as seen:
        seen.until(lambda: "pending" in seen.text)
        assert seen.text.splitlines()[0].startswith("tandem watch  live")
        assert len(seen.screen.history.top) == 0
        assert seen.end() == 0


def test_the_demo_is_narrated_on_a_terminal(tandem: Tandem) -> None:
    with terminal(tandem, "demo", "--fast", size=(110, 60)) as seen:
        assert seen.end() == 0
        lines = [line for line in seen.everything.splitlines() if line and not line.startswith(" " * 12)]
        assert seen.modes == seen.modes_before
    steps = [
        line.strip().split("  ")[0] + ": " + " ".join(line.split()[1:4]) for line in lines[1:-3] if line[:1] == " "
    ]
    assert [line for line in lines[1:-3] if line[:1] != " "] == ["Round 1", "Round 2", "Round 3", "The gate"]
    assert steps == [
        "proposer: proposes a change",
        "reviewer: claims revision 1;",
        "reviewer: reads the diff",
        "proposer: reads 2 findings,",
        "proposer: proposes revision 2",
        "reviewer: claims revision 2;",
        "reviewer: reads only what",
        "reviewer: offers a counter-patch:",
        "proposer: finds the counter-patch",
        "reviewer: claims revision 3;",
        "reviewer: approves exactly this",
        "proposer: installs the gate:",
        "proposer: tries to land",
        "proposer: applies exactly what",
        "proposer: closes the review:",
    ]
