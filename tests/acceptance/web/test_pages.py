"""The dashboard over plain HTTP: headers, forms, and decisions that must not slip."""

import getpass
import json
import re
from collections.abc import Generator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

import gsd_review_broker.web
from gsd_review_broker.web.pages.dashboard import dashboard_routes
from tests.support.dashboard import PROPOSAL, SHOP, created, hello, propose, token_of
from tests.support.http import Browser
from tests.support.mcp import Mcp
from tests.support.processes import BrokerProcess, git, make_repository
from tests.support.waiting import until

STATIC = Path(gsd_review_broker.web.__file__).parent / "static"
TEMPLATES = Path(gsd_review_broker.web.__file__).parent / "templates"
# An address for each page that has a variable part.
EXAMPLES = {
    "/r/{review_id}": "/r/nosuchreview",
    "/r/{review_id}/file": "/r/nosuchreview/file",
    "/r/{review_id}/live": "/r/nosuchreview/live",
    "/{nowhere:path}": "/nowhere",
}
# A stream, and files that are kept for ever: they have headers and tests of their own.
NOT_PAGES = {"/events", "/static/{sum}/{name}"}
# Nothing but their addresses is read here.
ROUTES = dashboard_routes(MagicMock(), MagicMock(), person="human:ada", serves="", url="", form_limit=1)
PAGES = [
    EXAMPLES.get(route.path, route.path)
    for route in ROUTES
    if "GET" in (route.methods or ()) and route.path not in NOT_PAGES
]
ME = f"human:{getpass.getuser()}"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    """One broker for all of them; each brings its own reviews."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "home").mkdir()
    with BrokerProcess(make_repository(folder / "shop", SHOP), home=folder / "home") as process:
        yield process


@pytest.fixture
def agent(running: BrokerProcess) -> Generator[Mcp]:
    client = Mcp(running.port)
    yield client
    client.close()


@pytest.fixture
def browser(running: BrokerProcess) -> Browser:
    return Browser(running.port)


def fields(browser: Browser, review_id: str, **more: object) -> dict[str, object]:
    """What the page's own form would send."""
    page = browser.get(f"/r/{review_id}").text
    found = dict(re.findall(r'name="(token|revision|claim_generation|digest)" value="([^"]*)"', page))
    return {**found, **more}


def events_of(agent: Mcp, review_id: str) -> list[str]:
    return [event["event_type"] for event in agent("get_review_timeline", review_id=review_id)["events"]]


def test_an_error_tells_a_person_what_pages_have_and_names_no_tool(browser: Browser) -> None:
    page = browser.get("/r/nosuchreview").text
    assert "The reviews page shows the existing ones." in page
    assert "list_reviews" not in page


