"""SQLite: one connection writes (see writer.py), the others only read.

SQLite up to 3.51.2 can corrupt a WAL when two connections write or checkpoint at once, and most Pythons carry such a
version. Therefore readers here cannot write, and no other process opens the file for writing.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog
from sqlalchemy.exc import DBAPIError

from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.files import make_private_folder, open_private
from gsd_review_broker.observe.telemetry import Meters
from gsd_review_broker.ports.store import Archived, Reader, Transaction, Watcher
from gsd_review_broker.ports.world import Clock, Wakeups
from gsd_review_broker.settings.state_files import Database, draft_path
from gsd_review_broker.store import archive, lock, migrations, schema
from gsd_review_broker.store.beside_reviews import SOLE_BROKER
from gsd_review_broker.store.reads import SqlReader
from gsd_review_broker.store.sqlite_writer import BUSY_TIMEOUT_MILLISECONDS, Writer, translate
from gsd_review_broker.store.statements import SqliteStatements

T = TypeVar("T")
log = structlog.get_logger()

READER_THREADS = 2


class SqliteStore:
    is_shared = False

    def __init__(self, path: Path, *, clock: Clock, wakeups: Wakeups, meters: Meters) -> None:
        self._path = path
        self._clock = clock
        self._wakeups = wakeups
        self._meters = meters
        self._database = Database(path)
        self._lock = lock.DatabaseLock(self._database)
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="reader")
        self._closed = False
        self._archiving = asyncio.Lock()
        # Each watcher sees every change inside its transaction.
        self.watchers: list[Watcher] = []

    def open(self) -> None:
        """Takes the lock and brings the schema up to date. Raises StartError."""
        try:
            _refuse_elsewhere(self._database)
            _make_private(self._path)
            self._lock.acquire()
            # A move may have held the lock until now.
            _refuse_elsewhere(self._database)
            self._connection = self._opened(_connect(self._path, read_only=False))
            self._migrate()
            self._glancer = self._opened(_connect(self._path, read_only=True))
        except (OSError, DBAPIError, sqlite3.Error) as error:
            self._abandon()
            raise StartError(_cannot_open(self._path, error)) from error
        except StartError:
            self._abandon()
            raise
        self._glances = SqlReader(SqliteStatements(self._glancer))
        self._own_glances = SqlReader(SqliteStatements(self._connection))
        self.writer = Writer(
            self._connection,
            self._path,
            clock=self._clock,
            wakeups=self._wakeups,
            meters=self._meters,
            watchers=self.watchers,
        )

    @property
    def pending_writes(self) -> int:
        return self.writer.pending

    def _opened(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        self._connections.append(connection)
        return connection

    def _abandon(self) -> None:
        """Close everything after a failed start."""
        for connection in self._connections:
            connection.close()
        self._lock.release()

    def _migrate(self) -> None:
        version = schema.stored_version(self._connection)
        schema.refuse_foreign(self._connection, version, self._path)
        schema.refuse_unknown(version, self._path)
        if version == schema.HEAD:
            return
        if version is not None:
            copy = migrations.back_up(self._connection, self._path, version)
            log.info("database_backed_up", to=str(copy), schema=version)
        migrations.upgrade(self._connection)

    async def close(self) -> None:
        """Finish the commands that are queued; then fold the WAL into the file."""
        if self._closed:
            return
        self._closed = True
        await self.writer.close()
        self._pool.shutdown(wait=True)
        for connection in [self._glancer, *self._readers]:
            connection.close()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        self._lock.release()

    @property
    def broker_id(self) -> str:
        # The lock admits one broker at a time, so the next one to open the file replaces the previous one.
        return SOLE_BROKER

    async def start(self) -> None:
        """Nothing runs beside the commands."""

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncGenerator[bool]:
        """Always: the lock admits no other broker."""
        yield True

    async def is_ready(self) -> bool:
        return not self._closed

    async def write(self, command: Callable[[Transaction], T]) -> T:
        if self._closed:
            raise BrokerError(Code.UNAVAILABLE, "the broker is shutting down", "Call again when it is back.")
        return await self.writer.write(command)

    async def glance(self, query: Callable[[Reader], T]) -> T:
        # The writer's connection still has the pages that it wrote. Any other one reads them again after each commit.
        reader = self._glances if self.writer.is_away else self._own_glances
        try:
            return query(reader)
        except sqlite3.Error as error:
            raise translate(error) from error

    async def read(self, query: Callable[[Reader], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, query)

    async def archive(self, *, closed_before: Milliseconds, said_as: str, into: str) -> Archived:
        target = self._path.with_name(into)
        loop = asyncio.get_running_loop()
        async with self._archiving:
            batch = await loop.run_in_executor(self._pool, self._copy_closed, closed_before, target)
            return await archive.remove_copied(self, batch, archive=into, closed_before=said_as)

    def _copy_closed(self, before: Milliseconds, target: Path) -> dict[ReviewId, int]:
        try:
            source = self._reader()
            # One snapshot: rows that another prune removes meanwhile can still be copied.
            source.execute("BEGIN")
            try:
                statements = SqliteStatements(source)
                batch = archive.closed_reviews(statements, before)
                if batch:
                    with archive.opened_archive(target) as copies:
                        archive.copy(((id_, archive.rows_of(statements, id_)) for id_ in batch), copies)
            finally:
                source.execute("COMMIT")
        except (sqlite3.Error, DBAPIError) as error:
            raise translate(sqlite3.OperationalError(str(error))) from error
        except (OSError, StartError) as error:
            raise BrokerError(Code.UNAVAILABLE, str(error), "Nothing was moved.") from error
        return batch

    def _reader(self) -> sqlite3.Connection:
        """Return the calling thread's own connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = _connect(self._path, read_only=True)
            self._readers.append(connection)
        return connection

    def _read(self, query: Callable[[Reader], T]) -> T:
        connection = self._reader()
        try:
            # One snapshot for the whole query.
            connection.execute("BEGIN")
            try:
                return query(SqlReader(SqliteStatements(connection)))
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate(error) from error


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    # isolation_level None: this class begins and ends the transactions.
    # A reader must not create a file that no longer exists.
    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(
        address, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        _prepare(connection, read_only=read_only)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, *, read_only: bool) -> None:
    schema.harden(connection)
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MILLISECONDS}")
    if read_only:
        connection.execute("PRAGMA query_only=ON")
    else:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        # Every command touches about ten indexes at random places, which do not fit into the default 2 MB.
        connection.execute("PRAGMA cache_size=-65536")
        # A savepoint keeps the old state of each page that its command changes. SQLite would write it to a temporary
        # file from 16 pages on, which is one new review.
        connection.execute("PRAGMA temp_store=MEMORY")
        # The writer checkpoints the WAL when no commit is waiting.
        connection.execute("PRAGMA wal_autocheckpoint=0")


def _refuse_elsewhere(database: Database) -> None:
    """Nothing is created where the reviews have left, or have not arrived."""
    to = lock.moved_to(database)
    if to is not None:
        raise lock.moved_refusal(database, to)
    if draft_path(database).exists() and not database.path.exists():
        raise StartError(
            f"a copy to the database {database} was not finished; run `tandem db migrate-to` again: it starts over. To "
            f"begin with an empty database instead, delete {draft_path(database).name}."
        )


def _make_private(path: Path) -> None:
    """Make the file private to its owner, and the folder if it is new. WAL and SHM take the file's mode."""
    make_private_folder(path.parent)
    # A link is followed only where the user named it: inside a repository it was refused before.
    os.close(open_private(Path(os.path.realpath(path)), os.O_RDWR | os.O_CREAT))


def _cannot_open(path: Path, error: Exception) -> str:
    reason = str(getattr(error, "orig", error))
    if "not a database" in reason or "malformed" in reason:
        return (
            f"the database {path} is damaged ({reason}); it was left as it is. Move it away and put a backup "
            "in its place, or save what can be saved with sqlite3's .recover."
        )
    return f"the database {path} cannot be opened: {reason}"
