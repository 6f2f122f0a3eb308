"""Stops what a killed broker left running.

Processes are identified by number and start time and by the mark in their environment. A number that another process
has by now is not touched.
"""

import sys

import structlog

from gsd_review_broker.domain.pool import Reviewer
from gsd_review_broker.pool.child import tree
from gsd_review_broker.pool.child.ending import end_all
from gsd_review_broker.pool.child.tree import ProcessFound
from gsd_review_broker.processes import start_of

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
