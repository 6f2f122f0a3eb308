"""Every setting, declared once: its type, its default, its bounds, who may set it, and one line about it.

The files, the environment, `tandem config`, the checks of a project's file and the table in docs/configuration.md are
derived from this. A setting without an owner (`WhoMaySet`) cannot be declared: the import fails. The length is that of
the list of settings.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from gsd_review_broker import LOOPBACK
from gsd_review_broker.domain.gate.policy import DEFAULT_EXEMPT, DEFAULT_MODE, Mode, Override
from gsd_review_broker.domain.model import ApprovalPolicy, Limits, Policy
from gsd_review_broker.domain.words import DEFAULT_AGENT, OWN_COMMAND, Fence, either
from gsd_review_broker.settings.locations import DEFAULT_PORT
from gsd_review_broker.settings.names import Agent
from gsd_review_broker.settings.owners import (
    AllowedModel,
    AtLeast,
    AtMost,
    Inside,
    InsideUntracked,
    Merged,
    Shared,
    Strict,
    UsersOwn,
    WhoMaySet,
)

VARIABLE_PREFIX = "BROKER_"


@dataclass(frozen=True, slots=True)
class Feature:
    """A mistake in these settings turns something off, and the broker starts."""

    instead: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A mistake in one feature's settings: the feature is off, the broker starts, and users see this."""

    # What does not work because of it: a setting's name, or the file as a whole.
    feature: str
    message: str
    # What to do about it: a command, or a sentence.
    fix: str


# Looked for when they are shown: some appear while the broker runs.
Problems = Callable[[], Sequence[Problem]]


@dataclass(frozen=True, slots=True)
class Separated:
    """How the environment spells a list. Other lists cannot be set there."""

    separator: str = ","


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_kwargs: Any) -> None:
        for name, field in cls.model_fields.items():
            if inner_section(field) is None and owner(field) is None:
                raise TypeError(f"{cls.__name__}.{name}: declare who may set it")


