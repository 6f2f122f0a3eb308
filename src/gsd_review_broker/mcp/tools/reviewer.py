"""What the reviewer calls."""

from typing import Annotated

from pydantic import Field

from gsd_review_broker.domain import words
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.mcp.arguments import Key
from gsd_review_broker.mcp.registry import Registry, ToolCall
from gsd_review_broker.service.commands.verdicts import NewVerdict
from gsd_review_broker.service.validation import Category, FindingArgument, Integer, VerdictOrSpelling
from gsd_review_broker.service.wire.reviews import AutoRejected, Claim, NotClaimed, Released, VerdictResult

TOOLS = Registry()


@TOOLS.tool(Audience.REVIEWER, repeatable=False)
async def claim_next(
    call: ToolCall,
    reviewer_id: str,
    category: Category | None = None,
    project: str | None = None,
    wait: bool = False,
    wait_seconds: float | None = None,
    idempotency_key: Key = None,
) -> Claim | NotClaimed:
    """Claim the first review that you may judge: critical first, then oldest. With wait=true it waits
    for one (25 s; claimed=false means: call again). One call at a time for each name; with a
    token, reviewer_id is the token's name. Next: get_proposal, then submit_verdict with the claim_generation."""
    return await call.broker.claims.claim_next(
        call.caller,
        reviewer_id,
        category=category,
        project=project,
        wait=wait,
        wait_seconds=wait_seconds,
        repeat=call.repeat,
    )


@TOOLS.tool(Audience.REVIEWER)
async def claim_review(
    call: ToolCall, review_id: str, reviewer_id: str, idempotency_key: Key = None
) -> Claim | AutoRejected:
    """Get the exclusive right to judge one review until claim_expires_at; your activity extends it.
    A diff that does not apply is rejected automatically (auto_rejected). offsets, if given, names the hunks of an older
    diff that land on other lines than they show. Next: get_proposal with
    caller_id=reviewer_id."""
    return await call.broker.claims.claim(call.caller, review_id, reviewer_id, repeat=call.repeat)


@TOOLS.tool(Audience.REVIEWER, repeatable=False)
async def submit_verdict(
    call: ToolCall,
    review_id: str,
    verdict: VerdictOrSpelling,
    reason: Annotated[str | None, Field(description="needed unless approved")] = None,
    reviewer_id: str | None = None,
    claim_generation: Annotated[Integer | None, Field(description="as your claim gave it")] = None,
    counter_patch: Annotated[str | None, Field(description="a diff you offer instead")] = None,
    findings: list[FindingArgument] | None = None,
    idempotency_key: Key = None,
) -> VerdictResult:
    """Judge what you claimed: approved (it may land as it is), changes_requested (say what and why) or
    comment (no verdict yet, you keep the claim). Pass the claim_generation of your claim; stale_claim
    means that you lost it. findings point at lines that the diff shows; a finding with the title and path of
    an earlier one is that one again. If the answer is pending with missing, your approval is kept and others are
    still needed: you are done."""
    new_verdict = NewVerdict(
        verdict=words.VERDICT_SPELLINGS.get(verdict) or words.Verdict(verdict),
        reason=reason,
        counter_patch=counter_patch,
        findings=findings or [],
    )
    return await call.broker.verdicts.give(
        call.caller,
        review_id,
        new_verdict,
        reviewer_id=reviewer_id,
        claim_generation=claim_generation,
        repeat=call.repeat,
    )


@TOOLS.tool(Audience.REVIEWER)
async def release_claim(
    call: ToolCall, review_id: str, claim_generation: Integer, idempotency_key: Key = None
) -> Released:
    """Give a claim back without a verdict, so that another reviewer can take it."""
    return await call.broker.claims.release(call.caller, review_id, claim_generation, repeat=call.repeat)
