"""What the default settings say, with changes: the domain's policies have no defaults of their own."""

from dataclasses import replace
from typing import Any

from gsd_review_broker.domain.gate.policy import GatePolicy, stricter
from gsd_review_broker.domain.model import ApprovalPolicy, Policy
from gsd_review_broker.pool.policy import PoolLimits
from gsd_review_broker.pool.supervisor import limits_of
from gsd_review_broker.settings.schema import PoolSettings, Settings


def review_policy(**changes: Any) -> Policy:
    return replace(Settings().policy(), **changes)


def approval_policy(**changes: Any) -> ApprovalPolicy:
    return replace(review_policy().approvals, **changes)


def gate_policy(**changes: Any) -> GatePolicy:
    return stricter()._replace(**changes)


def pool_limits(**changes: Any) -> PoolLimits:
    return replace(limits_of(PoolSettings()), **changes)
