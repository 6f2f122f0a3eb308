"""Any program of the user's. The broker's address, its name and its token are in its environment."""

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.pool.agents import Launch, LaunchRequest
from gsd_review_broker.pool.output import AgentReport, Event, Spending

ENVIRONMENT = ()
LOGIN = None


def launch(request: LaunchRequest) -> Launch:
    if request.command is None:
        raise BrokerError(
            Code.UNAVAILABLE,
            "there is no command to start: reviewer_pool.agents.command.command is not set",
            "Set it in the user's configuration file, as a list of arguments.",
        )
    return Launch(argv=())


def read_event(event: Event, spending: Spending) -> AgentReport | None:  # noqa: ARG001 - every agent's takes it
    """Ignore events here: it may start any of the others, and `readers_of` reads theirs."""
    return None
