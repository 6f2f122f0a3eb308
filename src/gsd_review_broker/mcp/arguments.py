"""The types of arguments that several tools share."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field


def _integral(value: Any) -> Any:
    """JSON Schema calls 5.0 an integer, and some clients send it so; true is none."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_integral)]
Status = Literal["pending", "claimed", "in_review", "approved", "changes_requested", "closed"]
Category = Literal["plan_review", "code_change", "verification", "handoff"]
Role = Literal["proposer", "reviewer"]
Verdict = Literal["approved", "changes_requested", "comment", "approve", "request_changes"]
Since = Annotated[Integer | None, Field(description="the last version you know")]
Key = str | None
