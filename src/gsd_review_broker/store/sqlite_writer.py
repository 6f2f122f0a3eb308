"""The one connection that writes, and the commands that share its commits.

Commands run on the event loop. They are short, because everything slow was done before. The commit also runs there as
long as the disk syncs within a millisecond: handing it to a thread and back would take as long. Longer waits run in a
thread: commits to a slower disk, checkpoints, and a lock that another process holds. Meanwhile commands queue up, and
the next batch takes them all.

Most commands that are refused have changed nothing, and the others go on. If one has (it took its idempotency key), the
whole batch is run again with a savepoint for each. A savepoint copies every page that its command changes.
"""

import asyncio
import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any, TypeVar

import structlog

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.observe import telemetry
from gsd_review_broker.observe.telemetry import Meters
from gsd_review_broker.ports.store import Transaction, Watcher
from gsd_review_broker.ports.world import Clock, Wakeups
from gsd_review_broker.store.statements import SqliteStatements
from gsd_review_broker.store.writes import SqlTransaction, finish

T = TypeVar("T")
log = structlog.get_logger()

LARGEST_BATCH = 32
BUSY_TIMEOUT_MILLISECONDS = 5_000
# A shorter commit is not worth handing to a thread.
_QUICK_SECONDS = 0.001
_GATHERING = 3
# The WAL is checkpointed at this many pages (12 MB), which takes about 5 ms. Three times as often, it would take 8 % of
# a busy broker's time instead of 3 %; SQLite finds a page in up to 4,000 without searching twice.
_CHECKPOINT_PAGES = 3_000
# Estimates: commands that share a commit also share most of the pages that they change.
_PAGES_A_COMMIT = 20
_PAGES_A_COMMAND = 5
_PAGE_BYTES = 4_096


@dataclass(slots=True)
class Job:
    command: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    # When its commit began and ended, and how many commands shared it; for tracing.
    committed: tuple[int, int, int] | None = None


# Runs one command.
_Run = Callable[[Job], SqlTransaction | None]


