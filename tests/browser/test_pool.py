"""The pool by clicking: start, look, pause, scale, drain, kill; with real processes."""

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.dashboard import SHOP, Person, propose
from tests.support.pool import pool_of, program, script, user_file
from tests.support.processes import BrokerProcess, make_repository

Keep = Callable[[Page, str], None]
WAITS = "import time\nprint('ready <script>window.owned=1</script> \\x1b[31mred', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def pool(browser: Browser, own_home: Path, tmp_path: Path) -> Generator[Callable[[list[str]], BrokerProcess]]:
    with contextlib.ExitStack() as stack:

        def start(command: list[str]) -> BrokerProcess:
            user_file(own_home, **pool_of(command, spawn_cooldown_seconds=1, kill_grace_seconds=1))
            broker = stack.enter_context(BrokerProcess(make_repository(tmp_path / "shop", SHOP), home=own_home))
            # In peace, so that it ends its reviewers.
            stack.callback(broker.stop)
            return broker

        yield start


def test_a_reviewer_is_started_watched_and_ended_by_clicking(
    pool: Callable[[list[str]], BrokerProcess], open_context: Callable[..., BrowserContext], tmp_path: Path, keep: Keep
) -> None:
    broker = pool(script(tmp_path, WAITS))
    person = Person(open_context().new_page(), broker.port)
    page = person.go("/pool")
    expect(page.get_by_text("0 of at most 3 reviewers run")).to_be_visible()
    page.get_by_role("button", name="Start one").click()
    card = page.locator(".reviewer")
    expect(card).to_contain_text("command-r1")
    card.get_by_role("link", name="Log").click()
    expect(page.locator("pre.log")).to_contain_text("ready <script>window.owned=1</script>")
    expect(page.locator("pre.log .hid")).to_have_text("U+001B")
    assert page.evaluate("window.owned") is None
    keep(page, "pool-running")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused.")).to_be_visible()
    page.get_by_role("button", name="Go on").click()
    page.get_by_label("At most").fill("5")
    page.get_by_role("button", name="Scale").click()
    expect(page.get_by_text("of at most 5 reviewers")).to_be_visible()
    page.locator(".reviewer").get_by_role("button", name="Kill").click()
    expect(page.locator("table.list")).to_contain_text("command-r1")
    assert person.faults == []


def test_a_review_that_the_pool_judges_is_seen_on_both_pages(
    pool: Callable[[list[str]], BrokerProcess], open_context: Callable[..., BrowserContext]
) -> None:
    broker = pool(program("good"))
    review_id = propose(broker.client(), diff=None)
    person = Person(open_context().new_page(), broker.port)
    page = person.go(f"/r/{review_id}")
    expect(page.locator(".head .chip.approved")).to_be_visible()
    expect(page.locator("[data-live=timeline]")).to_contain_text("command-r1")
    expect(person.go("/insights").get_by_text("What it costs")).to_be_visible()
