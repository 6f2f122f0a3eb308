"""The same pages for everybody: by keyboard alone, without scripts, on a phone, at night, with a screen reader."""

from collections.abc import Callable
from importlib.resources import files
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support import plans
from tests.support.dashboard import PROPOSAL, Person, created, propose, token_of
from tests.support.processes import BrokerProcess

Keep = Callable[[Page, str], None]
Open = Callable[..., BrowserContext]
ColorScheme = Literal["light", "dark"]
FINDING = {"path": "shop/sessions.py", "line_start": 13, "severity": "high", "title": "Short", "body": "`32` is better"}


def negotiated(shop: BrokerProcess) -> str:
    """A review with something of everything."""
    agent = shop.client()
    review_id = propose(agent, description="# Why\n\nTokens were guessable.\n\n| a | b |\n|---|---|\n| 1 | 2 |")
    claim = agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    agent("add_message", review_id=review_id, sender_role="reviewer", sender_id="codex-r1", body="Why?")
    agent(
        "submit_verdict", review_id=review_id, verdict="changes_requested", reason="One thing.",
        claim_generation=claim["claim_generation"], findings=[FINDING], counter_patch=token_of(64),
    )  # fmt: skip
    agent("create_review", **PROPOSAL, review_id=review_id, intent="Tokens that nobody can guess", diff=token_of(24))
    propose(agent, intent="Another one", diff=created("notes/plan.md", 30))
    return review_id


@pytest.mark.fresh
def test_a_review_is_judged_by_keyboard_alone(shop: BrokerProcess, person: Person) -> None:
    agent = shop.client()
    review_id = propose(agent, diff=token_of(16) + created("shop/extra.py", 20))
    page = person.go("/")
    press = page.keyboard.press
    press("j")
    press("o")
    expect(page.locator("h1")).to_have_text("Tokens that nobody can guess")

    press("j")
    expect(page.locator("#f0.here summary")).to_be_focused()
    press("j")
    expect(page.locator("#f1.here")).to_be_visible()
    press("o")
    expect(page.locator("#f1")).not_to_have_attribute("open", "")
    press("k")
    press("n")
    expect(page.locator("tr.here")).to_have_count(1)
    press("n")
    press("c")
    expect(page.locator("#remark-body")).to_be_focused()
    page.keyboard.type("By keyboard.")
    press("Tab")
    press("Tab")
    press("Enter")
    expect(page.locator(".diff .thread")).to_contain_text("By keyboard.")

    press("?")
    expect(page.locator("#help")).to_be_visible()
    press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    # A box to tick is not a text to type in; a closed dialog can keep the focus on one for a moment.
    page.evaluate("""document.body.insertAdjacentHTML("beforeend", '<input type="checkbox" id="tick">')""")
    page.locator("#tick").focus()
    press("/")
    expect(page.locator("#command")).to_be_focused()
    page.keyboard.type("insi")
    press("Enter")
    expect(page.locator("h1")).to_have_text("Insights")
    page.go_back()
    expect(page.locator("#pulse.on")).to_be_attached()
    press("r")
    expect(page.locator("#reason")).to_be_focused()
    page.keyboard.type("All good, but one word.")
    press("Escape")
    press("a")
    expect(page.locator("#approve")).to_be_focused()
    press("Enter")
    expect(page.get_by_text("Approved. The proposer has been notified.")).to_be_visible()
    answer = agent("get_review_status", review_id=review_id)
    assert (answer["status"], answer["verdict_reason"]) == ("approved", "All good, but one word.")
    assert person.faults == []


def test_everything_works_without_scripts(shop: BrokerProcess, open_context: Open, keep: Keep) -> None:
    review_id = negotiated(shop)
    agent = shop.client()
    large = propose(agent, intent="Large", diff=created("big.py", 900))
    person = Person(open_context(java_script_enabled=False).new_page(), shop.port)
    page = person.go("/")
    # Not anybody's for the first minute: it is kept for who reviewed it before. A new one is free.
    free = propose(agent, intent="Free to take")
    page = person.go("/reviews?q=free")
    page.get_by_role("link", name="Free to take").click()
    page.locator("#f0n13 a").click()
    expect(page.locator("#remark-body")).to_be_visible()
    page.locator("#remark-body").fill("Without a script.")
    page.locator("#remark select").select_option("medium")
    page.locator("#remark button").click()
    expect(page.locator(".diff .thread.medium")).to_contain_text("Without a script.")
    page.get_by_role("link", name="Split").click()
    expect(page.locator("table.split")).to_have_count(1)
    page.get_by_role("link", name="Unified").click()
    page.locator("#reason").fill("Read without a script.")
    page.get_by_role("button", name="Approve sha256:").click()
    expect(page.get_by_text("Approved. The proposer has been notified.")).to_be_visible()
    assert agent("get_review_status", review_id=free)["status"] == "approved"
    page.locator("summary", has_text="Close it").click()
    page.get_by_role("button", name="Close, for good").click()
    assert agent("get_review_status", review_id=free)["status"] == "closed"

    page = person.go(f"/r/{review_id}")
    page.get_by_label("Compare").select_option("1")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("tr.a")).to_contain_text("token_urlsafe(24)")
    page = person.go(f"/r/{large}")
    page.locator("#f0 summary").click()
    page.get_by_role("link", name="Show 900 lines").click()
    expect(page.locator("#f0n900")).to_be_attached()
    keep(page, "without-scripts")
    for path in ("/pool", "/insights", "/audit", "/audit?type=review_claimed&q=codex"):
        expect(person.go(path).locator("h1")).to_be_visible()


