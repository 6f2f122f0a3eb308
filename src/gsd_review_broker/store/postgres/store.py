"""PostgreSQL: one transaction for each command, and any number of brokers on one database.

Writing and reading stand together because they share the connections, their count and what is known of an outage.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any, NamedTuple, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.files import make_private_folder
from gsd_review_broker.observe import telemetry
from gsd_review_broker.observe.telemetry import Meters
from gsd_review_broker.ports.store import Archived, Reader, Transaction, Watcher
from gsd_review_broker.ports.world import Clock, Wakeups
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store import archive
from gsd_review_broker.store.lock import DatabaseLock
from gsd_review_broker.store.postgres.engine import (
    CONNECTIONS,
    RETENTION_LOCK,
    SNAPSHOT,
    SWEEP_LOCK,
    Listener,
    PostgresTransaction,
    broker_id_of,
    make_engine,
    prepare,
)
from gsd_review_broker.store.postgres.statements import (
    Outage,
    PostgresStatements,
    is_lost,
    is_same_key,
    not_known,
    reason_of,
    too_many_waiting,
    translate,
    unavailable,
)
from gsd_review_broker.store.reads import SqlReader
from gsd_review_broker.store.statements import Values, parameter
from gsd_review_broker.store.tables import events
from gsd_review_broker.store.writes import LastEvent, finish, lock_head

T = TypeVar("T")

# After a connection was lost in mid-commit, the server is asked this often, this far apart, what became of it.
_QUESTIONS = 20
_BETWEEN_QUESTIONS_SECONDS = 0.5
# Connections that commands leave free.
_FOR_READS = 3
# How long a command waits for a connection and for others' locks, all in all.
_WRITE_PATIENCE_SECONDS = 15.0
_IS_STORED = sa.select(events.c.id).where(events.c.id == parameter("id"), events.c.hash == parameter("hash"))
_PING = sa.text("SELECT 1")
_SWEEPING = sa.text(f"SELECT pg_try_advisory_xact_lock({SWEEP_LOCK})")
_RETENTION = sa.text(f"SELECT pg_advisory_xact_lock({RETENTION_LOCK})")


class _Done(NamedTuple):
    """A command that ran, before or after its commit."""

    result: Any
    topics: list[str]
    last_event: LastEvent | None


class _UnansweredError(Exception):
    """The connection was gone before the server answered anything: nothing happened, and a new one may be tried."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class PostgresStore:
    is_shared = True

    def __init__(
        self, database: Database, *, clock: Clock, wakeups: Wakeups, meters: Meters, listen_url: str | None = None
    ) -> None:
        assert database.url is not None  # noqa: S101 - chosen by it
        self._database = database
        self._url = database.url
        self._clock = clock
        self._wakeups = wakeups
        self._meters = meters
        self._lock = DatabaseLock(database)
        self._engine = make_engine(self._url)
        self._outage = Outage()
        self.listener = Listener(listen_url or self._url, wakeups)
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._disposed = False
        self._in_use = 0
        self._unused = asyncio.Event()
        self._unused.set()
        # Reads go on while all commands wait for the one that holds the chain's head.
        self._writers = asyncio.Semaphore(CONNECTIONS - _FOR_READS)
        self.patience_seconds = _WRITE_PATIENCE_SECONDS
        self._archiving = asyncio.Lock()
        self._archives = locations.data_folder() / "archives"
        self.watchers: list[Watcher] = []

    def open(self) -> None:
        """Brings the schema up to date. Raises StartError."""
        make_private_folder(self._database.path.parent)
        self._lock.acquire()
        try:
            # There may or may not be an event loop here; connections belong to the one that made them.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self._prepare()).result()
        except BaseException as error:
            self._lock.release()
            if isinstance(error, (exc.SQLAlchemyError, OSError, ValueError)):
                raise StartError(f"the database {self._database} cannot be opened: {reason_of(error)}") from error
            raise

    async def _prepare(self) -> None:
        engine = make_engine(self._url, pooled=False)
        try:
            await prepare(engine, self._database)
        finally:
            await engine.dispose()

    async def start(self) -> None:
        """Let other brokers' commits wake our waiters from now on."""
        self.listener.start()

    async def close(self) -> None:
        """Finishes the commands that are under way."""
        if self._closed:
            return
        self._closed = True
        await self.listener.close()
        if self._under_way:
            await asyncio.wait(self._under_way)
        # Only now: the commands needed connections.
        self._disposed = True
        await self._unused.wait()
        await self._engine.dispose()
        self._lock.release()

    @property
    def broker_id(self) -> str:
        return broker_id_of(self._database)

    @property
    def pending_writes(self) -> int:
        return len(self._under_way)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncGenerator[bool]:
        async with self._locked(_SWEEPING) as row:
            yield row == (True,)

    @contextlib.asynccontextmanager
    async def _locked(self, lock: sa.Executable) -> AsyncGenerator[Values | None]:
        """Hold the lock by a transaction that does nothing else, so that it ends with the connection too."""
        try:
            async with self._connected() as connection:
                yield await connection.run_sync(lambda held: PostgresStatements(held).row(lock, {}))
        except (exc.SQLAlchemyError, OSError) as error:
            raise translate(error) from error

    async def is_ready(self) -> bool:
        try:
            await self.glance(lambda reader: cast("SqlReader", reader).statements.rows(_PING, {}))
        except BrokerError:
            return False
        return True

    # Writing.

    async def write(self, command: Callable[[Transaction], T]) -> T:
        """Run a command. A caller that goes away does not undo it."""
        if self._closed:
            raise _shutting_down()
        with telemetry.span("store.write"):
            return await self._shielded(self._write(command))

    async def _shielded(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        self._meters.queued = len(self._under_way)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        self._meters.queued = len(self._under_way)
        # Fetched here, since its caller may have gone away.
        with contextlib.suppress(asyncio.CancelledError):
            task.exception()

    async def _write(self, command: Callable[[Transaction], T]) -> T:
        done = await self._again_if_unanswered(lambda: self._committed_after_others(command))
        self._meters.commands += 1
        self._wakeups.publish(done.topics)
        return done.result

    async def _again_if_unanswered(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Try a second time if the connection was cut while it was idle; the next one is new."""
        try:
            try:
                return await attempt()
            except _UnansweredError:
                return await attempt()
        except _UnansweredError as error:
            self._outage.begin(error.reason)
            raise translate(error.reason) from error
        except (exc.SQLAlchemyError, OSError) as error:
            raise translate(error) from error

    async def _committed_after_others(self, command: Callable[[Transaction], Any]) -> _Done:
        """Run the command again if another stored the same key at the same time: then it sees what is there."""
        try:
            return await self._committed(command)
        except exc.IntegrityError as error:
            if not is_same_key(error):
                raise
        return await self._committed(command)

    async def _committed(self, command: Callable[[Transaction], Any]) -> _Done:
        async with self._patiently() as patience, self._writers, self._connected() as connection:
            done = await connection.run_sync(self._run, command)
            # From here on the server may store it, so it is not given up.
            patience.reschedule(None)
            began = perf_counter()
            try:
                await connection.commit()
            except Exception as error:
                if not is_lost(error):
                    raise
                lost = error
            else:
                self._note_commit(perf_counter() - began)
                return done
        await self._resolve(done, lost)
        return done

    @contextlib.asynccontextmanager
    async def _patiently(self) -> AsyncGenerator[asyncio.Timeout]:
        """Give up a command that waits for others' locks for too long. Nothing of it is stored."""
        patience = asyncio.timeout(self.patience_seconds)
        try:
            async with patience:
                yield patience
        except TimeoutError as error:
            raise (too_many_waiting() if patience.expired() else error) from error

    def _note_commit(self, seconds: float) -> None:
        self._meters.commits.add(seconds)
        if telemetry.is_tracing():
            ended = time_ns()
            telemetry.past_span("store.commit", ended - int(seconds * 1e9), ended, shared_by=1)

    def _run(self, connection: sa.Connection, command: Callable[[Transaction], Any]) -> _Done:
        statements = PostgresStatements(connection)
        with _noticing_silence(statements):
            transaction = PostgresTransaction(statements, self._clock, self.watchers)
            result = command(transaction)
            last_event = finish(statements, [transaction])
            self.listener.notify(statements, transaction.topics)
            return _Done(result, transaction.topics, last_event)

    async def _resolve(self, done: _Done, lost: Exception) -> None:
        """Find out whether a commit was stored that lost its connection: its last event has a hash that no other has.

        The transaction that holds the chain's head may be this one, so the head is waited for first.
        """
        for _ in range(_QUESTIONS if done.last_event else 0):
            try:
                is_stored = await self._is_stored(done.last_event)
            except (BrokerError, exc.SQLAlchemyError, OSError):
                await asyncio.sleep(_BETWEEN_QUESTIONS_SECONDS)
                continue
            if is_stored:
                return
            raise translate(lost)
        raise not_known(reason_of(lost))

    async def _is_stored(self, event: LastEvent | None) -> bool:
        def look(connection: sa.Connection) -> bool:
            statements = PostgresStatements(connection)
            lock_head(statements)
            assert event is not None  # noqa: S101 - asked only if there is one
            return statements.row(_IS_STORED, {"id": event.number, "hash": event.hash}) is not None

        async with self._connected() as connection:
            return await connection.run_sync(look)

    # Reading.

    async def read(self, query: Callable[[Reader], T]) -> T:
        """Run a query on one snapshot."""
        return await self._again_if_unanswered(lambda: self._queried(query, SNAPSHOT))

    async def glance(self, query: Callable[[Reader], T]) -> T:
        return await self._again_if_unanswered(lambda: self._queried(query, {}))

    async def _queried(self, query: Callable[[Reader], T], options: dict[str, Any]) -> T:
        def run(connection: sa.Connection) -> T:
            statements = PostgresStatements(connection)
            with _noticing_silence(statements):
                return query(SqlReader(statements))

        async with self._connected() as connection:
            await connection.execution_options(**options)
            return await connection.run_sync(run)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncGenerator[AsyncConnection]:
        if self._disposed:
            raise _shutting_down()
        self._outage.refuse()
        with self._counted():
            connection = await self._connect()
            try:
                yield connection
            finally:
                await connection.close()

    @contextlib.contextmanager
    def _counted(self) -> Generator[None]:
        self._in_use += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._in_use -= 1
            if not self._in_use:
                self._unused.set()

    async def _connect(self) -> AsyncConnection:
        try:
            connection = await self._engine.connect()
        except exc.TimeoutError:
            # All connections are in use.
            raise
        except (exc.SQLAlchemyError, OSError) as error:
            self._outage.begin(error)
            raise unavailable(reason_of(error)) from error
        self._outage.end()
        return connection

    async def archive(self, *, closed_before: Milliseconds, said_as: str, into: str) -> Archived:
        """Move closed reviews into the archive, a SQLite file in this broker's own folder.

        One broker at a time: its copies must not replace newer ones, and the gaps that it leaves touch those of others.
        """
        async with self._archiving, self._locked(_RETENTION):
            batch = await self._copy_closed(closed_before, self._archives / into)
            return await archive.remove_copied(self, batch, archive=into, closed_before=said_as)

    async def _copy_closed(self, before: Milliseconds, target: Path) -> dict[ReviewId, int]:
        def closed(reader: Reader) -> tuple[dict[ReviewId, int], list[archive.Copy]]:
            statements = cast("SqlReader", reader).statements
            batch = archive.closed_reviews(statements, before)
            return batch, [(review_id, archive.rows_of(statements, review_id)) for review_id in batch]

        batch, copies = await self.read(closed)
        if copies:
            await asyncio.to_thread(archive.write, target, copies)
        return batch


def _shutting_down() -> BrokerError:
    return BrokerError(Code.UNAVAILABLE, "the broker is shutting down", "Call again when it is back.")


@contextlib.contextmanager
def _noticing_silence(statements: PostgresStatements) -> Generator[None]:
    try:
        yield
    except Exception as error:
        if is_lost(error) and not statements.answered:
            raise _UnansweredError(error) from error
        raise
