"""The pool of reviewers that the broker starts itself; shown on /mcp alone."""

from gsd_review_broker.mcp.arguments import Key
from gsd_review_broker.mcp.registry import Registry, ToolCall
from gsd_review_broker.service.wire.broker import KilledReviewer, ReviewerList, SpawnedReviewer
from gsd_review_broker.settings.names import Agent

TOOLS = Registry()


@TOOLS.tool(repeatable=False)
async def spawn_reviewer(
    call: ToolCall, agent: Agent | None = None, project: str | None = None, idempotency_key: Key = None
) -> SpawnedReviewer:
    """Start a reviewer now instead of waiting for the pool; it claims work by itself. agent: the configured
    one by default; project: it reviews only that one. Watch it with list_reviewers."""
    return await call.broker.pool.spawn(agent, project, repeat=call.repeat)


@TOOLS.tool()
async def kill_reviewer(
    call: ToolCall, reviewer_id: str, force: bool = False, idempotency_key: Key = None
) -> KilledReviewer:
    """Stop a reviewer that the broker started: it gets no new claim, finishes its review and is stopped. With
    force=true it is stopped at once, and its review is pending again."""
    return await call.broker.pool.kill(reviewer_id, force, repeat=call.repeat)


@TOOLS.tool(reads=True)
async def list_reviewers(call: ToolCall) -> ReviewerList:
    """List the pool's reviewers: running ones, then those stopped lately, with what each does and has done."""
    return await call.broker.pool.listed()
