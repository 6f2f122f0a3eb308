"""The whole negotiation, by clicking: an agent over MCP on one side, a person in the browser on the other."""

import getpass
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import APIResponse, BrowserContext, Page, Route, expect

from tests.support.dashboard import PROPOSAL, Person, propose, token_of
from tests.support.processes import BrokerProcess
from tests.support.waiting import until

Keep = Callable[[Page, str], None]


@pytest.mark.fresh
def test_a_person_reviews_by_clicking_and_the_agent_s_wait_returns(
    shop: BrokerProcess, person: Person, keep: Keep
) -> None:
    agent = shop.client("/mcp/proposer")
    review_id = propose(agent, description="Tokens were an **MD5** of the name.")
    page = person.go("/")
    page.get_by_role("link", name="Tokens that nobody can guess").click()
    expect(page.get_by_text("The diff applies to HEAD now")).to_be_visible()
    expect(page.locator("strong", has_text="MD5")).to_be_visible()

    # A remark on a line, as a finding; it claims the review on the way.
    page.locator("#f0n13 a").click()
    page.locator("#remark-body").fill("Sixteen bytes are few.\n\nTake 32.")
    page.locator("#remark select").select_option("high")
    page.locator("#remark button").click()
    expect(page.locator(".diff .thread.high")).to_contain_text("Sixteen bytes are few.")
    expect(page.locator("[data-live=claim]")).to_contain_text("You hold it")
    keep(page, "review-remark")

    with ThreadPoolExecutor(1) as pool:
        first = agent("get_review_status", review_id=review_id)["version"]
        waiting = pool.submit(agent, "get_review_status", review_id=review_id, wait=True, wait_seconds=60, since=first)
        page.locator("#reason").fill("See the finding.")
        page.get_by_role("button", name="Request changes").click()
        assert waiting.result(timeout=60)["status"] == "changes_requested"
    expect(page.get_by_text("Changes requested. The proposer has been notified.")).to_be_visible()
    found = agent("get_discussion", review_id=review_id)["findings"][0]
    assert (found["path"], found["line_start"], found["severity"]) == ("shop/sessions.py", 13, "high")
    assert found["raised_by"] == person.name

    # The agent revises; the page says so by itself, and does not let the old content be judged.
    agent("create_review", **PROPOSAL, review_id=review_id, intent="Tokens that nobody can guess", diff=token_of(32))
    expect(page.locator("#stale")).to_be_visible()
    page.get_by_role("link", name="Read the newest").click()
    page.get_by_role("link", name="compare r1 with r2").click()
    expect(page.get_by_role("heading", name="What changed since revision 1")).to_be_visible()
    expect(page.locator("tr.d")).to_contain_text("token_urlsafe(16)")
    expect(page.locator("tr.a")).to_contain_text("token_urlsafe(32)")
    keep(page, "review-interdiff")

    with ThreadPoolExecutor(1) as pool:
        first = agent("get_review_status", review_id=review_id)["version"]
        waiting = pool.submit(
            agent, "get_review_status", review_id=review_id, wait=True, wait_seconds=60, since=first + 1
        )
        digest = page.locator(".judge code.digest").inner_text()
        page.get_by_role("button", name=f"Approve {digest[:19]}").click()
        answer = waiting.result(timeout=60)
    assert answer["status"] == "approved"
    assert answer["claimed_by"] == person.name
    expect(page.get_by_text("Approved. The proposer has been notified.")).to_be_visible()
    assert agent("get_proposal", review_id=review_id)["digest"] == digest
    keep(page, "review-approved")
    assert person.faults == []


