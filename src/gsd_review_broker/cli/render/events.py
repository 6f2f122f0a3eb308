"""An event in a line."""

from typing import Any

from gsd_review_broker.cli.render.screen import Part, Span, Style

Json = dict[str, Any]

# Not by the words of the domain: `tandem status` reads this table, and starts without them.
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
_SHORT_COMMIT = 12


def short_id(review_id: str | None) -> str:
    return (review_id or "")[:SHORT_ID]


def status_span(status: str | None) -> Span:
    return Span(status or "", STATUS_STYLES.get(status or "", Style.PLAIN))


def moment(timestamp: str) -> str:
    """The broker's time to the second: UTC."""
    return timestamp[:19] + "Z" if len(timestamp) > 19 else timestamp  # noqa: PLR2004 - YYYY-MM-DDTHH:MM:SS


def event_row(event: Json, *, short: bool) -> list[Part]:
    review = short_id(event["review_id"]) if short else event["review_id"] or ""
    when = Span(moment(event["timestamp"]), Style.DIM)
    return [str(event["id"]), when, review, event_name(event), event["actor"], about(event)]


EVENT_TITLES = ("ID", "WHEN", "REVIEW", "WHAT", "WHO", "ABOUT")


def event_line(event: Json, *, with_review: bool) -> list[Part]:
    """For a list that grows."""
    review: list[Part] = [short_id(event["review_id"]).ljust(SHORT_ID), "  "] if with_review else []
    details = about(event)
    when = Span(moment(event["timestamp"]), Style.DIM)
    return [when, "  ", *review, event_name(event), f" by {event['actor']}", f": {details}" if details else ""]


def event_name(event: Json) -> Span:
    return Span(event["event_type"], STATUS_STYLES.get(event["new_status"] or "", Style.PLAIN))


def about(event: Json) -> str:
    """The details worth showing: the verdict, its reason, the text, the commit."""
    metadata: Json = event["metadata"]
    details = [str(metadata[name]) for name in _TOLD if metadata.get(name)]
    if metadata.get("commit"):
        branch = f" on {metadata['branch']}" if metadata.get("branch") else ""
        details.append(f"commit {str(metadata['commit'])[:_SHORT_COMMIT]}{branch}")
    if event["old_status"] != event["new_status"] and event["old_status"]:
        details.insert(0, f"{event['old_status']} → {event['new_status']}")
    return "; ".join(details)
