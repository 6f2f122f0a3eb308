"""The programs that the pool can start, one module for each, written after tests with the real program.

A module is named after its agent in `domain/words.py` and exports what `AgentModule` names. A `Launch` says how a
reviewer is started: nothing in it goes through a shell, and nothing is taken from a proposal. A `Login` is only a hint
for people: a login may also be kept where it cannot be seen, for example in a keychain.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, cast

from gsd_review_broker.domain.model import Identity
from gsd_review_broker.domain.text import hidden_in
from gsd_review_broker.domain.words import OWN_COMMAND, PROGRAMS
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.pool.output import AgentReport, Event, EventReader, Spending
from gsd_review_broker.settings.schema import is_safe

# Amazon's: for models on Bedrock.
AWS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoginFile:
    """A file in the folder that a variable names, or else in a folder below the home."""

    variable: str
    folder: str
    name: str
    # It shows a login only if one of these words is in it.
    holding: tuple[str, ...] = ()

    def is_in(self, environment: Mapping[str, str]) -> bool:
        try:
            text = self.path(environment).read_text("utf-8", "replace")
        except OSError:
            return False
        return not self.holding or any(word in text for word in self.holding)

    def path(self, environment: Mapping[str, str]) -> Path:
        chosen = environment.get(self.variable)
        return (Path(chosen) if chosen else home_in(environment) / self.folder) / self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    # Any of them is enough.
    variables: tuple[str, ...]
    files: tuple[LoginFile, ...]
    # What to do if there is none.
    advice: str
    # On macOS it keeps its login where other programs cannot look.
    in_keychain: bool = False

    def seen(self, environment: Mapping[str, str]) -> str | None:
        """Return what logs it in: a variable's name or a file's path."""
        for name in self.variables:
            if environment.get(name):
                return name
        return next((str(file.path(environment)) for file in self.files if file.is_in(environment)), None)


def home_in(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or environment.get("USERPROFILE") or Path.home())


SERVER = "gsdreview"
TOOL_TIMEOUT_SECONDS = 120
_VARIABLE = re.compile(r"\{(workspace|model|broker_url|reviewer_id|project|project_clause|agent|severities)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRequest:
    """A reviewer that is to be started."""

    agent: str
    reviewer_id: Identity
    broker_url: str
    token: str
    model: str | None
    effort: str
    workspace: str
    # Its working folder: ours, empty, and never the tree that may hold what is proposed.
    scratch: str
    project: str | None = None
    # The user's own argument list instead of the agent's.
    command: tuple[str, ...] | None = None
    wsl_distro: str | None = None
    # The broker's environment, and the names in it that this agent may see.
    inherited: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    passed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    # In addition to what it inherits.
    environment: dict[str, str] = field(default_factory=dict[str, str])
    # In its scratch folder; only its owner can read them.
    files: dict[str, str] = field(default_factory=dict[str, str])


def refuse_unsafe(name: str, value: str, what: Literal["model", "distribution", "path"]) -> str:
    if is_safe(what, value):
        return value
    raise BrokerError(
        Code.INVALID_ARGUMENT,
        f"{name}: {value!r} is not a {what} that can be passed to a program",
        "Give it without quotes, spaces in front, dashes in front, or characters that mean something to a shell.",
    )


def refuse_unprintable(request: LaunchRequest) -> None:
    """Refuse a value that starts a new line: each goes into a prompt, an argument list or an environment."""
    for name, value in variables(request).items():
        if hidden_in(value):
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"{name}: {value!r} holds a line break or another character that cannot be seen",
                "Rename it: it would be written into a reviewer's prompt.",
            )


def filled(text: str, values: Mapping[str, str]) -> str:
    """Fill in each variable once: filled-in text is not expanded again."""
    return _VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)


def variables(request: LaunchRequest) -> dict[str, str]:
    return {
        "workspace": request.workspace,
        "model": request.model or "",
        "broker_url": request.broker_url,
        "reviewer_id": request.reviewer_id,
        "project": request.project or "",
        "agent": request.agent,
    }


def with_own_command(request: LaunchRequest, launch: Launch) -> Launch:
    """Use the user's argument list, filled in element by element; the agent's environment and files stay."""
    if request.command is None:
        return launch
    values = variables(request)
    return replace(launch, argv=tuple(filled(element, values) for element in request.command))


def through_wsl(launch: Launch, distribution: str) -> Launch:
    """Run the agent in WSL, on Windows. Its shell parses the line once more, so each element is quoted for it."""
    quoted = (shlex.quote(element) for element in launch.argv)
    return replace(launch, argv=("wsl", "-d", refuse_unsafe("wsl_distro", distribution, "distribution"), "--", *quoted))


class AgentModule(Protocol):
    @property
    def ENVIRONMENT(self) -> tuple[str, ...]:  # noqa: N802 - a constant of the module
        """Variables of the broker's environment that it may see, besides those that every program may see."""
        ...

    @property
    def LOGIN(self) -> Login | None:  # noqa: N802 - a constant of the module
        """Say how it is logged in; None for a program that the broker does not know."""
        ...

    def launch(self, request: LaunchRequest) -> Launch: ...

    def read_event(self, event: Event, spending: Spending) -> AgentReport | None:
        """Read one line of its output; None for an event that it does not have."""
        ...


@cache
def module_of(agent: str) -> AgentModule:
    return cast("AgentModule", import_module(f"{__name__}.{agent.replace('-', '_')}"))


def readers_of(agent: str) -> tuple[EventReader, ...]:
    """Return every agent's reader for a program of the user's, which may start any of them."""
    names = PROGRAMS if agent == OWN_COMMAND else (agent,)
    return tuple(module_of(name).read_event for name in names)


def launch_for(request: LaunchRequest) -> Launch:
    """Return the argument list, environment and files of a reviewer, after a check of every value in them."""
    refuse_unprintable(request)
    if request.model:
        refuse_unsafe("model", request.model, "model")
    launch = with_own_command(request, module_of(request.agent).launch(request))
    return through_wsl(launch, request.wsl_distro) if request.wsl_distro else launch