@pytest.mark.fresh
def test_what_happens_shows_up_without_reloading(
    shop: BrokerProcess, person: Person, open_context: Callable[..., BrowserContext]
) -> None:
    agent = shop.client()
    page = person.go("/")
    expect(page.locator("#pulse.on")).to_be_attached()
    page.evaluate("window.notReloaded = true")
    review_id = propose(agent)
    expect(page.get_by_role("link", name="Tokens that nobody can guess")).to_be_visible()
    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    expect(page.locator(".chip")).to_contain_text("Claimed")

    other = Person(open_context().new_page(), shop.port)
    review = other.go(f"/r/{review_id}")
    expect(review.locator("#pulse.on")).to_be_attached()
    review.evaluate("window.notReloaded = true")
    review.locator("details.say summary").click()
    review.locator("#say").fill("half a sentence")
    agent(
        "add_message", review_id=review_id, sender_role="reviewer", sender_id="codex-r1", body="Why *this* size?",
        path="shop/sessions.py", line=13,
    )  # fmt: skip
    expect(review.locator(".diff .thread em")).to_have_text("*this*")
    expect(review.locator("[data-live=timeline]")).to_contain_text("codex-r1 wrote")
    # What was being typed is still there.
    expect(review.locator("#say")).to_have_value("half a sentence")
    assert page.evaluate("window.notReloaded") is True
    assert review.evaluate("window.notReloaded") is True
    assert person.faults + other.faults == []


@pytest.mark.fresh
def test_a_slow_answer_does_not_hide_what_happened_since(shop: BrokerProcess, person: Person) -> None:
    agent = shop.client()
    review_id = propose(agent, diff=None)
    page = person.go(f"/r/{review_id}")
    expect(page.locator("#pulse.on")).to_be_visible()
    held: list[tuple[Route, APIResponse]] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    page.route(re.compile(f"/r/{review_id}"), hold_the_first)
    claim = agent("claim_review", review_id=review_id, reviewer_id="codex-1")
    until(lambda: page.title() and held)
    agent(
        "submit_verdict", review_id=review_id, reviewer_id="codex-1", verdict="approved",
        claim_generation=claim["claim_generation"],
    )  # fmt: skip
    page.evaluate(
        """(review) => new Promise((told) => {
            const events = new EventSource(`/events?after=0&review=${review}`);
            events.onmessage = ({ data }) => {
                if (JSON.parse(data).event_type === "verdict_submitted") { events.close(); told(); }
            };
        })""",
        review_id,
    )
    [(route, response)] = held
    route.fulfill(response=response)
    expect(page.locator(".head .chip.approved")).to_be_visible()


@pytest.mark.fresh
def test_a_person_is_called_and_the_title_counts(shop: BrokerProcess, person: Person, keep: Keep) -> None:
    agent = shop.client()
    page = person.go("/")
    expect(page).to_have_title("Inbox · Tandem")
    review_id = propose(agent)
    for _ in range(5):
        claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
        agent(
            "submit_verdict", review_id=review_id, verdict="changes_requested", reason="No.",
            claim_generation=claim["claim_generation"],
        )  # fmt: skip
        agent("create_review", **PROPOSAL, review_id=review_id, intent="Again", diff=token_of(16))
    expect(page).to_have_title("(1) Inbox · Tandem")
    expect(page.locator(".needs .why")).to_contain_text("A person was asked for. round 5 of at most 5")
    keep(page, "inbox")


def test_a_claim_is_taken_over_and_its_holder_s_verdict_refused(shop: BrokerProcess, person: Person) -> None:
    agent = shop.client()
    review_id = propose(agent)
    claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    page = person.go(f"/r/{review_id}")
    expect(page.locator("#approve")).to_have_count(0)
    page.get_by_role("button", name="Take it over").click()
    expect(page.get_by_text("You took the claim over.")).to_be_visible()
    expect(page.locator("#approve")).to_be_visible()
    assert agent("get_review_status", review_id=review_id)["claimed_by"] == person.name
    assert claim["claim_generation"] < 3


def test_counter_patches_are_offered_compared_and_accepted(shop: BrokerProcess, person: Person) -> None:
    agent = shop.client()
    review_id = propose(agent)
    page = person.go(f"/r/{review_id}")
    page.get_by_text("Offer a counter-patch").click()
    page.get_by_label("A unified diff that replaces").fill(token_of(64))
    page.locator("#reason").fill("Like this.")
    page.get_by_role("button", name="Request changes").click()
    page.get_by_role("link", name="See what it does differently").click()
    expect(page.locator("tr.a")).to_contain_text("token_urlsafe(64)")
    page.get_by_role("button", name="Accept it for the proposer").click()
    expect(page.get_by_text("The counter-patch is the newest revision now.")).to_be_visible()
    proposal = agent("get_proposal", review_id=review_id)
    assert proposal["revision"] == 2
    assert "token_urlsafe(64)" in proposal["diff"]


