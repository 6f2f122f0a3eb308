"""A review's conversation: its threads (findings and messages with their answers), and its events as sentences."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gsd_review_broker.domain.model import Finding, Message, Review, ReviewId
from gsd_review_broker.domain.patch.places import ShownLines
from gsd_review_broker.domain.words import Anchor, Disposition, Role, Side, Verdict
from gsd_review_broker.service.queries.review_page import ReviewFacts, ReviewPageQueries
from gsd_review_broker.service.wire.reviews import EventResult

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
        """Return the places of messages on earlier revisions, by the number of the message."""
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
    """Return the newest revision when the message was sent. A message of an earlier round is on an earlier one."""
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
    """Place a message on the line where the line of its revision is now, as `places` says."""
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
    """Return the proposer's role for the proposer, and the reviewer's for everyone else."""
    return Role.PROPOSER if person == review.proposer else Role.REVIEWER


_SENTENCES = {
    "review_created": "proposed it",
    "review_revised": "sent revision {revision}",
    "review_claimed": "claimed it",
    "review_auto_rejected": "returned it: the diff does not apply",
    "review_released": "gave the claim back",
    "review_reclaimed": "took the claim back",
    "verdict_comment": "commented",
    "verdict_refused": "was refused a verdict ({code})",
    "finding_resolved": "marked a finding {disposition}",
    "message_sent": "wrote",
    "counter_patch_offered": "offered a counter-patch",
    "counter_patch_accepted": "accepted the counter-patch: revision {revision}",
    "counter_patch_rejected": "rejected the counter-patch",
    "human_requested": "asked for a person",
    "human_cleared": "answered as a person",
    "review_closed": "closed it ({outcome})",
    "audit_checkpoint": "moved old reviews into an archive",
    "reviewer_spawned": "started a reviewer",
    "reviewer_drain_start": "is draining a reviewer",
    "reviewer_terminated": "stopped a reviewer",
    "gate_refused": "was refused by the gate",
    "gate_overridden": "went past the gate",
    "commit_landed": "saw it land as commit {commit}",
    "access_refused": "was refused access",
}
_VERDICTS: dict[str, str] = {Verdict.APPROVED: "approved it", Verdict.CHANGES_REQUESTED: "requested changes"}
_DETAILS = ("body_preview", "reason", "note", "title")


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    id: int
    actor: str
    sentence: str
    detail: str
    kind: str
    timestamp: str


@dataclass(slots=True)
class Round:
    number: int
    moments: list[TimelineEntry] = field(default_factory=list[TimelineEntry])


def rounds_of(events: Iterable[EventResult]) -> list[Round]:
    """Group the events into rounds, oldest first."""
    rounds: list[Round] = []
    for event in events:
        number = event["metadata"].get("round")
        current = rounds[-1].number if rounds else 1
        # A verdict and a message name their round, too; it never decreases.
        number = max(number, current) if isinstance(number, int) else current
        if not rounds or number != current:
            rounds.append(Round(number))
        rounds[-1].moments.append(moment_of(event))
    return rounds


def moment_of(event: EventResult) -> TimelineEntry:
    metadata = event["metadata"]
    detail = next((str(metadata[name]) for name in _DETAILS if metadata.get(name)), "")
    return TimelineEntry(
        event["id"], event["actor"], _sentence(event, metadata), detail, event["event_type"], event["timestamp"]
    )


def _sentence(event: EventResult, metadata: dict[str, Any]) -> str:
    if event["event_type"] == "verdict_submitted":
        return _VERDICTS.get(str(metadata.get("verdict")), "judged it")
    sentence = _SENTENCES.get(event["event_type"], event["event_type"].replace("_", " "))
    return sentence.format_map(_Known(metadata))


class _Known(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"
