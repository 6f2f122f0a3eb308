"""The pool's part of the configuration: names, bounds, and what may be passed to a program."""

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gsd_review_broker.domain.words import AGENTS, DEFAULT_AGENT, OWN_COMMAND
from gsd_review_broker.errors import StartError
from gsd_review_broker.settings.agents import MODELS, Agent

Effort = Literal["low", "medium", "high"]

# Settings that a cloned repository must not decide: programs, and what they see.
USERS_OWN = ("allowed_models", "environment")
# This one is about claims of all kinds; setting it does not turn the pool on.
_NOT_THE_POOL = frozenset({"claim_timeout_seconds"})
_NAMES = {
    "model": re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}"),
    "distribution": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
}
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFUSED = "quotes, $, `, ;, &, |, <, >, *, ?, !, #, brackets or control characters"
_NO_PATH = re.compile(r"[\x00-\x1f\x7f`$;&|<>\"'*?!#()\[\]{}]")


_Refuse = Callable[[str, str], StartError]


def is_safe(what: Literal["model", "distribution", "path"], value: str) -> bool:
    """May it be passed to a program? Not if a shell or an option parser could misread it."""
    if what == "path":
        return bool(value.strip()) and not value.startswith("-") and _NO_PATH.search(value) is None
    return _NAMES[what].fullmatch(value) is not None


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _argument_list(command: list[str] | None) -> list[str] | None:
    if command is not None and (not command or not command[0].strip() or any("\0" in element for element in command)):
        raise ValueError("it must begin with a program, and hold no NUL")
    return command


class AgentSettings(_Section):
    model: str | None = None
    reasoning_effort: Effort | None = None
    command: Annotated[list[str] | None, AfterValidator(_argument_list)] = None


class PoolSettings(_Section):
    enabled: bool | None = None
    agent: Agent = DEFAULT_AGENT
    model: str | None = None
    reasoning_effort: Effort = "high"
    workspace_path: str | None = None
    workspace_wsl_path: str | None = None
    wsl_distro: str = "Ubuntu"
    max_pool_size: Annotated[int, Field(ge=1, le=10)] = 3
    scaling_ratio: Annotated[float, Field(ge=1)] = 3
    idle_timeout_seconds: Annotated[int, Field(ge=60)] = 300
    max_ttl_seconds: Annotated[int, Field(ge=300)] = 3600
    claim_timeout_seconds: Annotated[int, Field(ge=60)] = 1200
    spawn_cooldown_seconds: Annotated[int, Field(ge=1)] = 10
    background_check_interval_seconds: Annotated[int, Field(ge=5)] = 30
    kill_grace_seconds: Annotated[int, Field(ge=1, le=300)] = 10
    max_spawns_per_day: Annotated[int, Field(ge=1)] = 200
    max_tokens_per_day: Annotated[int | None, Field(ge=1)] = None
    prompt_template_path: str | None = None
    allowed_models: list[str] | dict[Agent, list[str]] = Field(default_factory=list[str])
    environment: list[str] = Field(default_factory=list[str])
    agents: dict[Agent, AgentSettings] = Field(default_factory=dict[Agent, AgentSettings])

    @property
    def is_on(self) -> bool:
        """Switched on explicitly, or by any other setting of it: nothing starts unasked."""
        if self.enabled is not None:
            return self.enabled
        return bool(self.model_fields_set - _NOT_THE_POOL)

    def settings_of(self, agent: Agent) -> AgentSettings:
        return self.agents.get(agent) or AgentSettings()

    def model_of(self, agent: Agent) -> str | None:
        """None: the agent uses its own default. `model` applies to the configured agent only."""
        return self.settings_of(agent).model or (self.model if agent == self.agent else None)

    def effort_of(self, agent: Agent) -> Effort:
        return self.settings_of(agent).reasoning_effort or self.reasoning_effort

    def models_for(self, agent: Agent) -> list[str]:
        further = self.allowed_models if isinstance(self.allowed_models, list) else self.allowed_models.get(agent, [])
        return [*MODELS.get(agent, ()), *further]


