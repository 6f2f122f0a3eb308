"""Messages on lines of earlier revisions, in the newest one: found again by the text of the line, as findings are."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from gsd_review_broker.domain.model import Message, ReviewId
from gsd_review_broker.domain.patch import ShownLines
from gsd_review_broker.domain.words import Anchor, Side
from gsd_review_broker.service.queries.review_page import ReviewFacts, ReviewPageQueries

# Messages on revisions before these stay without a place: each revision is a diff to read.
_MOST_REVISIONS = 8
_MOST_KEPT = 64


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
