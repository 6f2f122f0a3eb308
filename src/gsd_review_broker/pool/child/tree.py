"""Finds and signals everything that a reviewer started: its group, and processes that left the group.

On Linux the broker adopts orphaned descendants (a "subreaper"), and the environment of each process says whose it is.
Elsewhere only the group can be found. A process is identified by its number and start time, so that a reused number is
never taken for the old process.
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
    """Orphans of a reviewer become children of the broker, where they can be found. Linux only."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    return False


def members(
    leader: int, known: frozenset[tuple[int, str]] = frozenset(), mark: bytes | None = None
) -> list[ProcessFound]:
    """A reviewer's running processes, as far as /proc shows them.

    The leader's number must still be its own (not reaped, or just checked). Then every process in its group or session
    belongs to it.
    """
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
    """The processes with this line in their environment."""
    return [one for one in _processes() if one.runs and one.pid != os.getpid() and is_marked(one.pid, mark)]


def look(pid: int, start: str | None) -> ProcessFound | None:
    """The process with this number, if it has this start time."""
    process = _look(pid)
    return process if process and process.start == start and process.runs else None


def descendants(leader: int) -> frozenset[tuple[int, str]]:
    """The descendants of this process, by what /proc shows now."""
    children: dict[int, list[ProcessFound]] = {}
    for one in _processes():
        children.setdefault(one.parent, []).append(one)
    known: set[tuple[int, str]] = set()
    waiting = [leader]
    while waiting:
        for one in children.get(waiting.pop(), []):
            if (one.pid, one.start) not in known:
                known.add((one.pid, one.start))
                waiting.append(one.pid)
    return frozenset(known)


def strays() -> list[ProcessFound]:
    """Adopted processes that left their session and whose leader is gone. The broker itself starts none like that."""
    mine, session = os.getpid(), os.getsid(0) if hasattr(os, "getsid") else 0
    return [one for one in _processes() if one.parent == mine and one.session not in {session, one.pid}]


def reap_strays() -> None:
    """Adopted processes that have stopped wait to be reaped."""
    for one in strays():
        if not one.runs:
            with contextlib.suppress(ChildProcessError, OSError):
                os.waitpid(one.pid, os.WNOHANG)


def tell(one: ProcessFound, kind: signal.Signals) -> None:
    """Signal exactly this process, or none."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(PermissionError):
        send_signal(one.pid, one.start, kind)


def _processes() -> Iterator[ProcessFound]:
    if sys.platform != "linux":
        return
    for entry in os.listdir(_PROC):  # noqa: PTH208 - names only, and there are many
        if entry.isdigit() and (process := _look(int(entry))):
            yield process


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
