"""Every transition of a review, as pure functions: (review, command, now) -> Change, or an error.

They use no clock, no randomness and no storage. A status can change in no other way. Each Change carries its audit
events, so that no state is written without the event that explains it.
"""

from gsd_review_broker.domain.rules import pool
from gsd_review_broker.domain.rules.access import (
    AGENT_TYPE,
    Right,
    claim_refusal,
    refuse_other_names,
    refuse_without_right,
    resolving_refusal,
    side_refusal,
)
from gsd_review_broker.domain.rules.approvals import (
    NOTHING_YET,
    Standing,
    approvers_in,
    can_add_approval,
    missing,
    refuse_useless_approver,
)
from gsd_review_broker.domain.rules.claims import (
    AUTO_REJECTED,
    auto_reject,
    claim,
    deadline,
    is_unused,
    may_claim,
    put_off,
    reclaim,
    release,
    take_over,
)
from gsd_review_broker.domain.rules.convergence import call_human
from gsd_review_broker.domain.rules.discussion import (
    accept_counter_patch,
    reject_counter_patch,
    resolve_finding,
    send_message,
)
from gsd_review_broker.domain.rules.landing import record_landed
from gsd_review_broker.domain.rules.proposals import close, create, priority_of, revise
from gsd_review_broker.domain.rules.tokens import expiry, refuse_token_name
from gsd_review_broker.domain.rules.transitions import STEPS, Command, followed_by, possible_now
from gsd_review_broker.domain.rules.verdicts import (
    Judgement,
    Seen,
    give_verdict,
    refuse_incomplete,
    refuse_other_digest,
    refuse_other_revision,
    refuse_verdict,
    refused_verdict,
)

__all__ = [
    "AGENT_TYPE",
    "AUTO_REJECTED",
    "NOTHING_YET",
    "STEPS",
    "Command",
    "Judgement",
    "Right",
    "Seen",
    "Standing",
    "accept_counter_patch",
    "approvers_in",
    "auto_reject",
    "call_human",
    "can_add_approval",
    "claim",
    "claim_refusal",
    "close",
    "create",
    "deadline",
    "expiry",
    "followed_by",
    "give_verdict",
    "is_unused",
    "may_claim",
    "missing",
    "pool",
    "possible_now",
    "priority_of",
    "put_off",
    "reclaim",
    "record_landed",
    "refuse_incomplete",
    "refuse_other_digest",
    "refuse_other_names",
    "refuse_other_revision",
    "refuse_token_name",
    "refuse_useless_approver",
    "refuse_verdict",
    "refuse_without_right",
    "refused_verdict",
    "reject_counter_patch",
    "release",
    "resolve_finding",
    "resolving_refusal",
    "revise",
    "send_message",
    "side_refusal",
    "take_over",
]
