"""One module for each client: what it needs to find the broker, and in which of its files."""

from functools import cache
from importlib import import_module
from typing import cast

from gsd_review_broker.domain.words import CLIENTS, INSTALLABLE
from gsd_review_broker.integrations.clients.setup import Client


@cache
def client_named(name: str) -> Client:
    return cast("Client", import_module(f"{__name__}.{name.replace('-', '_')}").CLIENT)


def every_client() -> tuple[Client, ...]:
    return tuple(map(client_named, CLIENTS))


def everything_installable() -> tuple[Client, ...]:
    """The clients, and what runs inside them."""
    return tuple(map(client_named, INSTALLABLE))
