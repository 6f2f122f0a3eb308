"""SQLite: one thread owns the one connection that writes, and commands that arrive together share a commit.

Each command runs in its own savepoint and is acknowledged only after COMMIT. Readers are other connections
that cannot write: SQLite up to 3.51.2 can corrupt a WAL when two connections write or checkpoint at once.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import DBAPIError

from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.ports import Clock, Reader, Transaction, Wakeups
from gsd_review_broker.store import schema
from gsd_review_broker.store.lock import DatabaseLock
from gsd_review_broker.store.reads import SqlReader
from gsd_review_broker.store.session import SqliteSession
from gsd_review_broker.store.writes import SqlTransaction

T = TypeVar("T")
log = structlog.get_logger()

LARGEST_BATCH = 64
READER_THREADS = 2
BUSY_TIMEOUT_MILLISECONDS = 5_000


@dataclass(slots=True)
class _Job:
    command: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class SqliteStore:
    def __init__(self, path: Path, *, clock: Clock, wakeups: Wakeups) -> None:
        self._path = path
        self._clock = clock
        self._wakeups = wakeups
        self._lock = DatabaseLock(path)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="reader")
        self._writer_thread = threading.Thread(target=self._write_for_ever, name="writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    # Start and end.

    def open(self) -> None:
        """Takes the lock, brings the schema up to date, and starts the writer. Raises StartError."""
        try:
            _make_private(self._path)
            self._lock.acquire()
            self._writer = _connect(self._path, read_only=False)
            self._migrate()
            self._glancer = _connect(self._path, read_only=True)
        except (OSError, DBAPIError, sqlite3.Error) as error:
            raise StartError(_cannot_open(self._path, error)) from error
        self._glances = SqlReader(SqliteSession(self._glancer))
        self._writer_thread.start()

    def _migrate(self) -> None:
        version = schema.stored_version(self._writer)
        schema.refuse_newer(version, self._path)
        if version == schema.HEAD:
            return
        if version is not None:
            copy = schema.back_up(self._writer, self._path, version)
            log.info("database_backed_up", to=str(copy), schema=version)
        schema.upgrade(self._writer)

    async def close(self) -> None:
        """What was asked before is still done; then the WAL is folded into the file."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._writer_thread.join)
        self._pool.shutdown(wait=True)
        for connection in [self._glancer, *self._readers]:
            connection.close()
        self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._writer.close()
        self._lock.release()

    # Reading.

    async def glance(self, query: Callable[[Reader], T]) -> T:
        try:
            return query(self._glances)
        except sqlite3.Error as error:
            raise translate(error) from error

    async def read(self, query: Callable[[Reader], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, query)

    def _read(self, query: Callable[[Reader], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = _connect(self._path, read_only=True)
            self._readers.append(connection)
        try:
            # One snapshot for all that the query looks at.
            connection.execute("BEGIN")
            try:
                return query(SqlReader(SqliteSession(connection)))
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate(error) from error

    # Writing.

    async def write(self, command: Callable[[Transaction], T]) -> T:
        if self._closed:
            raise _shutting_down()
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(command, future))
        return await future

    def _write_for_ever(self) -> None:
        ended = False
        while not ended:
            job = self._jobs.get()
            if job is None:
                return
            batch = [job]
            while len(batch) < LARGEST_BATCH:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if job is None:
                    ended = True
                    break
                batch.append(job)
            self._commit(batch)

    def _commit(self, batch: list[_Job]) -> None:
        topics: list[str] = []
        writer = self._writer
        try:
            writer.execute("BEGIN IMMEDIATE")
            for job in batch:
                topics += self._run(job)
            writer.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - every caller of the batch must hear of it
            log.warning("commit_failed", error=str(error), commands=len(batch))
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            topics = []
            for job in batch:
                job.error = translate(error)
        assert self._loop is not None  # noqa: S101 - set before the first job is queued
        self._loop.call_soon_threadsafe(self._acknowledge, batch, topics)

    def _run(self, job: _Job) -> list[str]:
        """One command in its savepoint. What it raises is its own; a dead transaction is everybody's."""
        writer = self._writer
        transaction = SqlTransaction(SqliteSession(writer), self._clock.now())
        writer.execute("SAVEPOINT command")
        try:
            job.result = job.command(transaction)
        except BaseException as error:
            if not writer.in_transaction:
                raise
            writer.execute("ROLLBACK TO command")
            writer.execute("RELEASE command")
            job.error = translate(error)
            return []
        writer.execute("RELEASE command")
        return transaction.topics

    def _acknowledge(self, batch: list[_Job], topics: list[str]) -> None:
        self._wakeups.publish(topics)
        for job in batch:
            if job.future.done():
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)


def translate(error: BaseException) -> BaseException:
    """What SQLite said, in our codes; everything else stays what it is."""
    if not isinstance(error, sqlite3.OperationalError):
        return error
    said = str(error)
    if "locked" in said or "busy" in said:
        return BrokerError(Code.BUSY, "another process holds the database's write lock", "Call again in a moment.")
    return BrokerError(
        Code.UNAVAILABLE,
        f"the database cannot be used: {said}",
        "Nothing was stored. Look at the disk's free space and the file's permissions, then call again.",
    )


def _shutting_down() -> BrokerError:
    return BrokerError(Code.UNAVAILABLE, "the broker is shutting down", "Call again when it is back.")


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    # isolation_level None: transactions are ours to begin and end.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MILLISECONDS}")
    if read_only:
        connection.execute("PRAGMA query_only=ON")
    else:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _make_private(path: Path) -> None:
    """The folder ours alone if we make it; the file ours alone in any case. WAL and SHM take its mode."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, mode=0o700)
    path.touch(mode=0o600, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _cannot_open(path: Path, error: Exception) -> str:
    said = str(getattr(error, "orig", error))
    if "not a database" in said or "malformed" in said:
        return (
            f"the database {path} is damaged ({said}); it was left as it is. Move it away and put a backup "
            "in its place, or save what can be saved with sqlite3's .recover."
        )
    return f"the database {path} cannot be opened: {said}"
