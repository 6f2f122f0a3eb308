"""What shows how it is going; nothing here writes."""

from gsd_review_broker.mcp.arguments import Integer
from gsd_review_broker.mcp.registry import Audience, Call, Registry
from gsd_review_broker.service.results import AuditLog, BrokerStatus, Timeline

TOOLS = Registry()


@TOOLS.tool(Audience.OBSERVER, reads=True)
async def get_audit_log(
    call: Call, review_id: str | None = None, after: Integer | None = None, limit: Integer | None = None
) -> AuditLog:
    """Every event in the order it was committed, of one review or of all. Pass the last id (next_cursor)
    as after to read on."""
    return await call.broker.insight.audit_log(review_id=review_id, after=after, limit=limit)


@TOOLS.tool(Audience.OBSERVER, reads=True)
async def get_review_timeline(call: Call, review_id: str) -> Timeline:
    """One review's story from proposal to end. Long texts are shortened here; get_audit_log has them whole."""
    return await call.broker.insight.timeline(review_id)


@TOOLS.tool(Audience.OBSERVER, reads=True)
async def broker_status(call: Call) -> BrokerStatus:
    """Is the broker well: its version, what it serves, what waits, who reviews."""
    return await call.broker.insight.broker_status()
