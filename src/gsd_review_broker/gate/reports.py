"""Reports of what landed. The hook sends them in the background, after git has written the references.

A file for each report is kept in the gate's folder until the broker has it."""

import os

from gsd_review_broker.gate.hook import RefusedError, Site, address_of, commits_log, keep, post

# A report that the broker cannot read is dropped.
_REPORT = "landed."
_MOST_REPORTS = 200
# How the note of a commit begins for which the broker had left a ticket (`gate/tickets`).
_TICKET = b"ticket "
# Reports are sent in the background, so a busy broker has time.
_REPORT_SECONDS = 10.0
_ANSWERED = (200, 400)
_LANDED = "/api/gate/landed"


def report_note(note: str) -> int:
    """Report a note after the references were written. This runs in the background and blocks nothing."""
    import time

    try:
        site = Site.here()
        report = f"{os.path.dirname(note)}/{_REPORT}{time.time_ns()}.{os.getpid()}"
        os.rename(note, report)
        _expand_ticket(site, report)
        return 0 if report_landed(site) else 1
    except (OSError, RefusedError):
        return 1


def _expand_ticket(site: Site, report: str) -> None:
    """Write the report of a commit with a ticket, about which the hook has not asked the broker."""
    with open(report, "rb") as file:
        first, _, update = file.read().partition(b"\n")
    if not first.startswith(_TICKET):
        return
    old, new, name = update.decode("utf-8", "surrogateescape").rstrip("\n").split(" ", 2)
    head = site.head("hook") + f"branch={name}\n\n".encode("utf-8", "surrogateescape")
    keep(report, head + commits_log([new, "--not", old]))
    ticket = f"{site.common}/tandem/tickets/{first.removeprefix(_TICKET).decode('ascii')}"
    if os.path.exists(ticket):
        os.unlink(ticket)


def report_landed(site: Site) -> bool:
    """Tell the broker what landed, oldest first. What it cannot be told now, a later commit or `tandem gate status`
    tells it; the broker records each commit once. Raises OSError if the broker does not answer."""
    folder = f"{site.common}/tandem"
    waiting = waiting_reports(folder)
    url = site.broker_url if waiting else ""
    address = None if url else next(filter(None, map(address_of, site.databases)), None)
    if address is None and not url:
        return not waiting
    for name in waiting:
        try:
            with open(f"{folder}/{name}", "rb") as file:
                body = file.read()
        except FileNotFoundError:
            # Another commit's report was quicker.
            continue
        status = _reported(site, address, url, body)
        if status not in _ANSWERED:
            return False
        if os.path.exists(f"{folder}/{name}"):
            os.unlink(f"{folder}/{name}")
    return True


def _reported(site: Site, address: "tuple[str, int] | None", url: str, body: bytes) -> int:
    """Send a report, and return the status of the answer."""
    if address is not None:
        return post(address, _LANDED, body, site.authorization, _REPORT_SECONDS)[0]
    from gsd_review_broker.errors import BrokerError
    from gsd_review_broker.gate.remote import send

    try:
        return send(site, url, _LANDED, body, _REPORT_SECONDS)[0]
    except BrokerError as error:
        raise OSError(error.message) from error


def waiting_reports(folder: str) -> "list[str]":
    """List the reports that the broker does not have yet, oldest first."""
    return sorted(name for name in os.listdir(folder) if name.startswith(_REPORT))[:_MOST_REPORTS]
