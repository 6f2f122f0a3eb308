"""The two stores, as the parameter of a fixture: each test runs once on each."""

import asyncio
from collections.abc import Generator

import pytest

from tests.support import local, postgres

STORES = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


def on_each_store(request: pytest.FixtureRequest) -> Generator[str]:
    """Where the brokers in this process keep their reviews.

    The fixture `database_kind`; a module whose tests share a broker makes one with its own scope.
    """
    if request.param == "postgres":
        local.postgres_url = request.getfixturevalue("postgres_database")
        asyncio.run(postgres.emptied(local.postgres_url))
    yield request.param
    local.postgres_url = None
