"""The programs that the pool knows how to start, each as it was measured to work."""

from collections.abc import Callable
from dataclasses import dataclass

from gsd_review_broker.pool.launch.agents import claude, codex, command, gemini, opencode
from gsd_review_broker.pool.launch.recipe import Launch, LaunchRequest, refuse_unsafe, through_wsl, with_own_command


@dataclass(frozen=True, slots=True)
class Agent:
    launch: Callable[[LaunchRequest], Launch]
    # What of the broker's environment it may see beside what everybody may.
    environment: tuple[str, ...]


AGENTS = {
    "codex": Agent(codex.launch, codex.ENVIRONMENT),
    "claude": Agent(claude.launch, claude.ENVIRONMENT),
    "gemini": Agent(gemini.launch, gemini.ENVIRONMENT),
    "opencode": Agent(opencode.launch, opencode.ENVIRONMENT),
    "command": Agent(command.launch, command.ENVIRONMENT),
}


def launch_for(request: LaunchRequest) -> Launch:
    """The argument list, environment and files of a reviewer; every value that goes into them is looked at first."""
    if request.model:
        refuse_unsafe("model", request.model, "model")
    launch = with_own_command(request, AGENTS[request.agent].launch(request))
    return through_wsl(launch, request.wsl_distro) if request.wsl_distro else launch