# What every answer says.


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_under_the_strict_policy(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    policy = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert {policy[name] for name in ("base-uri", "frame-ancestors")} == {"'none'"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?! (type=\"module\" )?src=\"/static/)", answer.text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", answer.text)
    assert not re.search(r"(src|href)=\"(https?:)?//", answer.text)


def test_every_page_with_a_variable_part_has_an_example() -> None:
    assert [path for path in PAGES if "{" in path] == []


def test_scripts_stay_under_twenty_kilobytes() -> None:
    assert sum(len(path.read_bytes()) for path in STATIC.glob("*.js")) < 20_000
    assert sorted(path.suffix for path in STATIC.iterdir() if path.suffix not in {".js", ".css", ".svg"}) == []


def test_static_files_are_kept_for_ever_under_the_sum_of_their_content(browser: Browser) -> None:
    addresses = set(re.findall(r'"(/static/[^"]+)"', browser.get("/").text))
    assert len(addresses) == 4
    for address in addresses:
        answer = browser.get(address)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
    for wrong in ("/static/000000000000/app.js", next(iter(addresses)).rpartition("/")[0] + "/nosuch.js"):
        assert browser.get(wrong).status == 404
    assert browser.get("/static/..%2f..%2fapi.py/x").status == 404


@pytest.mark.parametrize("path", ["/", "/events", "/static/x/app.js", "/audit/export.jsonl"])
def test_a_foreign_host_or_origin_sees_nothing(browser: Browser, path: str) -> None:
    assert browser.get(path, Host="evil.invalid").status == 421
    assert browser.get(path, Origin="http://evil.invalid").status == 403
    assert browser.get(path, Origin="null").status == 403


def test_every_value_in_a_template_is_escaped_or_made_here() -> None:
    """`safe` would undo it."""
    for template in TEMPLATES.glob("*.html"):
        assert not re.search(r"\|\s*safe\b|autoescape", template.read_text("utf-8")), template


# Forms.


@pytest.mark.parametrize(
    ("headers", "token", "status"),
    [
        ({}, "", 403),
        ({}, "x" * 32, 403),
        ({"Sec-Fetch-Site": "cross-site"}, None, 403),
        ({"Sec-Fetch-Site": "same-site"}, None, 403),
        ({"Origin": "http://evil.invalid"}, None, 403),
        ({"Origin": "null"}, None, 403),
        ({"Content-Type": "text/plain"}, None, 400),
        ({"Content-Type": "multipart/form-data; boundary=x"}, None, 400),
    ],
    ids=["no token", "wrong token", "cross-site", "same-site", "foreign origin", "null origin", "text", "multipart"],
)
def test_a_form_of_another_site_decides_nothing(
    browser: Browser, agent: Mcp, headers: dict[str, str], token: str | None, status: int
) -> None:
    review_id = propose(agent, diff=hello("deux"))
    sent = fields(browser, review_id, verdict="approved")
    if token is not None:
        sent["token"] = token
    assert browser.post(f"/r/{review_id}/verdict", sent, headers).status == status
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"


@pytest.mark.parametrize("body", [b"%ZZ&&&=", b"token=\xff\xfe", b"a=b&" * 100, b"x" * 100], ids=repr)
def test_what_is_no_form_is_refused(browser: Browser, agent: Mcp, body: bytes) -> None:
    review_id = propose(agent, diff=hello("deux"))
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser.ask("POST", f"/r/{review_id}/close", body, headers).status in {400, 403}
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"


def test_a_form_of_a_broker_that_was_restarted_is_refused_and_gives_back_what_was_typed(
    process: BrokerProcess,
) -> None:
    review_id = propose(process.client(), diff=hello("deux"))
    sent = fields(Browser(process.port), review_id, verdict="changes_requested", reason="A long <b>thought</b>.")
    process.stop()
    process.start()
    answer = Browser(process.port).post(f"/r/{review_id}/verdict", sent)
    assert answer.status == 403
    assert "A long &lt;b&gt;thought&lt;/b&gt;." in answer.text


# Decisions.


def test_an_approval_is_of_the_revision_and_digest_that_were_shown(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"))
    seen = fields(browser, review_id, verdict="approved")
    claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    agent(
        "submit_verdict", review_id=review_id, verdict="changes_requested", reason="no",
        claim_generation=claim["claim_generation"],
    )  # fmt: skip
    agent("create_review", **PROPOSAL, review_id=review_id, intent="Other", diff=hello("evil"))
    answer = browser.post(f"/r/{review_id}/verdict", seen)
    assert answer.status == 409
    assert "you read revision 1, and the review is at revision 2 by now" in answer.text
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"


def test_an_approval_is_refused_when_what_it_stands_on_has_moved(process: BrokerProcess, repository: Path) -> None:
    browser, agent = Browser(process.port), process.client()
    (repository / "hello.txt").write_text("".join(f"{number}\n" for number in range(30)) + "one\ntwo\nthree\n")
    git(repository, "commit", "-qam", "base")
    diff = "--- a/hello.txt\n+++ b/hello.txt\n@@ -31,3 +31,3 @@\n one\n-two\n+deux\n three\n"
    review_id = propose(agent, diff=diff)
    seen = fields(browser, review_id, verdict="approved")
    assert str(seen["digest"]).startswith("sha256:")
    (repository / "hello.txt").write_text("".join(f"{number}!\n" for number in range(30)) + "one\ntwo\nthree\n")
    git(repository, "commit", "-qam", "moved")
    answer = browser.post(f"/r/{review_id}/verdict", seen)
    assert answer.status == 409
    assert "its base has changed" in answer.text
    # Nothing was claimed on the way; looked at again, it can be approved as it is now.
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"
    again = fields(browser, review_id, verdict="approved")
    assert again["digest"] != seen["digest"]
    assert browser.post(f"/r/{review_id}/verdict", again).status == 303
    assert agent("get_proposal", review_id=review_id)["digest"] == again["digest"]


def test_a_claim_of_another_is_neither_judged_nor_taken_over_unseen(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"))
    seen = fields(browser, review_id, verdict="approved")
    claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    assert browser.post(f"/r/{review_id}/verdict", seen).status == 409
    # Taken over is the claim that the page showed, not the next one.
    shown = fields(browser, review_id)
    agent("release_claim", review_id=review_id, claim_generation=claim["claim_generation"])
    agent("claim_review", review_id=review_id, reviewer_id="claude-r2")
    assert browser.post(f"/r/{review_id}/take-over", shown).status == 409
    assert agent("get_review_status", review_id=review_id)["claimed_by"] == "claude-r2"
    assert browser.post(f"/r/{review_id}/take-over", fields(browser, review_id)).status == 303
    assert agent("get_review_status", review_id=review_id)["claimed_by"] == ME


def test_nobody_approves_their_own_proposal_in_the_browser(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"), proposer_id=ME)
    page = browser.get(f"/r/{review_id}").text
    assert 'value="approved"' not in page
    assert "Somebody else has to judge it" in page
    answer = browser.post(f"/r/{review_id}/verdict", fields(browser, review_id, verdict="approved", digest=""))
    assert answer.status == 403
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"


def test_a_diff_that_does_not_apply_goes_back_when_a_person_claims_it(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux").replace("-two", "-never there"))
    # A page waits a moment for git; the next one has its answer.
    until(lambda: "git says" in browser.get(f"/r/{review_id}").text)
    answer = browser.post(f"/r/{review_id}/verdict", fields(browser, review_id, verdict="approved"))
    assert answer.status == 422
    assert agent("get_review_status", review_id=review_id)["status"] == "changes_requested"


def test_changes_are_not_requested_without_a_reason(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"))
    answer = browser.post(
        f"/r/{review_id}/verdict", fields(browser, review_id, verdict="changes_requested", reason=" ")
    )
    assert answer.status == 400
    status = agent("get_review_status", review_id=review_id)
    assert (status["status"], status["verdict"]) == ("pending", None)
    assert events_of(agent, review_id) == ["review_created"]


REFUSED: dict[str, tuple[dict[str, object], int]] = {
    "no reason": ({"verdict": "changes_requested", "reason": "", "counter_patch": "typed"}, 400),
    "no reason to comment": ({"verdict": "comment", "reason": " ", "counter_patch": "typed"}, 400),
    "bad counter-patch": ({"verdict": "changes_requested", "counter_patch": "no diff"}, 422),
    "both the reason and a good counter-patch missing": ({"verdict": "comment", "reason": ""}, 400),
    "counter-patch to approve": ({"verdict": "approved", "counter_patch": hello("trois")}, 400),
    "wrong digest": ({"verdict": "approved", "digest": "sha256:" + "0" * 64}, 409),
    "wrong digest to a request": ({"verdict": "changes_requested", "digest": "sha256:" + "0" * 64}, 409),
    "no digest": ({"verdict": "approved", "digest": ""}, 409),
    "wrong revision": ({"verdict": "approved", "revision": 2}, 409),
    "no verdict": ({"verdict": "perhaps"}, 400),
}


@pytest.mark.parametrize(("sent", "status"), REFUSED.values(), ids=list(REFUSED))
def test_a_refused_verdict_claims_nothing_and_keeps_what_was_typed(
    browser: Browser, agent: Mcp, sent: dict[str, object], status: int
) -> None:
    review_id = propose(agent, diff=hello("deux"))
    given = {"reason": "\nA <thought>", **sent}
    answer = browser.post(f"/r/{review_id}/verdict", fields(browser, review_id, **given))
    assert answer.status == status
    assert 'id="refused"' in answer.text
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"
    assert events_of(agent, review_id) == ["review_created"]
    # A text area's first line break is not part of its text, so there is one more.
    if given["reason"] == "\nA <thought>":
        assert "required placeholder" in answer.text
        assert ">\n\nA &lt;thought&gt;</textarea>" in answer.text
    if sent.get("counter_patch") == "typed":
        assert ">\ntyped</textarea>" in answer.text
    # The form that came back can be sent.
    assert browser.post(f"/r/{review_id}/verdict", fields(browser, review_id, verdict="approved")).status == 303


def test_an_approval_without_the_digest_field_is_refused_by_who_holds_the_claim_too(
    browser: Browser, agent: Mcp
) -> None:
    review_id = propose(agent, diff=hello("deux"))
    browser.post(f"/r/{review_id}/claim", fields(browser, review_id))
    sent = fields(browser, review_id, verdict="approved")
    digest = sent.pop("digest")
    answer = browser.post(f"/r/{review_id}/verdict", sent)
    assert answer.status == 409
    assert f"it has one: {digest}" in answer.text
    # A claim that was there before stays.
    status = agent("get_review_status", review_id=review_id)
    assert (status["status"], status["claimed_by"]) == ("claimed", ME)
    words_alone = propose(agent, diff=None)
    assert browser.post(f"/r/{words_alone}/verdict", fields(browser, words_alone, verdict="approved")).status == 303


def test_a_verdict_on_what_another_claimed_gives_back_what_was_typed(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"))
    sent = fields(browser, review_id, verdict="changes_requested", reason="A long thought.")
    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    answer = browser.post(f"/r/{review_id}/verdict", sent)
    assert answer.status == 409
    assert "is claimed by codex-r1" in answer.text
    assert "A long thought.</textarea>" in answer.text
    assert agent("get_review_status", review_id=review_id)["claimed_by"] == "codex-r1"


def test_a_refused_remark_claims_nothing(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"))
    sent = fields(browser, review_id, severity="message", at="f0n2", path="hello.txt", body="x", in_reply_to=99)
    assert browser.post(f"/r/{review_id}/remark", sent).status >= 400
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"


def test_a_repeated_form_decides_once(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"))
    sent = fields(browser, review_id, verdict="approved")
    assert browser.post(f"/r/{review_id}/verdict", sent).status == 303
    browser.post(f"/r/{review_id}/verdict", sent)
    events = [event["event_type"] for event in agent("get_review_timeline", review_id=review_id)["events"]]
    assert events.count("verdict_submitted") == 1


def test_a_person_withdraws_closes_and_gives_back(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"))
    assert browser.post(f"/r/{review_id}/claim", fields(browser, review_id)).status == 303
    assert browser.post(f"/r/{review_id}/release", fields(browser, review_id)).status == 303
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"
    assert browser.post(f"/r/{review_id}/close", fields(browser, review_id, reason="not now")).status == 303
    last = agent("get_review_timeline", review_id=review_id)["events"][-1]
    assert (last["event_type"], last["actor"], last["metadata"]["outcome"]) == ("review_closed", ME, "withdrawn")


def test_a_broker_whose_pool_is_off_says_how_to_turn_it_on(browser: Browser, agent: Mcp) -> None:
    assert "tandem pool enable" in browser.get("/pool").text
    token = fields(browser, propose(agent, diff=None))["token"]
    assert browser.post("/pool/pause", {"token": token}).status == 503
    assert browser.post("/pool/nosuch", {"token": token}).status == 404
    assert browser.post("/pool/pause", {"token": "wrong"}).status == 403


# Lists.


def test_phases_and_plans_show_their_progress_and_lead_to_their_reviews(browser: Browser, agent: Mcp) -> None:
    for number in range(3):
        propose(agent, intent=f"Task {number}", diff=None, phase="07<i>", plan="07-01")
    text = browser.get("/phases").text
    assert "07&lt;i&gt;" in text
    assert '<progress max="3" value="0" aria-label="approved"></progress> 0 of 3' in text
    link = re.search(r'href="(/reviews\?q=07[^"]+)"', text)
    assert link is not None
    assert browser.get(link.group(1).replace("&amp;", "&")).text.count("data-row") == 3
    assert 'href="/phases"' in browser.get("/reviews").text


def test_reviews_are_filtered_searched_and_paged_by_their_address(browser: Browser, agent: Mcp) -> None:
    for number in range(120):
        propose(agent, intent=f"Number {number}", diff=None, project="even" if number % 2 == 0 else "odd")
    even = browser.get("/reviews?project=even").text
    assert even.count("data-row") == 50
    assert "Number 118" in even
    assert "Number 119" not in even
    assert browser.get("/reviews?q=number+7&project=odd&status=pending").text.count("data-row") == 16
    older = re.search(r'href="(/reviews\?project=even&amp;cursor=[^"]+)"', even)
    assert older is not None
    assert browser.get(older.group(1).replace("&amp;", "&")).text.count("data-row") == 10
    assert browser.get("/reviews?status=nosuch").status == 400
    assert browser.get("/reviews?cursor=nosuch").status == 400


def test_an_id_in_the_search_leads_to_its_review(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=None)
    answer = browser.get(f"/reviews?q={review_id[:8]}")
    assert (answer.status, answer.headers["location"]) == (303, f"/r/{review_id}")
    assert browser.get(f"/r/{review_id[:8]}").status == 200


def test_the_audit_is_searched_and_taken_away(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello("deux"))
    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    page = browser.get(f"/audit?type=review_claimed&review={review_id}").text
    assert page.count("data-row") == 1
    assert browser.get("/audit?q=nobody-said-this").text.count("data-row") == 0
    assert "have not been altered" in page
    events = [json.loads(line) for line in browser.get("/audit/export.jsonl").text.splitlines()]
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert [event["event_type"] for event in events[-2:]] == ["review_created", "review_claimed"]


# The change.


def test_a_large_diff_s_page_stays_small_and_quick(tmp_path: Path, own_home: Path) -> None:
    """All that is fetched before anything is painted: page, style and scripts."""
    with BrokerProcess(make_repository(tmp_path / "large"), home=own_home) as process:
        agent, browser = process.client(), Browser(process.port)
        changes = {
            "one file": created("a.py", 20_000),
            "fifty files": "".join(created(f"pkg/m{number}.py", 400) for number in range(50)),
            "five hundred files": "".join(created(f"pkg/m{number}.py", 40) for number in range(500)),
        }
        static = sum(len(path.read_bytes()) for path in STATIC.iterdir())
        for name, diff in changes.items():
            review_id = propose(agent, diff=diff)
            page = browser.get(f"/r/{review_id}")
            assert len(page.body) + static < 150_000, name
            assert "20000" in page.text
        last = browser.get(f"/r/{review_id}?from=400").text
        assert 'id="f499"' in last


def test_one_file_comes_alone_with_its_threads(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=created("a.py", 900))
    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    agent("add_message", review_id=review_id, sender_role="reviewer", body="Here!", path="a.py", line=700)
    page = browser.get(f"/r/{review_id}").text
    source = re.search(r'data-source="(/r/[^"]+/file[^"]+)"', page)
    assert source is not None
    part = browser.get(source.group(1).replace("&amp;", "&")).text
    assert part.startswith("<table")
    assert part.index('id="f0n700"') < part.index("Here!") < part.index('id="f0n701"')
    assert browser.get(f"/r/{review_id}/file?i=7").status == 404


def test_a_very_large_file_comes_in_parts(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=created("a.py", 12_000))
    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    source, lines = f"/r/{review_id}/file?i=0", 0
    for left in (7_000, 2_000, 0):
        part = browser.get(source).text
        lines += part.count('<tr class="a"')
        rest = re.search(r'href="([^"]+)" data-source="([^"]+)">Show (\d+) more lines<', part)
        assert (int(rest.group(3)) if rest else 0) == left
        if rest:
            source = rest.group(2).replace("&amp;", "&")
            # Without a script, the link leads to the same lines.
            assert '<tr class="a"' in browser.get(rest.group(1).replace("&amp;", "&")).text
    assert lines == 12_000
    assert browser.get(f"/r/{review_id}/file?i=0&part=3").status == 404
    there = browser.get(f"/r/{review_id}?file=0&at=f0n11000").text
    assert "<textarea" in there[there.index('id="f0n11000"') : there.index('id="f0n11001"')]


def test_a_file_of_hidden_characters_is_an_answer_of_bounded_size(browser: Browser, agent: Mcp) -> None:
    line = "+" + "\u202e" * 4_000
    diff = "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,150 @@\n"
    review_id = propose(agent, diff=diff + f"{line}\n" * 150)
    assert len(browser.get(f"/r/{review_id}/file?i=0").body) < 20_000_000


def test_a_proposal_without_a_diff_and_one_that_is_no_diff_are_shown(browser: Browser, agent: Mcp) -> None:
    assert "it is a proposal in words" in browser.get(f"/r/{propose(agent, diff=None)}").text
    page = browser.get(f"/r/{propose(agent, diff='please do what we said <script>')}").text
    assert "This diff cannot be read" in page
    assert "please do what we said &lt;script&gt;" in page


def test_white_space_can_be_left_out(browser: Browser, agent: Mcp) -> None:
    review_id = propose(agent, diff=hello(" two"))
    assert '<tr class="d"' in browser.get(f"/r/{review_id}").text
    assert '<tr class="d"' not in browser.get(f"/r/{review_id}?w=1").text


@pytest.mark.parametrize(
    "query", ["rev=9", "rev=0", "rev=x", "since=9", "patch=1", "file=99", "from=9999", "rev=99999999999999999999"]
)
def test_an_address_that_asks_for_nothing_there_is_answered_in_words(browser: Browser, agent: Mcp, query: str) -> None:
    review_id = propose(agent, diff=token_of(16))
    assert browser.get(f"/r/{review_id}?{query}").status in {200, 400, 404}


@pytest.mark.parametrize("query", ["?rev=99", "?revision=99", "?rev=0", "?since=99", "/live?rev=99", "/file?rev=99"])
def test_a_revision_that_there_is_not_is_answered_with_those_there_are(
    browser: Browser, agent: Mcp, query: str
) -> None:
    review_id = propose(agent, diff=token_of(16))
    answer = browser.get(f"/r/{review_id}{query}")
    assert answer.status == 404
    assert "There is revision 1 alone." in answer.text
    claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    agent(
        "submit_verdict", review_id=review_id, verdict="changes_requested", reason="no",
        claim_generation=claim["claim_generation"],
    )  # fmt: skip
    agent("create_review", **PROPOSAL, review_id=review_id, intent="Other", diff=token_of(32))
    assert "There are revisions 1 to 2." in browser.get(f"/r/{review_id}{query}").text
    assert "This is revision 1 of 2." in browser.get(f"/r/{review_id}?revision=1").text


def test_the_page_of_a_review_that_does_not_exist_does_not_lead_to_itself(browser: Browser) -> None:
    missing = browser.get("/r/nosuchreview")
    assert (missing.status, 'href="/r/' in missing.text, 'class="button" href="/reviews"' in missing.text) == (
        404, False, True,
    )  # fmt: skip
