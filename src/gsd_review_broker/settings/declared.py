"""Every setting with its type and its default, as one schema."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gsd_review_broker import LOOPBACK
from gsd_review_broker.domain.gate.policy import DEFAULT_EXEMPT
from gsd_review_broker.domain.model import ApprovalPolicy, Limits, Policy
from gsd_review_broker.domain.words import Fence
from gsd_review_broker.settings.lists import AbsoluteFolders, Addresses, HostNames
from gsd_review_broker.settings.locations import DEFAULT_PORT
from gsd_review_broker.settings.pool import PoolSettings

Bytes = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitSettings(_Section):
    body_bytes: Bytes = 8 * 1024 * 1024
    diff_bytes: Bytes = 2 * 1024 * 1024
    diff_files: Annotated[int, Field(ge=1)] = 500
    unpacked_bytes: Bytes = 64 * 1024 * 1024
    text_bytes: Bytes = 64 * 1024
    intent_bytes: Bytes = 4 * 1024
    findings: Annotated[int, Field(ge=1)] = 500
    revisions: Annotated[int, Field(ge=1)] = 200


class GateSettings(_Section):
    """The gate merges the user's and the project's values itself: the stricter value applies (settings/gate.py)."""

    mode: Literal["off", "warn", "block"] = "warn"
    branches: list[str] = Field(default_factory=list[str])
    exempt_paths: list[str] = Field(default_factory=lambda: list(DEFAULT_EXEMPT))
    human_paths: list[str] = Field(default_factory=list[str])
    override: Literal["human", "nobody"] = "human"
    plan_first: bool = False


class RequiredGates(_Section):
    """The checkpoints of GSD's workflow that need a review."""

    discuss: bool = False
    plan: bool = True
    execute: bool = True
    verify: bool = True


class ReviewSettings(_Section):
    """What GSD's agents do about reviews; `tandem gsd rules` tells them."""

    enabled: bool = True
    fail_mode: Literal["closed", "open"] = "closed"
    required_gates: RequiredGates = Field(default_factory=RequiredGates)


class ApprovalSettings(_Section):
    required: Annotated[int, Field(ge=1, le=10)] = 1
    distinct_vendors: bool = False
    human_paths: list[str] = Field(default_factory=list[str])


class Settings(_Section):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    db: str | None = None
    # PostgreSQL only: where to listen for other brokers' commits, if `db` is a connection pooler.
    db_listen: str | None = None
    # PostgreSQL only: tells brokers apart that serve the same from one machine.
    instance: Annotated[str, Field(pattern=r"^[\w.-]{0,64}$")] = ""
    auth: Literal["off", "token"] = "off"
    allowed_hosts: HostNames = Field(default_factory=list[str])
    tls_certificate: str | None = None
    tls_key: str | None = None
    trusted_proxies: Addresses = Field(default_factory=list[str])
    fence: Literal["strict", "managed"] = "strict"
    max_rounds: Annotated[int, Field(ge=1)] = 5
    git_timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30
    allowed_roots: AbsoluteFolders = Field(default_factory=list[str])
    notify_command: list[str] = Field(default_factory=list[str])
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    log_file: str | None = None
    log_file_bytes: Annotated[int, Field(ge=10_000)] = 10 * 1024 * 1024
    log_file_count: Annotated[int, Field(ge=1, le=100)] = 5
    limits: LimitSettings = Field(default_factory=LimitSettings)
    reviewer_pool: PoolSettings = Field(default_factory=PoolSettings)
    gate: GateSettings = Field(default_factory=GateSettings)
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings)
    review: ReviewSettings = Field(default_factory=ReviewSettings)
    review_granularity: Literal["per_task", "per_plan"] = "per_task"
    execution_mode: Literal["blocking", "optimistic"] = "blocking"

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK

    def policy(self) -> Policy:
        limits = self.limits
        return Policy(
            claim_timeout=self.reviewer_pool.claim_timeout_seconds * 1000,
            max_rounds=self.max_rounds,
            fence=Fence(self.fence),
            approvals=ApprovalPolicy(
                required=self.approvals.required,
                distinct_vendors=self.approvals.distinct_vendors,
                human_paths=tuple(self.approvals.human_paths),
            ),
            limits=Limits(
                body=limits.body_bytes,
                diff=limits.diff_bytes,
                diff_files=limits.diff_files,
                unpacked=limits.unpacked_bytes,
                text=limits.text_bytes,
                intent=limits.intent_bytes,
                findings=limits.findings,
                revisions=limits.revisions,
            ),
        )
