"""Who proposes, and who reviews: two clients of different vendors, or a client and a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gsd_review_broker.domain.words import VENDORS

PERSON = "you"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    proposer: str | None
    """None: no client is on this machine."""
    reviewer: str = PERSON


def every_pair(installed: Sequence[str]) -> list[Pair]:
    """The best first: another vendor's model makes other mistakes. A person can review in any case."""
    agents = [
        Pair(proposer=proposer, reviewer=reviewer)
        for proposer in installed
        for reviewer in installed
        if _vendor(proposer) != _vendor(reviewer)
    ]
    return [*agents, *(Pair(proposer=proposer) for proposer in installed)] or [Pair(proposer=None)]


def _vendor(client: str) -> str:
    """A client that can use any vendor's model is as good as another vendor here: nothing is approved by a pair."""
    return VENDORS.get(client) or client


def chosen_pair(pairs: Sequence[Pair], present: Pair | None, *, proposer: str | None, reviewer: str | None) -> Pair:
    """What the user named; else what is set up already; else the best. A named client need not be installed."""
    if present is not None:
        # The partner of whoever is named stays, unless it changes sides.
        proposer = proposer or (present.proposer if present.proposer != reviewer else None)
        reviewer = reviewer or (present.reviewer if present.reviewer != proposer else None)
    if proposer is None:
        fitting = (pair for pair in pairs if reviewer in {None, pair.reviewer})
        return next(fitting, Pair(proposer=None, reviewer=reviewer or PERSON))
    fitting = (pair for pair in pairs if pair.proposer == proposer and reviewer in {None, pair.reviewer})
    return next(fitting, Pair(proposer=proposer, reviewer=reviewer or PERSON))


def present_pair(roles: Mapping[str, str]) -> Pair | None:
    """What is set up in the project, by the role of each connected client."""
    proposer = next((name for name, role in roles.items() if role == "proposer"), None)
    reviewer = next((name for name, role in roles.items() if role == "reviewer"), PERSON)
    return Pair(proposer=proposer, reviewer=reviewer) if proposer else None


def left_out(present: Pair | None, new: Pair) -> list[str]:
    """The clients of the present pair that the new one does without. Other connected clients are the user's own."""
    members = (present.proposer, present.reviewer) if present else ()
    return [name for name in members if name and name not in {PERSON, new.proposer, new.reviewer}]
