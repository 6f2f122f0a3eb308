"""The programs that the pool can start, one module for each, written after tests with the real program.

A module is named after its agent in `domain/words.py` and exports what `AgentModule` names.
"""

from functools import cache
from importlib import import_module
from typing import Protocol, cast

from gsd_review_broker.domain.words import OWN_COMMAND, PROGRAMS
from gsd_review_broker.pool.child.output import AgentReport, Event, EventReader, Spending
from gsd_review_broker.pool.launch.login import Login
from gsd_review_broker.pool.launch.recipe import (
    Launch,
    LaunchRequest,
    refuse_unprintable,
    refuse_unsafe,
    through_wsl,
    with_own_command,
)


class AgentModule(Protocol):
    @property
    def ENVIRONMENT(self) -> tuple[str, ...]:  # noqa: N802 - a constant of the module
        """Variables of the broker's environment that it may see, besides those that every program may see."""
        ...

    @property
    def LOGIN(self) -> Login | None:  # noqa: N802 - a constant of the module
        """How it is logged in; None for a program that the broker does not know."""
        ...

    def launch(self, request: LaunchRequest) -> Launch: ...

    def read_event(self, event: Event, spending: Spending) -> AgentReport | None:
        """What one line of its output says; None for an event that it does not have."""
        ...


@cache
def module_of(agent: str) -> AgentModule:
    return cast("AgentModule", import_module(f"{__name__}.{agent.replace('-', '_')}"))


def readers_of(agent: str) -> tuple[EventReader, ...]:
    """A program of the user's may start any of the agents, so all their events are read."""
    names = PROGRAMS if agent == OWN_COMMAND else (agent,)
    return tuple(module_of(name).read_event for name in names)


def launch_for(request: LaunchRequest) -> Launch:
    """The argument list, environment and files of a reviewer; every value that goes into them is checked first."""
    refuse_unprintable(request)
    if request.model:
        refuse_unsafe("model", request.model, "model")
    launch = with_own_command(request, module_of(request.agent).launch(request))
    return through_wsl(launch, request.wsl_distro) if request.wsl_distro else launch