def inner_section(field: FieldInfo) -> type[Section] | None:
    """Return the section that a field is, or that each value of a dictionary is."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None


def is_section(field: FieldInfo) -> bool:
    return field.annotation == inner_section(field)


def owner(field: FieldInfo) -> WhoMaySet | None:
    return next((each for each in field.metadata if isinstance(each, WhoMaySet)), None)


def _each(check: Callable[[str], bool], kind: str) -> AfterValidator:
    """Refuse a value that could never match: otherwise the broker would refuse callers without saying why."""

    def checked(values: list[str]) -> list[str]:
        # A variable of the environment may be empty.
        values = [value.strip() for value in values if value.strip()]
        for value in values:
            if not check(value):
                raise ValueError(f"{value!r} is not {kind}")
        return values

    return AfterValidator(checked)


def _is_network(address: str) -> bool:
    try:
        ipaddress.ip_network(address)
    except ValueError:
        return False
    return True


_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?", re.ASCII)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMES = {
    "model": re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}"),
    "distribution": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
}
_ALLOWED = {
    "model": "a model name; allowed are letters, digits and . _ : / @ + -, not a dash first",
    "distribution": "a distribution name; allowed are letters, digits, . _ -",
    "path": "a path that can be passed to a program; it must not contain quotes, $, `, ;, &, |, <, >, *, ?, !, #, "
    "brackets or control characters",
}
_NO_PATH = re.compile(r"[\x00-\x1f\x7f`$;&|<>\"'*?!#()\[\]{}]")
_Argument = Literal["model", "distribution", "path"]


def is_safe(what: _Argument, value: str) -> bool:
    """May it be passed to a program? Not if a shell or an option parser could misread it."""
    if what == "path":
        return bool(value.strip()) and not value.startswith("-") and _NO_PATH.search(value) is None
    return _NAMES[what].fullmatch(value) is not None


def _safe(what: _Argument) -> AfterValidator:
    def checked(value: str) -> str:
        if not is_safe(what, value):
            raise ValueError(f"{value!r} is not {_ALLOWED[what]}")
        return value

    return AfterValidator(checked)


def _argument_list(command: list[str]) -> list[str]:
    if not command or not command[0].strip() or any("\0" in element for element in command):
        raise ValueError("it must begin with a program, and hold no NUL")
    return command


Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]
Names = Annotated[list[str], Separated()]
HostNames = Annotated[
    Names,
    _each(lambda name: bool(_HOST.fullmatch(name)), "a name such as reviews.example.org or reviews.example.org:8443"),
]
Networks = Annotated[Names, _each(_is_network, "an address or a network such as 10.0.0.5 or 10.0.0.0/24")]
AbsoluteFolders = Annotated[
    list[str],
    Separated(os.pathsep),
    _each(
        lambda folder: Path(folder).is_absolute() or folder.startswith("~"),
        "a whole path; where the broker was started must not matter",
    ),
]
VariableNames = Annotated[
    Names,
    _each(lambda name: bool(_VARIABLE_NAME.fullmatch(name)), "a variable name; allowed are letters, digits and _"),
]
SafePath = Annotated[str, _safe("path")]
Model = Annotated[str, _safe("model")]
Effort = Literal["low", "medium", "high"]


class LimitSettings(Section):
    body_bytes: Annotated[Bytes, AtMost("an HTTP body (larger: status 413)")] = 8 * 1024 * 1024
    diff_bytes: Annotated[Bytes, AtMost("a diff")] = 2 * 1024 * 1024
    diff_files: Annotated[Count, AtMost("files in a diff")] = 500
    unpacked_bytes: Annotated[Bytes, AtMost("what a diff's binary files unpack to, together")] = 64 * 1024 * 1024
    text_bytes: Annotated[Bytes, AtMost("a message, reason or description")] = 64 * 1024
    intent_bytes: Annotated[Bytes, AtMost("an intent")] = 4 * 1024
    findings: Annotated[Count, AtMost("findings in one verdict")] = 500
    revisions: Annotated[Count, AtMost("revisions of one review")] = 200


class AgentSettings(Section):
    model: Annotated[Model | None, AllowedModel("instead of the pool's model")] = None
    reasoning_effort: Annotated[Effort | None, Shared("instead of the pool's effort")] = None
    command: Annotated[
        Annotated[list[str], AfterValidator(_argument_list)] | None,
        UsersOwn("an argument list to start instead of the agent's own ([how](pool.md))"),
    ] = None


class PoolSettings(Section):
    enabled: Annotated[
        bool | None,
        Shared("if not set, the [pool](pool.md) is on as soon as any other setting of it but the claims' deadline is"),
    ] = None
    agent: Annotated[Agent, Shared("the agent that the pool starts")] = DEFAULT_AGENT
    model: Annotated[
        Model | None, AllowedModel("the model of that agent; without one, the agent uses its own default")
    ] = None
    reasoning_effort: Annotated[Effort, Shared("for Codex and Claude")] = "high"
    workspace_path: Annotated[SafePath | None, Inside("the folder that reviewers read", "the repository")] = None
    workspace_wsl_path: Annotated[SafePath | None, Shared("on Windows, the path of the same folder inside WSL")] = None
    wsl_distro: Annotated[
        Annotated[str, _safe("distribution")], Shared("on Windows, the distribution that has the agents")
    ] = "Ubuntu"
    max_pool_size: Annotated[int, Field(ge=1, le=10), AtMost("reviewers at once")] = 3
    scaling_ratio: Annotated[
        float, Field(ge=1), AtLeast("pending reviews for each reviewer before another is started")
    ] = 3
    idle_timeout_seconds: Annotated[int, Field(ge=60), AtMost("a reviewer without work is stopped after this")] = 300
    max_ttl_seconds: Annotated[
        int, Field(ge=300), AtMost("a reviewer is replaced after this, when it has finished its review")
    ] = 3600
    claim_timeout_seconds: Annotated[
        int, Field(ge=60), AtMost("a claim's deadline, of all reviewers; the claimant's activity extends it")
    ] = 1200
    spawn_cooldown_seconds: Annotated[
        int, Field(ge=1), AtLeast("between two starts, and the first pause after a failure")
    ] = 10
    background_check_interval_seconds: Annotated[
        int, Field(ge=5), AtLeast("how often the pool checks when nothing happens")
    ] = 30
    kill_grace_seconds: Annotated[int, Field(ge=1, le=300), AtMost("from TERM to KILL")] = 10
    max_spawns_per_day: Annotated[Count, AtMost("starts in 24 hours")] = 200
    max_tokens_per_day: Annotated[Count | None, AtMost("tokens in 24 hours, as far as the agents report them")] = None
    prompt_template_path: Annotated[
        SafePath | None, InsideUntracked("the prompt of a reviewer ([how](pool.md))", "the default one")
    ] = None
    allowed_models: Annotated[
        list[str] | dict[Agent, list[str]],
        Separated(),
        UsersOwn("models that a project's file may name: a list, or a list for each agent"),
    ] = []
    environment: Annotated[VariableNames, UsersOwn("names of further variables that reviewers get")] = []
    agents: dict[Agent, AgentSettings] = {}

    @property
    def is_on(self) -> bool:
        """Switched on explicitly, or by any other setting of it: nothing starts unasked."""
        if self.enabled is not None:
            return self.enabled
        # This one is about claims of all kinds.
        return bool(self.model_fields_set - {"claim_timeout_seconds"})

    def settings_of(self, agent: Agent) -> AgentSettings:
        return self.agents.get(agent) or AgentSettings()

    def model_of(self, agent: Agent) -> str | None:
        """Return None if the agent uses its own default. `model` applies to the configured agent only."""
        return self.settings_of(agent).model or (self.model if agent == self.agent else None)

    def effort_of(self, agent: Agent) -> Effort:
        return self.settings_of(agent).reasoning_effort or self.reasoning_effort

    def models_for(self, agent: Agent) -> list[str] | None:
        """Return the models that a project's file may name; None for any, which is the user's own command."""
        if agent == OWN_COMMAND:
            return None
        return self.allowed_models if isinstance(self.allowed_models, list) else self.allowed_models.get(agent, [])


class GateSettings(Section):
    mode: Annotated[Mode, Merged("the [gate](gate.md), once installed")] = DEFAULT_MODE
    branches: Annotated[Names, Merged("globs of branches that the gate guards", "every local branch")] = []
    exempt_paths: Annotated[Names, Merged("paths that need no approval, in gitignore syntax")] = list(DEFAULT_EXEMPT)
    human_paths: Annotated[Names, Merged("paths that need a person's approval, in gitignore syntax")] = []
    override: Annotated[Override, Merged("who may override the gate")] = Override.HUMAN
    plan_first: Annotated[
        bool, Merged("code waits until the plans of GSD's current phase are approved ([how](gate.md#the-plan-first))")
    ] = False


class RequiredGates(Section):
    """The checkpoints of GSD's workflow that need a review."""

    discuss: Annotated[bool, Strict("needs an approval", strictest=True)] = False
    plan: Annotated[bool, Strict("needs an approval", strictest=True)] = True
    execute: Annotated[bool, Strict("needs an approval", strictest=True)] = True
    verify: Annotated[bool, Strict("needs an approval", strictest=True)] = True


