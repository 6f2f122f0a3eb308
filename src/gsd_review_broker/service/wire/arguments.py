"""Arguments that more than one front end takes."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _integral(value: Any) -> Any:
    """JSON Schema calls 5.0 an integer, and some clients send it so; true is not one."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


Integer = Annotated[int, BeforeValidator(_integral)]
Severity = Literal["critical", "high", "medium", "low", "P0", "P1", "P2", "P3", "blocker", "nit"]


class FindingArgument(BaseModel):
    """One inline remark, as a reviewer writes it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str
    body: str
    severity: Severity
    path: str | None = None
    line_start: Integer | None = None
    line_end: Integer | None = None
    side: Literal["old", "new"] = "new"
    suggestion: str | None = None
    confidence: float | None = None
