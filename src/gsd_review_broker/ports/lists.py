"""What lists, the feed and the audit can be asked for, and the columns that they show."""

from dataclasses import dataclass

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.words import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewFilter:
    status: Status | None = None
    category: str | None = None
    project: str | None = None
    phase: str | None = None
    plan: str | None = None
    proposer_id: str | None = None
    parent_id: str | None = None
    needs_human: bool | None = None
    # Leave out closed reviews.
    only_live: bool = False
    # Leave out reviews that this reviewer may not claim now.
    claimable_by: Identity | None = None
    claimable_at: Milliseconds | None = None
    # Leave out reviews that the pool holds back: reviewers failed on them lately, or so often that a person was asked.
    for_pool: bool = False


# Where a page of a list ends: the priority's rank, the creation time, the id.
ListPosition = tuple[int, int, str]
# Where a page of the feed ends: the last update, the id.
FeedPosition = tuple[int, str]
# The columns that lists and the audit show.
SUMMARY = (
    *("id", "status", "version", "revision", "round", "intent", "agent_type", "agent_role", "phase", "plan", "task"),
    *("category", "priority", "project", "proposer_id", "parent_id", "has_diff", "claimed_by", "verdict"),
    *("open_finding_count", "counter_patch_status", "needs_human", "created_at", "updated_at"),
)
FEED = (*SUMMARY, "message_count", "last_message_at", "last_message_preview")
EVENT_SUMMARY = ("id", "review_id", "event_type", "actor", "old_status", "new_status", "metadata", "timestamp")