class ReviewSettings(Section):
    """What GSD's agents do about reviews; `tandem gsd rules` tells them."""

    enabled: Annotated[bool, Strict("whether [GSD's agents](gsd.md#settings) propose at all", strictest=True)] = True
    fail_mode: Annotated[
        Literal["closed", "open"],
        Strict("what they do without a broker: stop, or commit and say so", strictest="closed"),
    ] = "closed"
    required_gates: RequiredGates = RequiredGates()


class ApprovalSettings(Section):
    required: Annotated[
        int,
        Field(ge=1, le=10),
        UsersOwn("how many reviewers approve before a review is approved ([how](tokens.md#approval-policy))"),
    ] = 1
    distinct_vendors: Annotated[
        bool,
        UsersOwn(
            "those approvals come from programs of different vendors, or from people. The first word of a reviewer's "
            "name tells its vendor: claude, codex, gemini or gpt. The vendor of any other name is unknown, and its "
            "approval is not one of those"
        ),
    ] = False
    human_paths: Annotated[Names, UsersOwn("paths, in gitignore syntax, that need a person's approval too")] = []


class Settings(Section):
    host: Annotated[
        str,
        Shared(
            f"where to listen; an address other than {either(LOOPBACK)} is yours to choose, and needs "
            "`auth: token` ([how](tokens.md#other-machines))"
        ),
    ] = LOOPBACK[0]
    port: Annotated[
        int,
        Field(ge=0, le=65535),
        Shared(
            "0 takes a free port. If you set none, each project has a port of its own ([cli.md](cli.md#which-broker))"
        ),
    ] = DEFAULT_PORT
    db: Annotated[
        str | None,
        Shared(
            "the database file, or `postgresql://user@host/name` ([below](#postgresql)); a project's must be a file "
            "inside the repository",
            "see below",
        ),
    ] = None
    db_listen: Annotated[
        str | None, UsersOwn("PostgreSQL: the server's own address, if `db` is a connection pooler", "`db`")
    ] = None
    instance: Annotated[
        str,
        Field(pattern=r"^[\w.-]{0,64}$"),
        UsersOwn("PostgreSQL: a name for this broker, if another one on the same machine serves the same"),
    ] = ""
    auth: Annotated[
        Literal["off", "token"],
        UsersOwn("`off`: callers on this machine are trusted; `token`: every call needs a [token](tokens.md)"),
    ] = "off"
    allowed_hosts: Annotated[
        HostNames,
        UsersOwn("names by which clients may call the broker, besides its own addresses, such as reviews.example.org"),
    ] = []
    tls_certificate: Annotated[
        str | None, UsersOwn("a PEM file; with `tls_key` the broker speaks TLS at `host` and `port`")
    ] = None
    tls_key: Annotated[str | None, UsersOwn("a PEM file")] = None
    trusted_proxies: Annotated[
        Networks,
        UsersOwn("addresses or networks of proxies whose `X-Forwarded-Proto` and `X-Forwarded-For` are believed"),
    ] = []
    fence: Annotated[
        Fence,
        Strict(
            "`strict`: every verdict must name its claim; `managed`: only verdicts on claims of the pool must",
            strictest="strict",
        ),
    ] = Fence.STRICT
    max_rounds: Annotated[Count, AtMost("from this round on, the broker asks for a person")] = 5
    allowed_roots: Annotated[
        AbsoluteFolders, UsersOwn("folders, as whole paths, whose repositories may be a `workspace`")
    ] = []
    notify_command: Annotated[
        list[str],
        Feature("no program is run"),
        UsersOwn(
            "a program, as a list of words, which the broker runs for each new inbox entry and each verdict "
            "([how](dashboard.md#a-notification-program))"
        ),
    ] = []
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Shared("the least important lines that are written")
    ] = "info"
    log_format: Annotated[Literal["console", "json"], Shared("how they are written")] = "console"
    log_file: Annotated[str | None, UsersOwn("a file instead of standard error", "none")] = None
    limits: LimitSettings = LimitSettings()
    reviewer_pool: Annotated[PoolSettings, Feature("the pool is off")] = PoolSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    gate: Annotated[GateSettings, Feature("the gate blocks")] = GateSettings()
    # The default of each of these is the strictest, so a mistake never skips a review.
    review: Annotated[ReviewSettings, Feature("the default applies")] = ReviewSettings()
    review_granularity: Annotated[
        Literal["per_task", "per_plan"],
        Feature("the default applies"),
        Shared("GSD's agents propose each task, or each plan"),
    ] = "per_task"
    execution_mode: Annotated[
        Literal["blocking", "optimistic"],
        Feature("the default applies"),
        Strict("they wait for the verdict, or go on and take back what was refused", strictest="blocking"),
    ] = "blocking"

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK

    def policy(self) -> Policy:
        limits = {name.removesuffix("_bytes"): limit for name, limit in self.limits.model_dump().items()}
        return Policy(
            claim_timeout=self.reviewer_pool.claim_timeout_seconds * 1000,
            max_rounds=self.max_rounds,
            fence=self.fence,
            approvals=ApprovalPolicy(
                required=self.approvals.required,
                distinct_vendors=self.approvals.distinct_vendors,
                human_paths=tuple(self.approvals.human_paths),
            ),
            limits=Limits(**limits),
        )


def section_at(path: list[str]) -> type[Section]:
    """Find the section that a path of names leads to; a name that is not a section's is passed over."""
    section: type[Section] = Settings
    for name in path:
        # The name of an agent stands between two sections.
        field = section.model_fields.get(name)
        section = (inner_section(field) if field else None) or section
    return section


def typed(section: type[Section], name: str, value: Any) -> Any:
    """Return the value as the section takes it. Raises ValidationError."""
    return getattr(section.model_validate({name: value}), name)


def typed_or_default(section: type[Section], name: str, values: dict[str, Any]) -> Any:
    try:
        return typed(section, name, values[name])
    except (KeyError, ValidationError):
        return getattr(section(), name)


def resolved(path: str, root: Path | None) -> Path:
    """Return the whole path; a relative one is relative to the repository."""
    return ((root or Path.home()) / Path(path).expanduser()).resolve()


def section_values(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
