"""Tickets: the broker's answer to a commit that it expects, left where the hook finds it without asking.

Most commits are the change that was approved last, on the commit that it was checked against. For those the broker
leaves an empty file in the gate's folder. Its name has two parts: the commit before it, and git's own sum over the
parents and records that the commit will have. The hook compares names in its shell script, so that such a commit starts
neither Python nor a request. Everything else is asked as before: a ticket can only let through what an approval covers.
"""

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gsd_review_broker.domain.gate.decision import Commit, ReviewedChange
from gsd_review_broker.domain.gate.judge import ApprovalsAtHand, judge
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode
from gsd_review_broker.domain.gate.records import blob_id, object_format, parse_records, raw_records
from gsd_review_broker.domain.gate.request import Asker, GateRequest
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.files import write_private
from gsd_review_broker.gate.hook import RefusedError, Site
from gsd_review_broker.settings.gate import read_policy

# What the hook makes the sum of: the parents, and the records against the only one. Merges print nothing.
TICKET_DIFF = (
    "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-relative", "--ignore-submodules=none",
    "--no-ext-diff", "--no-textconv", "--no-color", "--no-notes", "--format=%P",
)  # fmt: skip
_MOST_TICKETS = 200
# A ticket is dated back, so that configuration written while it was made is newer.
_DATED_BACK_SECONDS = 1.0


def ticket_name(base: str, records: bytes) -> str:
    """`records` as a digest has them; git prints them in the order of their paths."""
    steps = parse_records(records)
    ordered = b"".join(raw_records({path: steps[path]}) for path in sorted(steps))
    content = base.encode("ascii") + b"\0\n" + ordered
    return f"{base}.{blob_id(content, object_format(base))}"


class TicketOffice:
    """Leaves tickets in the repositories of this machine that have a gate."""

    def __init__(self, chosen: Path | None = None) -> None:
        """`chosen` is the configuration file that the broker was started with."""
        self._chosen = chosen

    def issue(self, approved: ReviewedChange, base: str) -> bool:
        """False where there is no gate, or its policy wants more than this approval. Raises OSError."""
        began = time.time() - _DATED_BACK_SECONDS
        own = Path(approved.folder) / "tandem"
        if own.is_symlink() or not (own / "gate").is_file():
            return False
        try:
            known = Site.of(approved.folder).known
        except RefusedError:
            return False
        policy = read_policy(known.get("project_file"), known.get("user_file"), chosen=self._chosen)
        if policy.plan_first:
            # What else has to be approved is known only when the commit is made.
            return False
        if not _may_land(approved, base, policy):
            return False
        tickets = own / "tickets"
        tickets.mkdir(mode=0o700, exist_ok=True)
        if tickets.is_symlink():
            return False
        path = tickets / ticket_name(base, approved.records)
        write_private(path, b"")
        os.utime(path, (began, began))
        _forget_oldest(tickets)
        return True


def _may_land(approved: ReviewedChange, base: str, policy: GatePolicy) -> bool:
    """Ask the judge about the commit that is expected: this change, on this commit."""
    commit = Commit(id=base, parents=(base,), steps=parse_records(approved.records))
    request = GateRequest(origin=approved.origin, asker=Asker.HOOK, root=None, branches=(), commits=(commit,))
    strict = replace(policy, mode=Mode.BLOCK)
    return judge(ApprovalsAtHand([approved]), request, strict, Milliseconds(0)).outcome == "pass"


def _forget_oldest(tickets: Path) -> None:
    paths = list(tickets.iterdir())
    if len(paths) > _MOST_TICKETS:
        paths.sort(key=lambda path: path.lstat().st_mtime)
        remove_tickets(paths[:-_MOST_TICKETS])


def remove_tickets(paths: list[Path]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            path.unlink()
