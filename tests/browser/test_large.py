"""A change of twenty thousand lines opens as quickly as a small one, and every file of it at one key."""

import statistics
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.support.dashboard import Person, created, propose
from tests.support.processes import BrokerProcess

Keep = Callable[[Page, str], None]
LARGE = {
    "one file": created("pkg/large.py", 20_000),
    "fifty files": "".join(created(f"pkg/m{number}.py", 400) for number in range(50)),
}
_SCROLL = """async () => {
  const began = performance.now();
  for (let step = 0; step < 40; step++) {
    window.scrollBy(0, 300);
    await new Promise(requestAnimationFrame);
  }
  window.scrollTo(0, 0);
  return performance.now() - began;
}"""


# The page itself and what it fetched, and not what an earlier page is still getting.
_FETCHED_BYTES = """() => ["navigation", "resource"]
  .flatMap((kind) => performance.getEntriesByType(kind))
  .filter((entry) => !entry.name.includes("/events"))
  .reduce((bytes, entry) => bytes + entry.decodedBodySize, 0)"""


def opened(person: Person, review_id: str) -> float:
    began = time.perf_counter()
    page = person.go(f"/r/{review_id}")
    # Not only painted: it answers.
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    return time.perf_counter() - began


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_change_gives_the_browser_little_more_than_a_small_one(
    shop: BrokerProcess, person: Person, kind: str
) -> None:
    agent = shop.client()
    elements: list[int] = []
    for diff in (created("pkg/small.py", 200), LARGE[kind]):
        opened(person, propose(agent, diff=diff))
        elements.append(person.page.evaluate("document.querySelectorAll('*').length"))
    assert 1_000 < person.page.evaluate(_FETCHED_BYTES) < 150_000
    small, large = elements
    assert large < 3 * small


@pytest.mark.torture
@pytest.mark.parametrize("kind", LARGE)
def test_a_large_change_opens_like_a_small_one(shop: BrokerProcess, person: Person, kind: str) -> None:
    agent = shop.client()
    small, large = propose(agent, diff=created("pkg/small.py", 200)), propose(agent, diff=LARGE[kind])
    opened(person, large)
    opened(person, small)
    times: dict[str, list[float]] = {small: [], large: []}
    scrolls: dict[str, list[float]] = {small: [], large: []}
    for _ in range(5):
        for review_id in (small, large):
            times[review_id].append(opened(person, review_id))
            person.page.keyboard.press("Escape")
            scrolls[review_id].append(person.page.evaluate(_SCROLL))
    assert statistics.median(times[large]) < 3 * statistics.median(times[small])
    assert statistics.median(scrolls[large]) < 3 * statistics.median(scrolls[small])


def test_one_key_opens_every_file(shop: BrokerProcess, person: Person, keep: Keep) -> None:
    review_id = propose(shop.client(), diff="".join(created(f"pkg/m{number}.py", 40) for number in range(250)))
    page = person.go(f"/r/{review_id}")
    assert page.locator("details.file").count() == 100
    page.keyboard.press("e")
    expect(page.locator("tr.a")).to_have_count(250 * 40, timeout=60_000)
    expect(page.locator("details.file[open]")).to_have_count(250)
    # It still answers, and a file is found by name.
    page.keyboard.press("/")
    page.keyboard.type("m249")
    page.keyboard.press("Enter")
    expect(page.locator("#f249")).to_be_in_viewport()
    assert person.faults == []