def refuse_in_project(path: Path, values: dict[str, Any], *, root: Path | None, users: Path) -> None:
    """What a project's file may not set. A cloned repository must not choose what runs."""
    pool = values.get("reviewer_pool")
    if not isinstance(pool, dict):
        return
    fields = cast("dict[str, Any]", pool)
    keys = [key for key in USERS_OWN if key in fields]
    agents = fields.get("agents")
    if isinstance(agents, dict):
        of_agents = cast("dict[str, Any]", agents)
        keys += [
            f"agents.{name}.command" for name, one in of_agents.items() if isinstance(one, dict) and "command" in one
        ]
    for key in keys:
        raise StartError(
            f"{path}: reviewer_pool.{key}: counts only in the user's file, {users}: a repository must not decide it."
        )
    template = fields.get("prompt_template_path")
    if isinstance(template, str) and not _is_inside(template, root):
        raise StartError(
            f"{path}: reviewer_pool.prompt_template_path: {template!r} lies outside the repository; such a file counts "
            f"only in the user's file, {users}."
        )
    workspace = fields.get("workspace_path")
    if isinstance(workspace, str) and not _is_inside(workspace, root):
        raise StartError(
            f"{path}: reviewer_pool.workspace_path: {workspace!r} lies outside the repository {root}; a project's own "
            "must lie inside it."
        )


def _is_inside(path: str, root: Path | None) -> bool:
    try:
        return root is not None and (root / Path(path).expanduser()).resolve().is_relative_to(root.resolve())
    except (ValueError, OSError, RuntimeError):
        return False


def check(pool: PoolSettings, origins: dict[str, str], *, root: Path | None, users: Collection[str]) -> None:
    """Checks beyond the types. Raises StartError with file, key and what is allowed. `users` are the origins of
    settings that the user chose."""

    def origin(key: str) -> str:
        return origins.get(f"reviewer_pool.{key}") or origins.get("reviewer_pool", "default")

    def refuse(key: str, why: str) -> StartError:
        return StartError(f"{origin(key)}: reviewer_pool.{key}: {why}")

    _check_names(pool, refuse)
    for agent in AGENTS:
        key = f"agents.{agent}.model" if pool.settings_of(agent).model else "model"
        problem = _about_model(pool, agent, is_users_own=origin(key) in users)
        if problem:
            raise refuse(key, problem)
    for key in ("workspace_path", "workspace_wsl_path", "prompt_template_path"):
        value = getattr(pool, key)
        if value is not None and not is_safe("path", value):
            raise refuse(
                key, f"{value!r} is not a path that can be passed to a program; it must not contain {_REFUSED}"
            )
    if pool.is_on:
        _check_what_is_used(pool, refuse, root)


def _check_names(pool: PoolSettings, refuse: _Refuse) -> None:
    if not is_safe("distribution", pool.wsl_distro):
        raise refuse(
            "wsl_distro", f"{pool.wsl_distro!r} is not a distribution name; allowed are letters, digits, . _ -"
        )
    for name in pool.environment:
        if not _VARIABLE_NAME.fullmatch(name):
            raise refuse("environment", f"{name!r} is not a variable name; allowed are letters, digits and _")


def _about_model(pool: PoolSettings, agent: Agent, *, is_users_own: bool) -> str | None:
    model = pool.model_of(agent)
    if model is None:
        return None
    if not is_safe("model", model):
        return f"{model!r} is not a model name; allowed are letters, digits and . _ : / @ + -, not a dash first"
    allowed = pool.models_for(agent)
    if not is_users_own and agent != OWN_COMMAND and model not in allowed:
        names = ", ".join(allowed)
        return (
            f"{model!r} is not allowed for {agent} in a project's file; allowed are {names}; allowed_models in the "
            "user's file adds to them"
        )
    return None


def _check_what_is_used(pool: PoolSettings, refuse: _Refuse, root: Path | None) -> None:
    if pool.agent == OWN_COMMAND and pool.settings_of(OWN_COMMAND).command is None:
        raise refuse(
            "agent", "'command' needs reviewer_pool.agents.command.command, a list of arguments, in the user's file"
        )
    if pool.workspace_path is not None and not resolved(pool.workspace_path, root).is_dir():
        raise refuse("workspace_path", f"{pool.workspace_path!r} is not a folder")
    if pool.prompt_template_path is not None:
        try:
            resolved(pool.prompt_template_path, root).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise refuse("prompt_template_path", f"{pool.prompt_template_path!r} cannot be read: {error}") from error


def resolved(path: str, root: Path | None) -> Path:
    """A relative path is relative to the repository."""
    return ((root or Path.home()) / Path(path).expanduser()).resolve()
