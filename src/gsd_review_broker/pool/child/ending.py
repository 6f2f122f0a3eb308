"""Stops everything that a reviewer started: TERM, a grace period, then KILL. These functions block; run them in a
thread.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from gsd_review_broker.domain.rules.pool import Reviewer
from gsd_review_broker.pool.child import tree
from gsd_review_broker.pool.child.tree import ProcessFound
from gsd_review_broker.processes import start_of

_SHORTEST_LOOK = 0.02
_LONGEST_LOOK = 0.25
# After KILL only the kernel has work left to do.
_AFTER_KILL_SECONDS = 5.0

Members = Callable[[], list[ProcessFound]]


def end_all(group: int | None, members: Members, *, grace: float) -> list[ProcessFound]:
    """Signal the group, if its number is known to be ours, and each process found. Returns those still running."""
    if not _any_runs(group, members):
        return []
    _tell(group, members, signal.SIGTERM)
    if not _wait(lambda: not _any_runs(group, members), grace):
        _tell(group, members, signal.Signals.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        _wait(lambda: not _killed(group, members), _AFTER_KILL_SECONDS)
    return members()


def _any_runs(group: int | None, members: Members) -> bool:
    return bool(members()) if sys.platform == "linux" else _group_runs(group)


def _killed(group: int | None, members: Members) -> bool:
    """Repeated, to catch processes that were forked between the search and the signal."""
    if not _any_runs(group, members):
        return False
    if sys.platform != "win32":
        _tell(group, members, signal.SIGKILL)
    return True


def _tell(group: int | None, members: Members, kind: signal.Signals) -> None:
    if group is not None and sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, kind)
    for one in members():
        if one.group != group:
            tree.tell(one, kind)


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
    look = _SHORTEST_LOOK
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(min(look, max(0.0, deadline - time.monotonic())))
        look = min(_LONGEST_LOOK, look * 2)
    return True


log = structlog.get_logger()


def end_leftovers(reviewers: list[Reviewer], mark: bytes, *, grace: float) -> int:
    """Blocks until they are gone. Returns how many processes there were."""
    if sys.platform != "linux":
        return _end_groups(reviewers, grace)

    def left() -> list[ProcessFound]:
        processes = {one.pid: one for one in tree.marked(mark)}
        for reviewer in reviewers:
            # The group's number is known to be its own only while its leader is running.
            if tree.look(reviewer.pid, reviewer.process_start):
                processes |= {one.pid: one for one in tree.members(reviewer.pid)}
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
