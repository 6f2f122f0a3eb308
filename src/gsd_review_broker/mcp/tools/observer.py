"""What shows how it is going; nothing here writes."""

from gsd_review_broker.domain import words
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.mcp.registry import Registry, ToolCall
from gsd_review_broker.ports.store import ReviewFilter
from gsd_review_broker.service.validation import Category, Integer, Status
from gsd_review_broker.service.wire.broker import BrokerStatus
from gsd_review_broker.service.wire.reviews import ActivityFeed, AuditLog, Timeline
from gsd_review_broker.service.wire.statistics import ReviewStats

TOOLS = Registry()


@TOOLS.tool(Audience.OBSERVER, reads=True)
async def get_activity_feed(
    call: ToolCall,
    status: Status | None = None,
    category: Category | None = None,
    project: str | None = None,
    limit: Integer | None = None,
    cursor: str | None = None,
) -> ActivityFeed:
    """List reviews by their last update, each with its message count and the start of its last message. Pass
    next_cursor as cursor for the next page."""
    wanted = ReviewFilter(status=words.Status(status) if status else None, category=category, project=project)
    return await call.broker.review_queries.feed(wanted, limit=limit, cursor=cursor)


@TOOLS.tool(Audience.OBSERVER, reads=True)
async def get_review_stats(call: ToolCall, project: str | None = None) -> ReviewStats:
    """Get statistics: counts, approval rate (by last verdict), times to claim, verdict and close, rounds,
    and verdicts by reviewer and by pair. Null means no data."""
    return await call.broker.statistics.stats(project=project)


@TOOLS.tool(Audience.OBSERVER, reads=True)
async def get_audit_log(
    call: ToolCall, review_id: str | None = None, after: Integer | None = None, limit: Integer | None = None
) -> AuditLog:
    """List events in commit order, of one review or of all. Pass the last id (next_cursor) as after for the
    next page."""
    return await call.broker.review_queries.audit_log(review_id=review_id, after=after, limit=limit)


@TOOLS.tool(Audience.OBSERVER, reads=True)
async def get_review_timeline(call: ToolCall, review_id: str) -> Timeline:
    """Show the history of one review. Long texts are shortened; get_audit_log has them in full."""
    return await call.broker.review_queries.timeline(review_id)


@TOOLS.tool(Audience.OBSERVER, reads=True)
async def broker_status(call: ToolCall) -> BrokerStatus:
    """Show the broker's state: version, what it serves, waiting reviews, reviewers."""
    return await call.broker.review_queries.broker_status()
