"""A review and an event in words, for a person."""

from gsd_review_broker.cli.screen import Part, Screen, Span, Style
from gsd_review_broker.client.connection import Json

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
    """Shorten the broker's time (UTC) to the second."""
    return timestamp[:19] + "Z" if len(timestamp) > 19 else timestamp  # noqa: PLR2004 - YYYY-MM-DDTHH:MM:SS


def event_row(event: Json, *, short: bool) -> list[Part]:
    review = short_id(event["review_id"]) if short else event["review_id"] or ""
    when = Span(moment(event["timestamp"]), Style.DIM)
    return [str(event["id"]), when, review, event_name(event), event["actor"], about(event)]


EVENT_TITLES = ("ID", "WHEN", "REVIEW", "WHAT", "WHO", "ABOUT")


def event_line(event: Json, *, with_review: bool) -> list[Part]:
    review: list[Part] = [short_id(event["review_id"]).ljust(SHORT_ID), "  "] if with_review else []
    details = about(event)
    when = Span(moment(event["timestamp"]), Style.DIM)
    return [when, "  ", *review, event_name(event), f" by {event['actor']}", f": {details}" if details else ""]


def event_name(event: Json) -> Span:
    return Span(event["event_type"], STATUS_STYLES.get(event["new_status"] or "", Style.PLAIN))


def about(event: Json) -> str:
    metadata: Json = event["metadata"]
    details = [str(metadata[name]) for name in _TOLD if metadata.get(name)]
    if metadata.get("commit"):
        branch = f" on {metadata['branch']}" if metadata.get("branch") else ""
        details.append(f"commit {str(metadata['commit'])[:_SHORT_COMMIT]}{branch}")
    if event["old_status"] != event["new_status"] and event["old_status"]:
        details.insert(0, f"{event['old_status']} → {event['new_status']}")
    return "; ".join(details)


_REASON_CHARACTERS = 80


def outcome(status: Json) -> list[Part]:
    """Describe a review's state in one line; `tandem show` prints everything."""
    from gsd_review_broker.domain.words import CLAIM_IS_LIVE

    parts: list[Part] = [status["review_id"], " ", status_span(status["status"])]
    if status["verdict"] and status["verdict"] != status["status"]:
        parts.append(f" ({status['verdict']})")
    if status["claimed_by"] and status["status"] in CLAIM_IS_LIVE:
        parts.append(f" by {shortened(status['claimed_by'], 30)}")
    if status["open_finding_count"]:
        parts.append(f", {counted(status['open_finding_count'], 'open finding')}")
    if status["counter_patch_status"] == "pending":
        parts.append(", a counter-patch is offered")
    if status["needs_human"]:
        parts.append(", needs a person")
    if status["verdict_reason"] and status["status"] != "approved":
        parts.append(f": {shortened(first_line(status['verdict_reason']), _REASON_CHARACTERS)}")
    return parts


def page(screen: Screen, status: Json, proposal: Json, discussion: Json) -> None:
    _head(screen, status, proposal)
    _prose(screen, "description", proposal["description"])
    _prose(screen, "reason", status["verdict_reason"])
    if proposal["affected_files"]:
        screen.say()
        screen.table(("FILES", "+", "-", "", ""), [_file(file) for file in proposal["affected_files"]])
    for finding in discussion["findings"]:
        _finding(screen, finding)
    if proposal["counter_patch"] is not None:
        screen.say()
        screen.say(Span("counter-patch offered", Style.YELLOW), f": tandem diff {status['review_id']} --counter")
    for message in discussion["messages"]:
        _message(screen, message)


def _head(screen: Screen, status: Json, proposal: Json) -> None:
    screen.say(Span(status["review_id"], Style.BOLD), "  ", status_span(status["status"]))
    screen.say(Span(proposal["intent"], Style.BOLD))
    proposer = proposal["proposer_id"] or proposal["agent_type"]
    facts = {
        "proposed by": f"{proposer} ({proposal['agent_type']})" if proposer != proposal["agent_type"] else proposer,
        "phase": " / ".join(filter(None, (proposal["phase"], proposal["plan"], proposal["task"]))),
        "category": proposal["category"],
        "project": proposal["project"],
        "priority": proposal["priority"],
        "revision": f"{proposal['revision']} (round {status['round']})",
        "claimed by": status["claimed_by"],
        "verdict": status["verdict"],
        "approved by": ", ".join(status.get("approved_by") or ()),
        "still needs": " and ".join(status.get("missing") or ()),
        "needs a person": status["needs_human"],
        "follows": proposal["parent_id"],
        "digest": proposal["digest"],
        "updated": moment(status["updated_at"]),
    }
    for name, value in facts.items():
        if value:
            screen.say(Span(f"{name:<15}", Style.DIM), str(value))


def _prose(screen: Screen, name: str, text: str | None) -> None:
    if text:
        screen.say()
        screen.say(Span(name, Style.DIM))
        screen.block(text, indent="  ")


def _file(file: Json) -> list[Part]:
    notes = [word for word, is_so in (("binary", file["binary"]), ("mode", file["mode_change"])) if is_so]
    if file["old_path"] and file["old_path"] != file["path"]:
        notes.append(f"from {file['old_path']}")
    added, removed = Span(f"+{file['added']}", Style.GREEN), Span(f"-{file['removed']}", Style.RED)
    return [file["path"], added, removed, file["operation"], ", ".join(notes)]


def _finding(screen: Screen, finding: Json) -> None:
    place = finding["path"] or ""
    if finding["line_start"]:
        place += f":{finding['line_start']}"
    style = Style.RED if finding["disposition"] == "open" else Style.DIM
    screen.say()
    screen.say(
        Span(f"{finding['severity']} {finding['disposition']}", style),
        f"  {finding['finding_id']}  {place}  ",
        Span(finding["title"], Style.BOLD),
    )
    if finding["body"] != finding["title"]:
        screen.block(finding["body"], indent="  ")
    if finding["suggestion"]:
        screen.block(f"suggestion: {finding['suggestion']}", indent="  ")
    if finding["note"]:
        screen.block(f"note: {finding['note']}", indent="  ")


def _message(screen: Screen, message: Json) -> None:
    place = f" on {message['path']}" + (f":{message['line']}" if message["line"] else "") if message["path"] else ""
    screen.say()
    screen.say(
        Span(f"#{message['message_id']}", Style.DIM),
        " ",
        Span(message["sender_id"], Style.CYAN),
        f" ({message['sender_role']}{place}) ",
        Span(moment(message["created_at"]), Style.DIM),
    )
    screen.block(message["body"], indent="  ")


def row(review: Json, *, short: bool) -> list[Part]:
    who = review["claimed_by"] or f"({review['proposer_id'] or review['agent_type']})"
    return [
        Span(short_id(review["id"]) if short else review["id"], Style.BOLD),
        status_span(review["status"]),
        Span(review["priority"], Style.RED if review["priority"] == "critical" else Style.PLAIN),
        str(review["round"]),
        Span("!", Style.YELLOW) if review["needs_human"] else "",
        shortened(who, 24),
        first_line(review["intent"]),
    ]


# A list without its intents says nothing, however narrow the terminal is.
LEAST_INTENT = 11
ROW_TITLES = ("ID", "STATUS", "PRIORITY", "ROUND", "", "REVIEWER", "INTENT")


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
