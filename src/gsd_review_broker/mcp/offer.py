"""What one endpoint offers, whoever carries it: the SDK or the lean path."""

from dataclasses import dataclass

from gsd_review_broker.mcp.lean import AnswerCall
from gsd_review_broker.mcp.registry import Tool


@dataclass(frozen=True, slots=True)
class Offer:
    info: dict[str, str]
    """How the server names itself."""
    instructions: str
    tools: dict[str, Tool]
    answer: AnswerCall
