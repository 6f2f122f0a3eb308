"""What the proposer calls."""

from typing import Annotated

from pydantic import Field

from gsd_review_broker.domain import model, words
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.mcp.arguments import Key, Label
from gsd_review_broker.mcp.registry import Registry, ToolCall
from gsd_review_broker.service.commands.proposals import NewProposal
from gsd_review_broker.service.validation import Category, Role
from gsd_review_broker.service.wire.content import CreatedReview
from gsd_review_broker.service.wire.reviews import Closed, ReviewStatus

TOOLS = Registry()


@TOOLS.tool(Audience.PROPOSER, repeatable=False)
async def create_review(
    call: ToolCall,
    intent: str,
    agent_type: str,
    agent_role: Role,
    phase: Label,
    plan: Label | None = None,
    task: Label | None = None,
    category: Category | None = None,
    description: str | None = None,
    diff: Annotated[str | None, Field(description="one unified diff")] = None,
    review_id: Annotated[str | None, Field(description="revise this one")] = None,
    project: str | None = None,
    workspace: str | None = None,
    proposer_id: str | None = None,
    parent_id: str | None = None,
    skip_diff_validation: Annotated[bool, Field(description="the change is already in the tree")] = False,
    idempotency_key: Key = None,
) -> CreatedReview:
    """Propose a change before you commit it: what you intend, why, and the diff. Then call
    get_review_status(wait=true) until there is a verdict. After changes_requested, call this again with
    review_id and the whole new content. A proposal under review cannot be swapped: close_review it and
    create another with parent_id."""
    origin = model.Origin(
        agent_type=agent_type,
        agent_role=words.Role(agent_role),
        phase=phase,
        plan=plan,
        task=task,
        category=words.Category(category) if category else None,
        project=project,
        workspace=workspace,
        proposer_id=model.Identity(proposer_id) if proposer_id is not None else None,
        parent_id=model.ReviewId(parent_id) if parent_id is not None else None,
    )
    proposal = NewProposal(
        origin=origin, intent=intent, description=description, diff=diff, skip_diff_validation=skip_diff_validation
    )
    if review_id is not None:
        return await call.broker.proposals.revise(call.caller, review_id, proposal, repeat=call.repeat)
    return await call.broker.proposals.create(call.caller, proposal, repeat=call.repeat)


@TOOLS.tool(Audience.PROPOSER)
async def accept_counter_patch(
    call: ToolCall, review_id: str, proposer_id: str | None = None, idempotency_key: Key = None
) -> ReviewStatus:
    """Accept the reviewer's counter_patch (read it with get_proposal) as your newest revision. It is judged again:
    wait with get_review_status."""
    return await call.broker.counter_patches.accept(call.caller, review_id, proposer_id=proposer_id, repeat=call.repeat)


@TOOLS.tool(Audience.PROPOSER)
async def reject_counter_patch(
    call: ToolCall,
    review_id: str,
    reason: str | None = None,
    proposer_id: str | None = None,
    idempotency_key: Key = None,
) -> ReviewStatus:
    """Reject the open counter_patch and say why; your own proposal stays."""
    return await call.broker.counter_patches.reject(
        call.caller, review_id, reason=reason, proposer_id=proposer_id, repeat=call.repeat
    )


@TOOLS.tool(Audience.PROPOSER)
async def close_review(
    call: ToolCall,
    review_id: str,
    closer_role: Role = "proposer",
    reason: str | None = None,
    proposer_id: str | None = None,
    idempotency_key: Key = None,
) -> Closed:
    """Close a review: after an approval once the change has landed, after changes_requested to give up,
    before a verdict to withdraw it. Final; a follow-up is a new create_review with parent_id."""
    return await call.broker.proposals.close(
        call.caller,
        review_id,
        closer_role=words.Role(closer_role),
        reason=reason,
        proposer_id=proposer_id,
        repeat=call.repeat,
    )