def test_a_finding_is_answered_and_resolved(shop: BrokerProcess, person: Person) -> None:
    agent = shop.client()
    review_id = propose(agent)
    claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    finding = {
        "path": "shop/sessions.py", "line_start": 13, "severity": "critical", "title": "Too short", "body": "Longer!",
    }  # fmt: skip
    agent(
        "submit_verdict", review_id=review_id, verdict="changes_requested", reason="One thing.",
        claim_generation=claim["claim_generation"], findings=[finding],
    )  # fmt: skip
    page = person.go(f"/r/{review_id}")
    expect(page.locator(".checks .unmet").first).to_contain_text("critical: Too short")
    thread = page.locator(".diff .thread")
    thread.locator("summary", has_text="Reply").click()
    thread.get_by_role("textbox", name="Reply").fill("It is long enough.")
    thread.get_by_role("button", name="Send").click()
    expect(page.locator(".diff .thread .message")).to_contain_text("It is long enough.")
    page.locator(".diff .thread summary", has_text="Resolve").click()
    page.get_by_label("Why", exact=True).fill("by decree")
    page.get_by_role("button", name="Rejected").click()
    expect(page.locator(".diff .thread .badge.done")).to_have_text("rejected")
    found = agent("get_discussion", review_id=review_id)["findings"][0]
    assert (found["disposition"], found["note"]) == ("rejected", "by decree")
    resolved = agent("get_review_timeline", review_id=review_id)["events"][-1]
    assert (resolved["event_type"], resolved["actor"]) == ("finding_resolved", person.name)


def test_many_tabs_share_one_stream(shop: BrokerProcess, open_context: Callable[..., BrowserContext]) -> None:
    """A browser opens six connections to one host at most: the eighth tab would wait for ever."""
    agent = shop.client()
    context = open_context()
    tabs = [Person(context.new_page(), shop.port) for _ in range(8)]
    for tab in tabs:
        expect(tab.go("/reviews").locator("h1")).to_be_visible()
    propose(agent, intent="Seen in every tab")
    for tab in tabs:
        expect(tab.page.get_by_role("link", name="Seen in every tab")).to_be_visible()
    # The one that listened goes; another takes its place.
    tabs[0].page.close()
    propose(agent, intent="Seen in those that are left")
    for tab in tabs[1:]:
        expect(tab.page.get_by_role("link", name="Seen in those that are left")).to_be_visible()


@pytest.mark.fresh
def test_a_page_outlives_the_broker_and_its_forms_work_again(shop: BrokerProcess, person: Person) -> None:
    review_id = propose(shop.client())
    page = person.go(f"/r/{review_id}")
    expect(page.locator("#pulse.on")).to_be_attached()
    port = shop.port
    shop.stop()
    expect(page.locator("#pulse:not(.on)")).to_be_attached()
    shop.start(port=port)
    expect(page.locator("#pulse.on")).to_be_attached()
    agent = shop.client()
    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    expect(page.get_by_role("button", name="Take it over")).to_be_visible()
    page.locator("#f0n13 a").click()
    page.locator("#remark-body").fill("Still here.")
    page.locator("#remark button").click()
    expect(page.locator(".diff .thread")).to_contain_text("Still here.")


@pytest.mark.fresh
def test_desktop_notifications_are_asked_for_and_come_when_nobody_looks(
    shop: BrokerProcess, open_context: Callable[..., BrowserContext]
) -> None:
    context = open_context(permissions=["notifications"])
    context.add_init_script(
        """window.Notification = class { constructor(title, more) { document.documentElement.dataset.told = more.body; }
          static permission = "granted"; static async requestPermission() { return "granted"; } };
        Object.defineProperty(document, "hidden", { get: () => window.away === true });"""
    )
    agent = shop.client()
    page = Person(context.new_page(), shop.port).go("/")
    expect(page.locator("#pulse.on")).to_be_attached()
    page.keyboard.press("?")
    expect(page.locator("#notify")).not_to_be_checked()
    page.locator("#notify").check()
    expect(page.locator("#notify")).to_be_checked()
    page.evaluate("window.away = true")
    # The person's own claim with an agent's word to it: told at once.
    review_id = propose(agent)
    agent("claim_review", review_id=review_id, reviewer_id=f"human:{getpass.getuser()}")
    agent("add_message", review_id=review_id, sender_role="proposer", body="Please look.")
    expect(page.locator("html")).to_have_attribute("data-told", "1 in the inbox")


