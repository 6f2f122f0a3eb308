import logging
import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from gsd_review_broker.observe import logs
from tests.support import environment, postgres
from tests.support.local import LocalBroker, local_broker
from tests.support.measuring import Measuring
from tests.support.processes import BrokerProcess, make_repository
from tests.support.scheduling import ByGroup, turn_of
from tests.support.stores import STORES, on_each_store

# Before any fixture, and for every program that a test starts.
environment.clean()

_PROFILE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
# Normally the same examples each time, so that a failure is about the change; `make torture` searches for new ones.
settings.register_profile("everyday", max_examples=25, derandomize=True, **_PROFILE)
settings.register_profile("searching", max_examples=1_000, **_PROFILE)
settings.load_profile("everyday")


_KEEPING = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    keeping = postgres.prepare(os.environ)
    if keeping is not None:
        config.stash[_KEEPING] = keeping


def pytest_unconfigure(config: pytest.Config) -> None:
    if _KEEPING in config.stash:
        postgres.finish(config.stash[_KEEPING], Path(os.environ.pop(postgres.FOLDER)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: turn_of(item.nodeid))
    # A test about SQLite's own file has no meaning elsewhere.
    items[:] = [one for one in items if not (one.get_closest_marker("sqlite") and one.get_closest_marker("postgres"))]


_MEASURING = Measuring()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _MEASURING.switch(item.nodeid)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees or changes the configuration of the person who runs it."""
    home = tmp_path / "home"
    home.mkdir()
    for name, value in {"HOME": home, "XDG_CONFIG_HOME": home / "config", "XDG_DATA_HOME": home / "data"}.items():
        monkeypatch.setenv(name, str(value))
    return home


@pytest.fixture(autouse=True)
def own_logging(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A test may configure the logs of its process: the next test finds them as they were.

    No logger keeps the configuration of its first use, as it does in a broker.
    """
    before, configure, root = structlog.get_config(), structlog.configure, logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(
        structlog, "configure", lambda **changed: configure(**changed | {"cache_logger_on_first_use": False})
    )
    yield
    if structlog.get_config() != before:
        logs.configure(level="info", form="console")  # It closes the file that the test's logs went to.
        configure(**before)
        root.handlers[:], root.level = handlers, level


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


@pytest.fixture
async def broker(tmp_path: Path, repository: Path) -> AsyncGenerator[LocalBroker]:
    async with local_broker(tmp_path, root=repository) as running:
        yield running


@pytest.fixture
def process(own_home: Path, repository: Path) -> Generator[BrokerProcess]:
    with BrokerProcess(repository, home=own_home) as running:
        yield running


@pytest.fixture(scope="session")
def postgres_database() -> Generator[str]:
    """One for this worker."""
    with postgres.own_database("shared") as url:
        yield url


database_kind = pytest.fixture(params=STORES)(on_each_store)
