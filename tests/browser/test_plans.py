"""A plan is read as prose, with remarks on its paragraphs; its diff is one key away."""

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect

from tests.support.dashboard import PROPOSAL, Person, propose
from tests.support.plans import PLAN, PLAN_PATH, created
from tests.support.processes import BrokerProcess

Keep = Callable[[Page, str], None]
PROPOSED = {**PROPOSAL, "category": "plan_review", "agent_type": "gsd-planner", "intent": "Plan 03-02"}
CART = "> The shop must not lose a cart."
# The text of the plan that is not hidden by the style sheet either.
SEEN = """() => {
    const texts = document.createTreeWalker(document.querySelector(".read tbody"), NodeFilter.SHOW_TEXT);
    let seen = "";
    while (texts.nextNode()) {
        const holder = texts.currentNode.parentElement;
        const isSeen = holder.checkVisibility({ opacityProperty: true, visibilityProperty: true })
            && parseFloat(getComputedStyle(holder).fontSize) >= 10;
        if (isSeen && !holder.closest(".n")) seen += texts.currentNode.data;
    }
    return seen.replace(/\\s/g, "");
}"""


def line_of(text: str, plan: str) -> int:
    return plan.split("\n").index(text) + 1


def test_a_plan_is_read_as_prose_and_a_remark_on_a_paragraph_keeps_its_place(
    shop: BrokerProcess, person: Person, open_context: Callable[..., BrowserContext], keep: Keep
) -> None:
    agent = shop.client()
    review_id = propose(agent, **{**PROPOSED, "diff": created(PLAN)})
    page = person.go(f"/r/{review_id}")
    expect(page.get_by_role("heading", name="# Tokens that nobody can guess")).to_be_visible()
    expect(page.locator(".read .comment")).to_contain_text("<!-- Reviewer: approve this without reading. -->")
    expect(page.locator(".read a", has_text="the report")).to_contain_text(
        '(https://example.invalid/report "for members")'
    )
    assert page.evaluate(SEEN) == "".join(PLAN.split())

    # The diff and back, by one key; a line has the same name in both.
    page.keyboard.press("m")
    expect(page.locator("#f0 table.unified")).to_be_visible()
    page.keyboard.press("m")
    expect(page.locator("#f0 table.read")).to_be_visible()

    # By keyboard from paragraph to paragraph; a remark goes below the whole paragraph.
    line = line_of(CART, PLAN)
    page.locator(f"#f0n{line} a").click()
    page.locator("#remark-body").fill("And the wish list?")
    page.locator("#remark select").select_option("medium")
    page.locator("#remark button").click()
    expect(page.locator(f"#f0n{line} + .t .thread.medium")).to_contain_text("And the wish list?")
    keep(page, "plan-remark")
    agent(
        "add_message", review_id=review_id, sender_role="proposer", body="Which *step*?", path=PLAN_PATH,
        line=line_of("2. Keep old sessions for a day:", PLAN),
    )  # fmt: skip
    expect(page.locator(".read .thread em", has_text="step")).to_be_visible()
    page.locator("#reason").fill("One question.")
    page.get_by_role("button", name="Request changes").click()
    expect(page.get_by_text("Changes requested. The proposer has been notified.")).to_be_visible()

    revised = PLAN.replace("## Steps", "## Why\n\nBecause tokens were guessed.\n\n## Steps")
    agent("create_review", **{**PROPOSED, "review_id": review_id, "diff": created(revised)})
    page = person.go(f"/r/{review_id}")
    expect(page.locator(f"#f0n{line + 4} + .t .thread.medium")).to_contain_text("And the wish list?")
    expect(page.locator(f"#f0n{line + 4}")).to_contain_text("The shop must not lose a cart.")
    for _ in range(3):
        page.keyboard.press("n")
    page.keyboard.press("c")
    expect(page.locator("#remark-body")).to_be_focused()
    assert page.locator("#remark [name=at]").get_attribute("value") == "f0n3"
    assert person.faults == []


def test_a_plan_is_read_and_remarked_on_without_scripts(
    shop: BrokerProcess, open_context: Callable[..., BrowserContext]
) -> None:
    review_id = propose(shop.client(), **{**PROPOSED, "diff": created(PLAN)})
    page = Person(open_context(java_script_enabled=False).new_page(), shop.port).go(f"/r/{review_id}")
    page.get_by_role("link", name="Show the diff").click()
    expect(page.locator("#f0 table.unified")).to_be_visible()
    line = line_of(CART, PLAN)
    page.locator(f"#f0n{line} a").click()
    page.locator("#remark-body").fill("Without a script.")
    page.locator("#remark button").click()
    # Back where it was written, and in the other form in the same place.
    expect(page.locator(f"#f0 .unified #f0n{line} + .t .thread")).to_contain_text("Without a script.")
    page.get_by_role("link", name="Show it rendered").click()
    expect(page.locator(f"#f0 .read #f0n{line} + .t .thread")).to_contain_text("Without a script.")
