"""A few words for a status line: what waits for a reviewer, what was answered."""

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import Status
from gsd_review_broker.errors import BrokerError, StartError

# In the order of what the proposer has to do first.
_WORDS = {
    Status.CHANGES_REQUESTED: "to fix",
    Status.APPROVED: "approved",
    Status.IN_REVIEW: "in review",
    Status.CLAIMED: "in review",
    Status.PENDING: "waiting",
}


def show_statusline(context: Context) -> int:
    try:
        counts: Json | None = context.ask("get_review_stats")["by_status"]
    except (BrokerError, StartError, OSError):
        counts = None
    words = _fragment(counts)
    context.answer({"text": words, "by_status": counts}, words)
    return Exit.DONE


def _fragment(counts: Json | None) -> str:
    if counts is None:
        return "tandem: no broker"
    numbers: dict[str, int] = {}
    for status, word in _WORDS.items():
        numbers[word] = numbers.get(word, 0) + counts.get(status, 0)
    parts = [f"{number} {word}" for word, number in numbers.items() if number]
    return f"tandem: {', '.join(parts) or 'no open review'}"
