"""One module for each client: what it needs to find the broker, and in which of its files."""

from functools import cache
from importlib import import_module
from typing import cast

from gsd_review_broker.domain.words import CLIENTS, INSTALLABLE
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, ClientSetup, Environment
from gsd_review_broker.integrations.formats import ConfigEntry
from gsd_review_broker.settings import locations

POOL = "pool"


@cache
def client_named(name: str) -> Client:
    return cast("Client", import_module(f"{__name__}.{name.replace('-', '_')}").CLIENT)


def every_client() -> tuple[Client, ...]:
    return tuple(map(client_named, CLIENTS))


def everything_installable() -> tuple[Client, ...]:
    """Return the clients, and what runs inside them."""
    return tuple(map(client_named, INSTALLABLE))


def pool_settings(agent: str | None = None) -> Client:
    """Describe the pool's switch in a project's settings file as a client. To remove it, no agent is needed."""

    def more(choice: Choice, around: Environment) -> ClientSetup:  # noqa: ARG001 - every client's takes it
        values = {"enabled": True, "agent": agent}
        entries = tuple(ConfigEntry(path=("reviewer_pool", name), value=value) for name, value in values.items())
        file = ClientFile(path=locations.project_file(around.project()), format="json", entries=entries)
        return ClientSetup(documents=(file,), notes=("The pool begins with the next start of the broker.",))

    return Client(name=POOL, full_name="Reviewer pool", server=None, more=more, is_of_broker=True)
