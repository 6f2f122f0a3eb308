"""Chromium for the tests of the dashboard: one browser for all of them, a context of its own for each."""

import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.support.dashboard import SHOP, Person
from tests.support.processes import BrokerProcess, make_repository
from tests.support.waiting import PATIENCE

ARTEFACTS = Path(__file__).parents[2] / "test-artifacts"
# The first that is found; chromium.sh looks for the same ones.
_NAMES = (
    *("chromium-headless-shell", "chrome-headless-shell"),
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
expect.set_options(timeout=PATIENCE * 1000)


def chromium() -> str | None:
    given = os.environ.get("CHROMIUM")
    return given or next((found for name in _NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    program = chromium()
    if program is None:
        why = "NO CHROMIUM: the dashboard was not tested in a browser (see `make chromium`, or set CHROMIUM)"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    home = tmp_path_factory.mktemp("chromium-home")
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home)}
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(_FLAGS), env=environment)
        yield running
        running.close()


@pytest.fixture(scope="package")
def shared(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("shared")
    (folder / "home").mkdir()
    with BrokerProcess(make_repository(folder / "shop", SHOP), home=folder / "home") as running:
        yield running


@pytest.fixture
def shop(request: pytest.FixtureRequest, own_home: Path, tmp_path: Path) -> Generator[BrokerProcess]:
    """A broker for a small repository: shared, unless a test is marked to need one that nobody used before."""
    if request.node.get_closest_marker("fresh") is None:
        yield request.getfixturevalue("shared")
        return
    request.getfixturevalue("browser")
    with BrokerProcess(make_repository(tmp_path / "shop", SHOP), home=own_home) as running:
        yield running


@pytest.fixture
def open_context(browser: Browser) -> Generator[Callable[..., BrowserContext]]:
    opened: list[BrowserContext] = []

    def make(**options: object) -> BrowserContext:
        context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **options})  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE * 1000)
        opened.append(context)
        return context

    yield make
    for context in opened:
        context.close()


@pytest.fixture
def person(shop: BrokerProcess, open_context: Callable[..., BrowserContext]) -> Person:
    return Person(open_context().new_page(), shop.port)


@pytest.fixture
def keep() -> Callable[[Page, str], None]:
    """A picture for those who want to see what was tested: `make test PICTURES=1`. Drawing them takes seconds."""

    def picture(page: Page, name: str) -> None:
        if "TANDEM_TEST_PICTURES" in os.environ:
            ARTEFACTS.mkdir(exist_ok=True)
            page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)

    return picture
