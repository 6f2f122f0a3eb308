"""Arguments that more than one front end takes."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from gsd_review_broker.domain import words
from gsd_review_broker.domain.words import values


def _integral(value: Any) -> Any:
    """JSON Schema calls 5.0 an integer, and some clients send it so; true is not one."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


Integer = Annotated[int, BeforeValidator(_integral)]

if TYPE_CHECKING:
    Category = str
    Disposition = str
    Role = str
    Severity = str
    Side = str
    Status = str
    Verdict = str
    VerdictOrSpelling = str
else:
    # Arguments are validated by these, and the tools' schemas show them.
    Category = Literal[tuple(values(words.Category))]
    Disposition = Literal[tuple(values(words.RESOLUTIONS))]
    Role = Literal[tuple(values(words.Role))]
    Severity = Literal[(*values(words.Severity), *words.SEVERITY_SPELLINGS)]
    Side = Literal[tuple(values(words.Side))]
    Status = Literal[tuple(values(words.Status))]
    Verdict = Literal[tuple(values(words.Verdict))]
    VerdictOrSpelling = Literal[(*values(words.Verdict), *words.VERDICT_SPELLINGS)]


class FindingArgument(BaseModel):
    """One inline remark, as a reviewer writes it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str
    body: str
    severity: Severity
    path: str | None = None
    line_start: Integer | None = None
    line_end: Integer | None = None
    side: Side = "new"
    suggestion: str | None = None
    confidence: float | None = None
