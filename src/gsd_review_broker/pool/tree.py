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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from gsd_review_broker.domain.rules.pool import Reviewer
from gsd_review_broker.processes import send_signal, start_in, start_of, stat_fields

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
    """Make orphans of a reviewer children of the broker, where they can be found. Linux only."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    return False


def members(
    leader: int, known: frozenset[tuple[int, str]] = frozenset(), mark: bytes | None = None
) -> list[ProcessFound]:
    """Return a reviewer's running processes, as far as /proc shows them.

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
    """Return the processes with this line in their environment."""
    return [one for one in _processes() if one.runs and one.pid != os.getpid() and is_marked(one.pid, mark)]


def look(pid: int, start: str | None) -> ProcessFound | None:
    """Return the process with this number, if it has this start time."""
    process = _look(pid)
    return process if process and process.start == start and process.runs else None


def descendants(leader: int) -> frozenset[tuple[int, str]]:
    """Return the descendants of this process, by what /proc shows now."""
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
    """Return adopted processes that left their session and whose leader is gone. The broker starts none like that."""
    mine, session = os.getpid(), os.getsid(0) if hasattr(os, "getsid") else 0
    return [one for one in _processes() if one.parent == mine and one.session not in {session, one.pid}]


def reap_strays() -> None:
    """Reap the adopted processes that have stopped."""
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


_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25
# After KILL only the kernel has work left to do.
_AFTER_KILL_SECONDS = 5.0

FindProcesses = Callable[[], list[ProcessFound]]


def end_all(group: int | None, find: FindProcesses, *, grace: float) -> list[ProcessFound]:
    """Signal the group, if its number is known to be ours, and each process found. Returns those still running."""
    if not _any_runs(group, find):
        return []
    _tell_all(group, find, signal.SIGTERM)
    if not _wait(lambda: not _any_runs(group, find), grace):
        _tell_all(group, find, signal.Signals.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        _wait(lambda: not _kill_again(group, find), _AFTER_KILL_SECONDS)
    return find()


def _any_runs(group: int | None, find: FindProcesses) -> bool:
    return bool(find()) if sys.platform == "linux" else _group_runs(group)


def _kill_again(group: int | None, find: FindProcesses) -> bool:
    """Kill once more those that were forked between the search and the signal; return whether any ran."""
    if not _any_runs(group, find):
        return False
    if sys.platform != "win32":
        _tell_all(group, find, signal.SIGKILL)
    return True


def _tell_all(group: int | None, find: FindProcesses, kind: signal.Signals) -> None:
    if group is not None and sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, kind)
    for one in find():
        if one.group != group:
            tell(one, kind)


def _group_runs(group: int | None) -> bool:
    if group is None or sys.platform == "win32":
        return False
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _wait(done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    pause = _SHORTEST_PAUSE
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(_LONGEST_PAUSE, pause * 2)
    return True


log = structlog.get_logger()


def end_leftovers(reviewers: list[Reviewer], mark: bytes, *, grace: float) -> int:
    """Block until they are gone. Return how many processes there were."""
    if sys.platform != "linux":
        return _end_groups(reviewers, grace)

    def left() -> list[ProcessFound]:
        processes = {one.pid: one for one in marked(mark)}
        for reviewer in reviewers:
            # The group's number is known to be its own only while its leader is running.
            if look(reviewer.pid, reviewer.process_start):
                processes |= {one.pid: one for one in members(reviewer.pid)}
        return list(processes.values())

    count = len(left())
    stubborn = end_all(None, left, grace=grace)
    if count:
        log.info("leftovers_ended", processes=count, still_there=[one.pid for one in stubborn])
    return count


def _end_groups(reviewers: list[Reviewer], grace: float) -> int:
    left = [one for one in reviewers if one.process_start and start_of(one.pid) == one.process_start]
    for reviewer in left:
        end_all(reviewer.pid, list[ProcessFound], grace=grace)
    return len(left)
