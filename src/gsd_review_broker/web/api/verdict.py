"""The body of `POST /api/reviews/{id}/verdict`: a verdict together with its claim."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gsd_review_broker.domain.words import Verdict
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.commands.findings import new_finding
from gsd_review_broker.service.commands.verdicts import NewVerdict
from gsd_review_broker.service.validation import refuse_unstorable
from gsd_review_broker.service.wire import arguments
from gsd_review_broker.service.wire.arguments import FindingArgument, Integer


class VerdictRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    review_id: str
    reviewer_id: str
    verdict: arguments.Verdict
    reason: str | None = None
    counter_patch: str | None = None
    findings: list[FindingArgument] = Field(default_factory=list[FindingArgument])
    # What the person has read; compared if it is given.
    revision: Integer | None = None
    digest: str | None = None

    def new_verdict(self) -> NewVerdict:
        return NewVerdict(
            verdict=Verdict(self.verdict),
            reason=self.reason,
            counter_patch=self.counter_patch,
            findings=[new_finding(finding) for finding in self.findings],
        )


def verdict_of(fields: dict[str, Any]) -> VerdictRequest:
    try:
        request = VerdictRequest.model_validate(fields)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)[:5]
        named = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
        names = ", ".join(VerdictRequest.model_fields)
        raise BrokerError(Code.INVALID_ARGUMENT, named, f"A verdict takes {names}.") from error
    for name, value in fields.items():
        refuse_unstorable(name, value)
    return request
