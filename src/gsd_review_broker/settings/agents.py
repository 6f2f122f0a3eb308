"""The type of the names of programs that the pool starts."""

from typing import TYPE_CHECKING, Literal

from gsd_review_broker.domain.words import AGENTS

if TYPE_CHECKING:
    Agent = str
else:
    # Settings and tools validate by it, and their schemas show it.
    Agent = Literal[AGENTS]
