"""The types of arguments that several tools share."""

from typing import Annotated, Literal

from pydantic import Field

from gsd_review_broker.service.wire.arguments import FindingArgument, Integer

__all__ = ["Category", "Disposition", "FindingArgument", "Integer", "Key", "Role", "Since", "Status", "Verdict"]

Status = Literal["pending", "claimed", "in_review", "approved", "changes_requested", "closed"]
Category = Literal["plan_review", "code_change", "verification", "handoff"]
Role = Literal["proposer", "reviewer"]
Verdict = Literal["approved", "changes_requested", "comment", "approve", "request_changes"]
Since = Annotated[Integer | None, Field(description="the last version you know")]
Key = str | None
Disposition = Literal["fixed", "rejected", "deferred"]
