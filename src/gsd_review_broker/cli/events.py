"""An event in a line."""

from typing import Any

from gsd_review_broker.cli.screen import Part, Span, Style

Json = dict[str, Any]

STATUS_STYLES = {
    "pending": Style.YELLOW,
    "claimed": Style.BLUE,
    "in_review": Style.BLUE,
    "approved": Style.GREEN,
    "changes_requested": Style.RED,
    "closed": Style.DIM,
}
_TOLD = ("verdict", "reason", "body_preview", "disposition", "intent")
SHORT_ID = 8


def short_id(review_id: str | None) -> str:
    return (review_id or "")[:SHORT_ID]


def status_span(status: str | None) -> Span:
    return Span(status or "", STATUS_STYLES.get(status or "", Style.PLAIN))


def moment(timestamp: str) -> str:
    """As the broker says it, to the second: UTC."""
    return timestamp[:19] + "Z" if len(timestamp) > 19 else timestamp  # noqa: PLR2004 - YYYY-MM-DDTHH:MM:SS


def event_row(event: Json, *, with_review: bool) -> list[Part]:
    row: list[Part] = [str(event["id"]), Span(moment(event["timestamp"]), Style.DIM)]
    if with_review:
        row.append(short_id(event["review_id"]))
    return [*row, event_name(event), event["actor"], about(event)]


def event_name(event: Json) -> Span:
    return Span(event["event_type"], STATUS_STYLES.get(event["new_status"] or "", Style.PLAIN))


def about(event: Json) -> str:
    """What is worth a look: the verdict, its reason, the words."""
    metadata: Json = event["metadata"]
    said = [str(metadata[name]) for name in _TOLD if metadata.get(name)]
    if event["old_status"] != event["new_status"] and event["old_status"]:
        said.insert(0, f"{event['old_status']} → {event['new_status']}")
    return "; ".join(said)
