"""The database on PostgreSQL: its connections (asyncpg through SQLAlchemy), its clock, schema, marks and wake-ups.

Connections keep no state between two transactions, neither prepared statements nor settings, so that a connection
pooler in transaction mode (pgbouncer) may stand in between. Only wake-ups need a session: each commit notifies the
other brokers, and LISTEN has its own connection.
"""

import asyncio
import contextlib
import importlib
import json
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.errors import StartError
from gsd_review_broker.ports.store import Watcher
from gsd_review_broker.ports.world import Clock, Wakeups
from gsd_review_broker.settings.state_files import Database, key_of
from gsd_review_broker.store import lock, migrations, schema
from gsd_review_broker.store.statements import Statements, parameter
from gsd_review_broker.store.tables import audit_head, metadata, prepare_for_postgresql
from gsd_review_broker.store.writes import MOVED_HEAD, SqlTransaction

log = structlog.get_logger()
# Imported by name: it is an extra, and has no types.
asyncpg: Any = importlib.import_module("asyncpg")

# One command after the other holds the audit's head, so more connections would only wait for it.
CONNECTIONS = 10
# More than there are statements.
_KNOWN_STATEMENTS = 500
# How long a call waits for a free connection, and for the server to accept a new one.
PATIENCE_SECONDS = 10.0
# Advisory locks, by number. The broker that holds one is the only one that does this.
SCHEMA_LOCK = 0x7A6E_0001
RETENTION_LOCK = 0x7A6E_0002
SWEEP_LOCK = 0x7A6E_0003
# Options of a connection that only reads, and sees one moment.
SNAPSHOT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
# How the server lists the connections of brokers; those of single commands have another name.
APPLICATION_NAME = "gsd-review-broker"
_NAME_FOR_A_MOMENT = f"{APPLICATION_NAME} (command)"
_NOW = sa.text("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
_TAKE_LOCK = sa.text(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
_HAS_VERSION = sa.text("SELECT to_regclass('alembic_version') IS NOT NULL")
_VERSION = sa.text("SELECT version_num FROM alembic_version")
_TABLES = sa.text("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()")
_SETTING = sa.text("SELECT current_setting(:name)")
_FIRST_HASH = "0" * 64
# Exists while a copy into this database is not finished. No broker starts on half of a database.
_UNFINISHED = "tandem_unfinished_copy"
_IS_UNFINISHED = sa.text(f"SELECT to_regclass('{_UNFINISHED}') IS NOT NULL")
_COPIED_BY = sa.text(f"SELECT mover FROM {_UNFINISHED}")  # noqa: S608 - names of ours
# Exists where the reviews were moved to another database; its one row names it. No broker starts here then.
_MOVED = "tandem_moved"
_IS_MOVED = sa.text(f"SELECT to_regclass('{_MOVED}') IS NOT NULL")
_MOVED_TO = sa.text(f"SELECT database FROM {_MOVED}")  # noqa: S608 - names of ours
# Wake-ups between brokers.
CHANNEL = "tandem_topics"
# Whatever was missed is read after this time.
REREAD_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
# PostgreSQL takes less than 8,000 bytes.
_LONGEST_PAYLOAD = 7_500
_EVERYTHING = "*"
_NOTIFY = sa.select(sa.func.pg_notify(sa.literal_column(f"'{CHANNEL}'"), sa.cast(parameter("payload"), sa.Text)))


class Dialect(PGDialect_asyncpg):
    """Asks the server nothing when a connection opens: outside a transaction, a pooler could answer from another."""

    supports_statement_cache = True

    async def setup_asyncpg_json_codec(self, conn: Any) -> None:
        """JSON is text here."""

    async def setup_asyncpg_jsonb_codec(self, conn: Any) -> None:
        """JSON is text here."""


registry.register("postgresql.tandem", __name__, "Dialect")


def make_engine(url: str, *, pooled: bool = True) -> AsyncEngine:
    def connect() -> Any:
        # asyncpg reads the address itself, as libpq does: sockets, sslmode, passfile and all.
        return engine.dialect.loaded_dbapi.connect(
            url,
            timeout=PATIENCE_SECONDS,
            # With 0, asyncpg names no statements: each is parsed again in the round trip that runs it. SQLAlchemy keeps
            # only the types of its parameters and columns, which saves the round trip that asks for them.
            statement_cache_size=0,
            prepared_statement_cache_size=_KNOWN_STATEMENTS,
            server_settings={"application_name": APPLICATION_NAME if pooled else _NAME_FOR_A_MOMENT},
        )

    limits: dict[str, Any] = (
        {"pool_size": CONNECTIONS, "max_overflow": 0, "pool_timeout": PATIENCE_SECONDS} if pooled else {}
    )
    engine = create_async_engine(
        sa.URL.create("postgresql+tandem"),
        creator=connect,
        poolclass=AsyncAdaptedQueuePool if pooled else NullPool,
        **limits,
    )
    return engine


def broker_id_of(database: Database) -> str:
    """Name the broker by its machine and by the place for its own files, which no other broker has."""
    return f"{socket.gethostname()}:{key_of(str(database.path))}"


class DatabaseClock:
    """Each command reads it. Between two commands this machine's steady clock carries it on."""

    def __init__(self) -> None:
        self._ahead = time.time_ns() // 1_000_000 - self.steady()

    def now(self) -> Milliseconds:
        return Milliseconds(self.steady() + self._ahead)

    def steady(self) -> Milliseconds:
        return Milliseconds(time.monotonic_ns() // 1_000_000)

    def read(self, statements: Statements) -> Milliseconds:
        row = statements.row(_NOW, {})
        assert row is not None  # noqa: S101 - the answer is always one row
        self._ahead = row[0] - self.steady()
        return Milliseconds(row[0])


class PostgresTransaction(SqlTransaction):
    """Its time is read when it is first needed, which is after the review was locked: of two commands on one review,
    the later one has the later time."""

    def __init__(self, statements: Statements, clock: Clock, watchers: Sequence[Watcher]) -> None:
        super().__init__(statements, Milliseconds(0), watchers)
        self._clock = clock
        self._read_at: Milliseconds | None = None

    @property
    def now(self) -> Milliseconds:
        if self._read_at is None:
            clock = self._clock
            self._read_at = clock.read(self._statements) if isinstance(clock, DatabaseClock) else clock.now()
        return self._read_at


async def prepare(engine: AsyncEngine, database: object) -> None:
    """Several brokers may start at once; each but the first finds the work done."""
    async with engine.begin() as connection:
        await connection.run_sync(_prepare, database)
        unsafe = await connection.run_sync(_unsafe_settings)
    for name in unsafe:
        log.warning("server_may_lose_commits", switched_off=name)


def _unsafe_settings(connection: sa.Connection) -> list[str]:
    """Settings without which the server's death loses what it has acknowledged."""
    return [
        name
        for name in ("fsync", "synchronous_commit")
        if connection.execute(_SETTING, {"name": name}).scalar() == "off"
    ]


def stored_version(connection: sa.Connection) -> str | None:
    if not connection.execute(_HAS_VERSION).scalar():
        return None
    return connection.execute(_VERSION).scalar()


def _prepare(connection: sa.Connection, database: object) -> None:
    if is_unfinished(connection):
        raise StartError(
            f"a copy into the database {database} was not finished; run `tandem db migrate-to` again: it starts over."
        )
    to = moved_to(connection)
    if to is not None:
        raise lock.moved_refusal(database, to)
    if stored_version(connection) == schema.HEAD:
        return
    connection.execute(_TAKE_LOCK)
    version = stored_version(connection)
    schema.refuse_unknown(version, database)
    if version is None:
        _create(connection, database)
    elif version != schema.HEAD:
        migrations.run(connection)


def create_empty(connection: sa.Connection, database: object, mover: str) -> None:
    """Prepare a database that `mover` fills from another. What an interrupted copy left is replaced."""
    connection.execute(_TAKE_LOCK)
    if is_unfinished(connection):
        metadata.drop_all(connection)
        connection.execute(sa.text(f"DROP TABLE alembic_version, {_UNFINISHED}"))
    _create(connection, database)
    connection.execute(sa.text(f"CREATE TABLE {_UNFINISHED} (mover TEXT NOT NULL)"))
    connection.execute(sa.text(f"INSERT INTO {_UNFINISHED} VALUES (:mover)"), {"mover": mover})  # noqa: S608 - names of ours


def is_unfinished(connection: sa.Connection) -> bool:
    return bool(connection.execute(_IS_UNFINISHED).scalar())


def refuse_other_copy(connection: sa.Connection, database: object, mover: str) -> None:
    """Has another move begun to fill this database since? Until the end of this transaction none begins."""
    connection.execute(_TAKE_LOCK)
    if not is_unfinished(connection) or connection.execute(_COPIED_BY).scalar() != mover:
        raise StartError(f"another `tandem db migrate-to` copies to the database {database}; nothing was moved.")


def finish_copy(connection: sa.Connection) -> None:
    """Let brokers start from now on."""
    connection.execute(sa.text(f"DROP TABLE {_UNFINISHED}"))


def moved_to(connection: sa.Connection) -> str | None:
    return connection.execute(_MOVED_TO).scalar() if connection.execute(_IS_MOVED).scalar() else None


def mark_moved(connection: sa.Connection, to: str) -> None:
    """Give the head another number, so that a writer that knows nothing of the move does not find it."""
    connection.execute(sa.text(f"CREATE TABLE {_MOVED} (database TEXT NOT NULL)"))
    connection.execute(sa.text(f"INSERT INTO {_MOVED} VALUES (:to)"), {"to": to})  # noqa: S608 - names of ours
    connection.execute(sa.update(audit_head).values(id=MOVED_HEAD))


def reopen(connection: sa.Connection) -> None:
    connection.execute(sa.text(f"DROP TABLE IF EXISTS {_MOVED}"))
    connection.execute(sa.update(audit_head).where(audit_head.c.id == MOVED_HEAD).values(id=1))


def _create(connection: sa.Connection, database: object) -> None:
    """Make the present schema at once, without Alembic."""
    if connection.execute(_TABLES).scalar():
        raise StartError(f"the database {database} holds tables of another program; give an empty one with --db.")
    prepare_for_postgresql()
    metadata.create_all(connection, checkfirst=False)
    connection.execute(audit_head.insert(), {"id": 1, "sequence": 0, "hash": _FIRST_HASH})
    connection.execute(
        sa.text(
            "CREATE TABLE alembic_version "
            "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(sa.text("INSERT INTO alembic_version VALUES (:version)"), {"version": schema.HEAD})


def _set_event(event: asyncio.Event, _connection: Any) -> None:
    event.set()


class Listener:
    """Publishes here what other brokers committed. A lost connection is made again, and then all waiters are woken."""

    def __init__(self, url: str, wakeups: Wakeups) -> None:
        self._url = url
        self._wakeups = wakeups
        # Our own commits wake our waiters directly.
        self._name = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None
        # For tests and for a start that waits: set while the connection is there.
        self.is_listening = asyncio.Event()

    def notify(self, statements: Statements, topics: Iterable[str]) -> None:
        """Notify in the transaction: the server sends it with the commit, or not at all."""
        unique = sorted(set(topics))
        if not unique:
            return
        payload = json.dumps([self._name, *unique])
        if len(payload) > _LONGEST_PAYLOAD:
            payload = json.dumps([self._name, _EVERYTHING])
        statements.rows(_NOTIFY, {"payload": payload})

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                connection = await asyncpg.connect(
                    self._url, timeout=PATIENCE_SECONDS, server_settings={"application_name": APPLICATION_NAME}
                )
                try:
                    await connection.add_listener(CHANNEL, self._heard)
                    pause = _FIRST_PAUSE_SECONDS
                    await self._listen(connection)
                finally:
                    self.is_listening.clear()
                    connection.terminate()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
                log.warning("not_listening", reason=str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _listen(self, connection: Any) -> None:
        """Wait until the connection is lost, which raises. The slow re-read notices that, too."""
        self.is_listening.set()
        lost = asyncio.Event()
        connection.add_termination_listener(partial(_set_event, lost))
        while True:
            self._wakeups.publish_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REREAD_SECONDS):
                    await lost.wait()
            await connection.execute("SELECT 1", timeout=PATIENCE_SECONDS)

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: Any) -> None:
        sender, *topics = json.loads(payload)
        if sender == self._name:
            return
        if topics == [_EVERYTHING]:
            self._wakeups.publish_all()
        else:
            self._wakeups.publish(topics)