class _HalfDoneError(Exception):
    """A command failed after it had changed something."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Writer:
    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        *,
        clock: Clock,
        wakeups: Wakeups,
        meters: Meters,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._connection = connection
        self._path = path
        self._file = _identity_of(path)
        self._clock = clock
        self._wakeups = wakeups
        self._meters = meters
        self._traced = telemetry.is_tracing()
        self._jobs: deque[Job] = deque()
        self._watchers = watchers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._turn: asyncio.Handle | asyncio.Task[None] | None = None
        self._idle: asyncio.Event | None = None
        self._last_batch = 1
        self._commit_seconds = 0.0
        self._last_commit = 0.0
        self._pages = 0
        # A thread waits for other processes; the event loop never does.
        self.patience_milliseconds = BUSY_TIMEOUT_MILLISECONDS
        connection.execute("PRAGMA busy_timeout=0")

    @property
    def pending(self) -> int:
        return len(self._jobs)

    @property
    def is_away(self) -> bool:
        """May a thread be using the connection, or is its transaction open? If not, the event loop can read with it."""
        return isinstance(self._turn, asyncio.Task)

    async def write(self, command: Callable[[Transaction], T]) -> T:
        """Returns when the command is on disk. A caller that goes away does not undo a command under way."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = Job(command, future)
        self._jobs.append(job)
        self._meters.queued = len(self._jobs)
        self._schedule()
        return await (self._traced_wait(job) if self._traced else future)

    async def _traced_wait(self, job: Job) -> Any:
        with telemetry.span("store.write"):
            result = await job.future
            assert job.committed is not None  # noqa: S101 - a result is reported after its commit
            began, ended, shared_by = job.committed
            telemetry.past_span("store.commit", began, ended, shared_by=shared_by)
            return result

    async def close(self) -> None:
        """Finishes the queued commands first."""
        if self._turn is not None:
            self._idle = asyncio.Event()
            await self._idle.wait()
        self._thread.shutdown(wait=True)

    # One batch after the other.

    def _schedule(self) -> None:
        if self._turn is None and self._jobs:
            # If several came together the last time, more are likely to follow.
            self._turn = asyncio.get_running_loop().call_soon(self._gather, _GATHERING if self._last_batch > 1 else 0)

    def _gather(self, rounds: int) -> None:
        """Yield to the loop a few times, so that commands about to arrive can join. Nothing sleeps."""
        if rounds:
            self._turn = asyncio.get_running_loop().call_soon(self._gather, rounds - 1)
        else:
            self._take_turn()

    def _take_turn(self) -> None:
        batch = [self._jobs.popleft() for _ in range(min(len(self._jobs), LARGEST_BATCH))]
        self._last_batch = len(batch)
        self._meters.queued = len(self._jobs)
        if self._commit_seconds >= _QUICK_SECONDS or self._pages >= _CHECKPOINT_PAGES or self._begin() is not None:
            self._take_slow_turn(batch, self._run)
            return
        try:
            topics, error = self._run_all(batch, self._run)
            if isinstance(error, _HalfDoneError):
                self._take_slow_turn(batch, self._run_in_savepoint)
            else:
                self._tell(batch, topics, error or self._commit())
        finally:
            if not self.is_away:
                self._end_turn()

    def _take_slow_turn(self, batch: list[Job], run: _Run) -> None:
        self._turn = asyncio.get_running_loop().create_task(self._wait_for_turn(batch, run))

    async def _wait_for_turn(self, batch: list[Job], run: _Run) -> None:
        in_thread = asyncio.get_running_loop().run_in_executor
        try:
            topics, error = await self._begin_and_run(batch, run)
            if isinstance(error, _HalfDoneError):
                topics, error = await self._begin_and_run(batch, self._run_in_savepoint)
            if error is None:
                error = await in_thread(self._thread, self._commit)
            self._tell(batch, topics, error)
            if self._pages >= _CHECKPOINT_PAGES:
                await in_thread(self._thread, self._checkpoint)
        finally:
            self._end_turn()

    async def _begin_and_run(self, batch: list[Job], run: _Run) -> tuple[list[str], BaseException | None]:
        error = self._begin()
        if error is not None:
            error = await asyncio.get_running_loop().run_in_executor(self._thread, self._begin_patiently)
        return ([], error) if error is not None else self._run_all(batch, run)

    def _end_turn(self) -> None:
        self._turn = None
        self._schedule()
        if self._turn is None and self._idle is not None:
            self._idle.set()

    def _tell(self, batch: list[Job], topics: list[str], error: BaseException | None) -> None:
        """Notify the waiters first, then answer the callers."""
        if error is None:
            self._meters.commands += len(batch)
            self._wakeups.publish(topics)
        else:
            log.warning("commit_failed", error=str(error), commands=len(batch))
        ended, took = time_ns(), int(self._last_commit * 1e9)
        for job in batch:
            if self._traced and error is None:
                job.committed = (ended - took, ended, len(batch))
            if job.future.done():
                continue
            failure = error or job.error
            if failure is not None:
                job.future.set_exception(failure)
            else:
                job.future.set_result(job.result)

    # The steps of a batch. Each returns the error, translated to our codes, or None.

    def _begin(self) -> BaseException | None:
        """Does not wait for the lock unless a busy timeout is set."""
        if _identity_of(self._path) != self._file:
            return _file_is_gone(self._path)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return translate(error)
        return None

    def _begin_patiently(self) -> BaseException | None:
        self._connection.execute(f"PRAGMA busy_timeout={self.patience_milliseconds}")
        try:
            return self._begin()
        finally:
            self._connection.execute("PRAGMA busy_timeout=0")

    def _run_all(self, batch: list[Job], run: _Run) -> tuple[list[str], BaseException | None]:
        try:
            done = [transaction for job in batch if (transaction := run(job)) is not None]
            finish(SqliteStatements(self._connection), done)
            self._pages += _PAGES_A_COMMIT
        except Exception as error:  # noqa: BLE001 - whatever it is, every caller of the batch gets it, and the next batch can begin
            return [], self._rolled_back(error)
        return [topic for transaction in done for topic in transaction.topics], None

    def _run_in_savepoint(self, job: Job) -> SqlTransaction | None:
        self._connection.execute("SAVEPOINT command")
        transaction = None
        try:
            transaction = self._run(job)
        except _HalfDoneError as error:
            self._connection.execute("ROLLBACK TO command")
            job.error = translate(error.reason)
        self._connection.execute("RELEASE command")
        return transaction

    def _run(self, job: Job) -> SqlTransaction | None:
        """Run a command. If it has changed nothing, its error is its own; a dead transaction fails the whole batch."""
        transaction = SqlTransaction(SqliteStatements(self._connection), self._clock.now(), self._watchers)
        job.result = job.error = None
        changes = self._connection.total_changes
        try:
            job.result = job.command(transaction)
        except Exception as error:
            if not self._connection.in_transaction:
                raise sqlite3.OperationalError(str(error)) from error
            if self._connection.total_changes != changes:
                raise _HalfDoneError(error) from error
            job.error = translate(error)
            return None
        self._pages += _PAGES_A_COMMAND + transaction.stored_bytes // _PAGE_BYTES
        return transaction

    def _commit(self) -> BaseException | None:
        started = perf_counter()
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            return self._rolled_back(error)
        self._last_commit = perf_counter() - started
        self._meters.commits.add(self._last_commit)
        # A moving average: one slow sync does not mean a slow disk.
        self._commit_seconds += (self._last_commit - self._commit_seconds) / 4
        return None

    def _rolled_back(self, error: Exception) -> BaseException:
        with contextlib.suppress(sqlite3.Error):
            self._connection.rollback()
        return translate(error)

    def _checkpoint(self) -> None:
        """Checkpoint the WAL. Pages that a reader still needs are left for the next time."""
        self._pages = 0
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            log.warning("checkpoint_failed", error=str(error))


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - in every commit, and Path takes twice as long
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _file_is_gone(path: Path) -> BrokerError:
    """SQLite would go on writing into a deleted file, and all of it would be lost on close."""
    return BrokerError(
        Code.UNAVAILABLE,
        f"the database {path} was moved, deleted or replaced while the broker was running",
        "Nothing was stored. Put the file back, or restart the broker.",
    )


def translate(error: BaseException) -> BaseException:
    """SQLite's error in our codes; other errors are returned unchanged."""
    # A plain DatabaseError means a damaged file; its subclasses are our own mistakes.
    if not isinstance(error, sqlite3.OperationalError) and type(error) is not sqlite3.DatabaseError:
        return error
    reason = str(error)
    if "locked" in reason or "busy" in reason:
        return BrokerError(
            Code.BUSY,
            "another process holds the database's write lock",
            "Nothing was stored; call again in a moment.",
        )
    return BrokerError(
        Code.UNAVAILABLE,
        f"the database cannot be used: {reason}",
        "Nothing was stored. Look at the disk's free space and the file's permissions, then call again.",
    )
