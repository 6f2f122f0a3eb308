"""The types of arguments that several tools share."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gsd_review_broker.service.wire.arguments import FindingArgument, Integer

# Re-exported for the tools.
__all__ = ["FindingArgument", "Integer"]


def _number_as_text(value: Any) -> Any:
    """Phases are often numbers, and models then send 1 or 2.1 without quotes; true is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value) if math.isfinite(value) else value


Status = Literal["pending", "claimed", "in_review", "approved", "changes_requested", "closed"]
Category = Literal["plan_review", "code_change", "verification", "handoff"]
Role = Literal["proposer", "reviewer"]
Verdict = Literal["approved", "changes_requested", "comment", "approve", "request_changes"]
Since = Annotated[Integer | None, Field(description="the last version you know")]
Key = str | None
Label = Annotated[str, BeforeValidator(_number_as_text)]
Disposition = Literal["fixed", "rejected", "deferred"]