def test_what_was_typed_outlives_the_claim_of_another(shop: BrokerProcess, person: Person, keep: Keep) -> None:
    agent = shop.client()
    review_id = propose(agent)
    page = person.go(f"/r/{review_id}")
    expect(page.locator("#pulse.on")).to_be_attached()
    page.locator("#reason").fill("Half a thou")
    page.get_by_text("Offer a counter-patch").click()
    page.locator("#counter").fill("--- a/half")
    page.locator("#reason").focus()
    claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    expect(page.locator("#meanwhile")).to_contain_text("codex-r1 is judging it.")
    keep(page, "review-typed-and-claimed")
    # Who goes on writing writes into the form, and cannot send it.
    page.keyboard.press("End")
    page.keyboard.type("ght")
    expect(page.locator("#reason")).to_have_value("Half a thought")
    expect(page.locator("#request")).to_be_disabled()

    agent("release_claim", review_id=review_id, claim_generation=claim["claim_generation"])
    expect(page.locator("#request")).to_be_enabled()
    expect(page.locator("#meanwhile")).to_be_hidden()
    expect(page.locator("#reason")).to_have_value("Half a thought")
    expect(page.locator("#counter")).to_have_value("--- a/half")

    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    expect(page.locator("#request")).to_be_disabled()
    page.reload()
    expect(page.locator("#reason")).to_have_count(0)
    page.get_by_role("button", name="Take it over").click()
    expect(page.locator("#reason")).to_have_value("Half a thought")
    expect(page.locator("#counter")).to_have_value("--- a/half")
    page.locator("#counter").fill("")
    page.get_by_role("button", name="Request changes").click()
    expect(page.get_by_text("Changes requested. The proposer has been notified.")).to_be_visible()
    assert page.evaluate("Object.keys(sessionStorage).filter((name) => name.startsWith('draft')).length") == 0
    assert person.faults == []


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_refused_verdict_comes_back_with_its_form(
    shop: BrokerProcess, open_context: Callable[..., BrowserContext], keep: Keep, *, scripts: bool
) -> None:
    agent = shop.client()
    review_id = propose(agent)
    person = Person(open_context(java_script_enabled=scripts).new_page(), shop.port)
    page = person.go(f"/r/{review_id}")
    # The browser itself asks for the reason that a request needs.
    page.get_by_role("button", name="Request changes").click()
    expect(page.locator("#reason:invalid")).to_be_focused()
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"
    page.locator("#reason").fill("Like this.")
    page.get_by_text("Offer a counter-patch").click()
    page.locator("#counter").fill("no diff")
    page.get_by_role("button", name="Request changes").click()
    expect(page.locator("#refused")).to_be_in_viewport()
    expect(page.locator("#refused")).to_contain_text("counter_patch")
    expect(page.locator("#reason")).to_have_value("Like this.")
    expect(page.locator("#counter")).to_have_value("no diff")
    assert agent("get_review_status", review_id=review_id)["status"] == "pending"
    keep(page, "review-refused")
    if scripts:
        # What happens meanwhile takes nothing away, and the address is the review's.
        claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
        expect(page.locator("#request")).to_be_disabled()
        agent("release_claim", review_id=review_id, claim_generation=claim["claim_generation"])
        expect(page.locator("#request")).to_be_enabled()
        expect(page.locator("#counter")).to_have_value("no diff")
        assert page.url == f"{person.address}/r/{review_id}"
    page.locator("#counter").fill("")
    page.locator("#reason").fill("")
    page.get_by_role("button", name="Approve sha256:").click()
    expect(page.get_by_text("Approved. The proposer has been notified.")).to_be_visible()
