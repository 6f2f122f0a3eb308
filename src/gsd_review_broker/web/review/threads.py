"""The threads of each line: findings and messages, with their answers.

A message on a line of an earlier revision is found again in the newest one by the text of the line, as findings are.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gsd_review_broker.domain.model import Finding, Message, Review, ReviewId
from gsd_review_broker.domain.patch.places import ShownLines
from gsd_review_broker.domain.words import Anchor, Disposition, Role, Side
from gsd_review_broker.service.queries.review_page import ReviewFacts, ReviewPageQueries

# Messages on revisions before these stay without a place: each revision is a diff to read.
_MOST_REVISIONS = 8
_MOST_KEPT = 64
FINDING_KEY = "finding_id"


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """`line` is None if the newest revision does not show the text any more."""

    path: str
    line: int | None


MessagePlaces = Mapping[int, MessagePlace]


class EarlierMessages:
    """Keeps its answers: neither revisions nor the messages on earlier ones ever change."""

    def __init__(self, pages: ReviewPageQueries) -> None:
        self._pages = pages
        self._kept: OrderedDict[tuple[ReviewId, int], MessagePlaces] = OrderedDict()

    async def places(self, facts: ReviewFacts) -> MessagePlaces:
        """By the number of the message; only of those on earlier revisions."""
        key = facts.review.id, facts.review.revision
        if key not in self._kept:
            self._kept[key] = await self._look(facts)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    async def _look(self, facts: ReviewFacts) -> MessagePlaces:
        by_revision: dict[int, list[Message]] = {}
        for message in facts.messages:
            number = _revision_of(message, facts)
            if message.path is not None and message.line is not None and number < facts.review.revision:
                by_revision.setdefault(number, []).append(message)
        latest = sorted(by_revision, reverse=True)[:_MOST_REVISIONS]
        if not latest:
            return {}
        diffs = {number: await self._pages.diff(facts.review.id, number) for number in [*latest, facts.review.revision]}
        newest = diffs.pop(facts.review.revision)
        return await asyncio.to_thread(_found_again, by_revision, diffs, newest)


def _revision_of(message: Message, facts: ReviewFacts) -> int:
    """The newest revision when the message was sent. A message of an earlier round is on an earlier revision."""
    latest = facts.review.revision - (message.round != facts.review.round)
    sent = (one.number for one in facts.revisions[:latest] if one.created_at <= message.created_at)
    return max(sent, default=1)


def _found_again(
    by_revision: Mapping[int, list[Message]], diffs: Mapping[int, bytes | None], newest: bytes | None
) -> MessagePlaces:
    places: dict[int, MessagePlace] = {}
    target = ShownLines(newest)
    for number, diff in diffs.items():
        shown = ShownLines(diff)
        for message in by_revision[number]:
            place = target.find_again(shown.place(message.path, message.line, message.line, side_of(message)))
            is_there = place.anchor is Anchor.ANCHORED
            places[message.id or 0] = MessagePlace(place.path or "", place.line_start if is_there else None)
    return places


def side_of(message: Message) -> Side:
    return Side.OLD if (message.metadata or {}).get("side") == Side.OLD else Side.NEW


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