# All of axe-core's rules once; then those whose result depends on the colours or on the width.
_BY_COLOUR = ["color-contrast", "link-in-text-block"]
_VIEWS: tuple[tuple[ColorScheme, int, list[str] | None], ...] = (
    ("light", 1360, None),
    ("dark", 1360, _BY_COLOUR),
    ("light", 390, ["scrollable-region-focusable", "meta-viewport"]),
)


def test_no_page_shuts_anybody_out(shop: BrokerProcess, open_context: Open, keep: Keep) -> None:
    """axe-core's rules, and on a phone nothing is wider than the screen."""
    review_id = negotiated(shop)
    plan_id = propose(shop.client(), intent="A plan", category="plan_review", diff=plans.created(plans.PLAN))
    context = open_context()
    # Run as the browser's own script: the page's policy allows none but ours.
    context.add_init_script(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    person = Person(context.new_page(), shop.port)
    pages = {
        "inbox": "/", "reviews": "/reviews", "review": f"/r/{review_id}", "split": f"/r/{review_id}?view=split",
        "interdiff": f"/r/{review_id}?rev=2&since=1", "pool": "/pool", "insights": "/insights", "audit": "/audit",
        "plan": f"/r/{plan_id}", "error": "/r/nosuchreview",
    }  # fmt: skip
    for name, path in pages.items():
        page = person.go(path)
        expect(page.locator("h1")).to_be_visible()
        for scheme, width, rules in _VIEWS:
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 800})
            assert not grave_violations(page, rules), f"{path}, {scheme}, {width} pixels"
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is {wide} pixels wider than the screen"
            if rules is None or name in {"review", "plan"}:
                keep(page, f"{name}-{scheme}-{width}")


def grave_violations(page: Page, rules: list[str] | None) -> list[dict[str, object]]:
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = page.evaluate("options => axe.run(document, options)", options)
    assert len(found["passes"]) > (0 if rules else 10)
    return [
        {"rule": one["id"], "where": [node["html"][:200] for node in one["nodes"]][:3]}
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]


def test_single_keys_can_be_turned_off_and_a_line_is_found_by_its_number(shop: BrokerProcess, person: Person) -> None:
    review_id = propose(shop.client())
    page = person.go(f"/r/{review_id}")
    page.keyboard.press("?")
    page.locator("#singles").uncheck()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("?")
    page.keyboard.press("Control+k")
    expect(page.locator("#help")).to_be_hidden()
    expect(page.locator("#command")).to_be_focused()
    page.keyboard.type("sessions.py:13")
    page.keyboard.press("Enter")
    expect(page.locator("#remark-body")).to_be_focused()
    assert page.locator("#remark [name=at]").get_attribute("value") == "f0n13"
    assert person.faults == []


def test_the_theme_is_kept_and_follows_the_system_until_then(shop: BrokerProcess, open_context: Open) -> None:
    person = Person(open_context(color_scheme="dark").new_page(), shop.port)
    page = person.go("/")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Theme").click()
    light = page.evaluate(background)
    assert dark != light
    assert person.go("/reviews").evaluate(background) == light


def test_a_link_to_a_line_leads_there_even_in_a_file_that_is_not_loaded(shop: BrokerProcess, person: Person) -> None:
    review_id = propose(shop.client(), diff=created("big.py", 900))
    page = person.go(f"/r/{review_id}#f0n850")
    expect(page.locator("#f0n850")).to_be_in_viewport()


@pytest.mark.fresh
def test_an_empty_broker_teaches_and_its_snippet_is_copied(shop: BrokerProcess, open_context: Open, keep: Keep) -> None:
    context = open_context(permissions=["clipboard-read", "clipboard-write"])
    page = Person(context.new_page(), shop.port).go("/")
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "tandem install claude"
    expect(page.get_by_text("tandem install codex --role reviewer")).to_be_visible()
    by_hand = page.get_by_text(f"claude mcp add --transport http gsdreview http://127.0.0.1:{shop.port}/mcp/proposer")
    expect(by_hand).to_be_hidden()
    page.get_by_text("Connect them by hand").click()
    expect(by_hand).to_be_visible()
    keep(page, "inbox-empty")


def test_more_lines_and_the_whole_file_come_by_mouse_by_keyboard_and_without_scripts(
    shop: BrokerProcess, person: Person, open_context: Open, keep: Keep
) -> None:
    review_id = propose(shop.client())
    page = person.go(f"/r/{review_id}")
    before = page.locator("#f0 .diff tr").count()
    page.locator("#f0 a.around").first.click()
    expect(page.locator("#f0 a.around").first).to_contain_text("100 lines")
    assert page.locator("#f0 .diff tr").count() > before
    keep(page, "lines-around")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("#f0 a.around")).to_have_count(0)
    expect(page.locator("#f0 .diff")).to_contain_text("class SessionStore")
    keep(page, "whole-file")
    assert person.faults == []
    plain = open_context(java_script_enabled=False).new_page()
    plain.goto(f"{person.address}/r/{review_id}")
    plain.locator("#f0 a.around").last.click()
    expect(plain.locator("#f0 .diff")).to_contain_text("class SessionStore")
    expect(plain.locator("#f0 a.around")).to_have_count(0)


def test_on_a_phone_the_names_in_the_audit_are_not_broken_into_pieces(shop: BrokerProcess, open_context: Open) -> None:
    propose(shop.client(), agent_type="gsd-planner")
    page = Person(open_context(viewport={"width": 375, "height": 740}).new_page(), shop.port).go("/audit")
    name = page.locator("td .who", has_text="gsd-planner").first
    assert name.evaluate("one => one.getClientRects().length") == 1
