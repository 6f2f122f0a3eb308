"""The user's own notification program: run for each new inbox entry and each verdict, with the facts on stdin.

Only the user's own file names it, as a list of words. No shell reads them, and nothing from a review becomes one of
them. A program that hangs is stopped, and one that fails is logged. Neither delays anything else.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from pathlib import Path
from typing import Any

import structlog

from gsd_review_broker.domain.model import Review
from gsd_review_broker.ports.world import EVENTS, Wakeups
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.service.queries.inbox import InboxEntry
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.service.wire.reviews import EventResult

log = structlog.get_logger()

LONGEST_RUN_SECONDS = 10.0
# How often to look for entries that only time brings into the inbox.
LOOK_EVERY_SECONDS = 30.0
_AT_ONCE = 2
# A program that is too slow misses some entries; a queue of hours is of no use.
_MOST_WAITING = 100
_EVENTS_AT_ONCE = 200
_VERDICTS = {"verdict_submitted", "verdict_comment", "review_auto_rejected"}


class Notifier:
    def __init__(
        self,
        broker: Broker,
        wakeups: Wakeups,
        *,
        command: tuple[str, ...],
        person: str,
        url: str,
        look_every: float = LOOK_EVERY_SECONDS,
        longest_run: float = LONGEST_RUN_SECONDS,
    ) -> None:
        self._broker = broker
        self._wakeups = wakeups
        self._command = command
        self._person = person
        self._url = url
        self._look_every = look_every
        self._longest_run = longest_run
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Report new entries until cancelled. Without a program there is nothing to do."""
        if not self._command:
            return
        last = await self._broker.page_queries.last_event_id()
        known = await self._inbox()
        with self._wakeups.listening(EVENTS, counted=False) as signalled:
            while not self._wakeups.closing:
                signalled.clear()
                try:
                    last = await self._verdicts_after(last)
                    now = await self._inbox()
                    self._waiting.extend(self._entry(entry) for key, entry in now.items() if key not in known)
                    known = now
                    self._start()
                except Exception:
                    log.exception("notifying_failed")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_every):
                        await signalled.wait()

    async def _inbox(self) -> dict[tuple[str, str], InboxEntry]:
        inbox = await self._broker.inboxes.of(self._person)
        return {(entry.review.id, entry.need.value): entry for entry in inbox.entries}

    async def _verdicts_after(self, last: int) -> int:
        while True:
            page = await self._broker.review_queries.audit_log(review_id=None, after=last, limit=_EVENTS_AT_ONCE)
            for event in page["events"]:
                if event["event_type"] in _VERDICTS and event["review_id"] is not None:
                    self._waiting.append(await self._verdict(event))
            last = page["events"][-1]["id"] if page["events"] else last
            if page["next_cursor"] is None:
                return last

    async def _verdict(self, event: EventResult) -> dict[str, Any]:
        review = await self._broker.page_queries.find(event["review_id"] or "")
        return {
            "kind": "verdict",
            "verdict": event["metadata"].get("verdict"),
            "reason": event["metadata"].get("reason"),
            "actor": event["actor"],
            "at": event["timestamp"],
            **self._facts_of(review),
        }

    def _entry(self, entry: InboxEntry) -> dict[str, Any]:
        return {
            "kind": "inbox",
            "need": entry.need.value,
            "reason": entry.why,
            "at": iso(entry.since),
            **self._facts_of(entry.review),
        }

    def _facts_of(self, review: Review) -> dict[str, Any]:
        return {
            "review_id": review.id,
            "intent": review.intent,
            "project": review.project,
            "status": review.status.value,
            "url": f"{self._url}/r/{review.id}",
        }

    # Running the program.

    def _start(self) -> None:
        while self._waiting and len(self._running) < _AT_ONCE:
            task = asyncio.create_task(self._tell(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("notifying_failed", error=repr(task.exception()))
        self._start()

    async def _tell(self, facts: dict[str, Any]) -> None:
        try:
            code = await self._run_once(json.dumps(facts, ensure_ascii=False).encode("utf-8", "replace"))
        except OSError as error:
            log.warning("notification_failed", program=self._command[0], error=str(error))
            return
        if code != 0:
            log.warning("notification_failed", program=self._command[0], code=code)

    async def _run_once(self, facts: bytes) -> int | None:
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            # Not in the repository: a program may run what it finds in its working folder.
            cwd=Path.home(),
            # A group of its own, so that what it starts is killed with it. Windows ignores this.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self._longest_run):
                await process.communicate(facts)
        except TimeoutError:
            log.warning("notification_hangs", program=self._command[0], seconds=self._longest_run)
        finally:
            # Also when the broker stops, so that no process is left behind.
            _kill(process)
            await process.wait()
        return process.returncode

    async def close(self) -> None:
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
