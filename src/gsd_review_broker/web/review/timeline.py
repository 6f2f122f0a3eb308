"""A review's events as sentences, in rounds."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gsd_review_broker.domain.words import Verdict
from gsd_review_broker.service.wire.reviews import EventResult

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
    """Oldest first."""
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
