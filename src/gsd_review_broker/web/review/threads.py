"""The threads of each line: findings and messages, with their answers."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gsd_review_broker.domain.model import Finding, Message, Review
from gsd_review_broker.domain.words import Anchor, Disposition, Role, Side
from gsd_review_broker.web.review.places import MessagePlaces, side_of

FINDING_KEY = "finding_id"


@dataclass(slots=True)
class Thread:
    name: str
    finding: Finding | None
    messages: list[Message] = field(default_factory=list[Message])
    path: str | None = None
    side: Side = Side.NEW
    line: int | None = None
    is_outdated: bool = False

    @property
    def is_placed(self) -> bool:
        return self.path is not None and self.line is not None and not self.is_outdated

    @property
    def is_settled(self) -> bool:
        return self.finding is not None and self.finding.disposition is not Disposition.OPEN

    @property
    def reply_to(self) -> int | None:
        return self.messages[0].id if self.messages and self.finding is None else None


def threads_of(
    review: Review, findings: Iterable[Finding], messages: Iterable[Message], places: MessagePlaces
) -> list[Thread]:
    """Findings first, in the order in which reviewers gave them, then conversations in the order they began."""
    by_finding = {finding.id: _of_finding(finding) for finding in findings}
    by_message: dict[int, Thread] = {}
    begun: list[Thread] = []
    for message in messages:
        thread = _answered(message, by_finding, by_message)
        if thread is None:
            thread = _of_message(review, message, places)
            begun.append(thread)
        thread.messages.append(message)
        by_message[message.id or 0] = thread
    return [*by_finding.values(), *begun]


def _answered(message: Message, by_finding: dict[str, Thread], by_message: dict[int, Thread]) -> Thread | None:
    about = (message.metadata or {}).get(FINDING_KEY)
    if isinstance(about, str) and about in by_finding:
        return by_finding[about]
    return by_message.get(message.in_reply_to or 0)


def _of_finding(finding: Finding) -> Thread:
    return Thread(
        name=finding.id,
        finding=finding,
        path=finding.path,
        side=finding.side,
        line=finding.line_end or finding.line_start,
        is_outdated=finding.anchor is not Anchor.ANCHORED,
    )


def _of_message(review: Review, message: Message, places: MessagePlaces) -> Thread:
    """A message refers to a line of the revision of its time; `places` says where that line is now."""
    place = places.get(message.id or 0)
    is_there = message.round == review.round if place is None else place.line is not None
    return Thread(
        name=f"m{message.id}",
        finding=None,
        path=place.path if place else message.path,
        side=side_of(message),
        line=place.line if place and place.line else message.line,
        is_outdated=message.path is not None and not is_there,
    )


def role_of(review: Review, person: str) -> Role:
    """A person speaks for their own side; otherwise as a reviewer."""
    return Role.PROPOSER if person == review.proposer else Role.REVIEWER
