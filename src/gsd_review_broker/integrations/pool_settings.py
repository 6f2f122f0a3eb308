"""The pool's switch in a project's settings file, written and taken back as a client's entry is."""

from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, ClientSetup
from gsd_review_broker.integrations.environment import Environment
from gsd_review_broker.integrations.formats.entries import Entry
from gsd_review_broker.settings import locations

POOL = "pool"


def pool_settings(agent: str | None = None) -> Client:
    """Without an agent: to take it back."""

    def more(choice: Choice, around: Environment) -> ClientSetup:  # noqa: ARG001 - every client's takes it
        values = {"enabled": True, "agent": agent}
        entries = tuple(Entry(path=("reviewer_pool", name), value=value) for name, value in values.items())
        file = ClientFile(path=locations.project_file(around.project()), format="json", entries=entries)
        return ClientSetup(documents=(file,), notes=("The pool begins with the next start of the broker.",))

    return Client(name=POOL, full_name="Reviewer pool", server=None, more=more, is_of_broker=True)
