"""Everything that a reviewer started, found and ended: its group, and whoever left the group to go on alone.

On Linux the broker adopts what its grandchildren leave behind (a "subreaper"), and each process tells by its
environment whose it is. Elsewhere the group is all that can be found. A process is known by its number together with
its start, so that a number that was used again is never taken for the old one.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.processes import send_signal, start_in, stat_fields

_PROC = Path("/proc")
_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class ProcessFound:
    """A process, as /proc shows it."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    start: str

    @property
    def runs(self) -> bool:
        return self.state not in {"Z", "X"}


def adopt_orphans() -> bool:
    """What a reviewer leaves behind becomes a child of the broker, where it can be found. Linux only."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    return False


def members(
    leader: int, known: frozenset[tuple[int, str]] = frozenset(), mark: bytes | None = None
) -> list[ProcessFound]:
    """Who runs of a reviewer's, where /proc tells. The leader's number must still be its own (not reaped, or just
    checked): who is in its group or session is then its, whoever they are."""
    mine = os.getpid()
    return [
        one
        for one in _processes()
        if one.runs
        and one.pid != mine
        and (
            leader in {one.pid, one.group, one.session}
            or (one.pid, one.start) in known
            or (mark is not None and is_marked(one.pid, mark))
        )
    ]


def marked(mark: bytes) -> list[ProcessFound]:
    """Who carries this line in its environment."""
    return [one for one in _processes() if one.runs and one.pid != os.getpid() and is_marked(one.pid, mark)]


def look(pid: int, start: str | None) -> ProcessFound | None:
    """The process with this number, if it is the one that began then."""
    found = _look(pid)
    return found if found and found.start == start and found.runs else None


def descendants(leader: int) -> frozenset[tuple[int, str]]:
    """Who stems from this process, by what /proc says now."""
    children: dict[int, list[ProcessFound]] = {}
    for one in _processes():
        children.setdefault(one.parent, []).append(one)
    found: set[tuple[int, str]] = set()
    waiting = [leader]
    while waiting:
        for one in children.get(waiting.pop(), []):
            if (one.pid, one.start) not in found:
                found.add((one.pid, one.start))
                waiting.append(one.pid)
    return frozenset(found)


def strays() -> list[ProcessFound]:
    """Adopted processes that left their session, and whose leader is gone: nothing that the broker itself starts."""
    mine, session = os.getpid(), os.getsid(0) if hasattr(os, "getsid") else 0
    return [one for one in _processes() if one.parent == mine and one.session not in {session, one.pid}]


def reap_strays() -> None:
    """Adopted ones that have ended wait for somebody to take note."""
    for one in strays():
        if not one.runs:
            with contextlib.suppress(ChildProcessError, OSError):
                os.waitpid(one.pid, os.WNOHANG)


def tell(one: ProcessFound, kind: signal.Signals) -> None:
    """A signal to exactly this process, or to none."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(PermissionError):
        send_signal(one.pid, one.start, kind)


def _processes() -> Iterator[ProcessFound]:
    if sys.platform != "linux":
        return
    for entry in os.listdir(_PROC):  # noqa: PTH208 - names only, and there are many
        if entry.isdigit() and (found := _look(int(entry))):
            yield found


def _look(pid: int) -> ProcessFound | None:
    fields = stat_fields(pid)
    if not fields:
        return None
    state, parent, group, session = fields[:4]
    return ProcessFound(pid, int(parent), int(group), int(session), state.decode(), start_in(fields))


def is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
