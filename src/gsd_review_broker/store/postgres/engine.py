"""Connections to PostgreSQL: asyncpg through SQLAlchemy.

They keep no state between two transactions, neither prepared statements nor settings, so that a connection pooler in
transaction mode (pgbouncer) may stand in between.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

# One command after the other holds the audit's head, so more connections would only wait for it.
CONNECTIONS = 10
# More than there are statements.
_KNOWN_STATEMENTS = 500
# How long a call waits for a free connection, and for the server to accept a new one.
PATIENCE_SECONDS = 10.0
# Advisory locks, by number. Whoever holds one is the only broker of the database that does this.
SCHEMA_LOCK = 0x7A6E_0001
RETENTION_LOCK = 0x7A6E_0002
SWEEP_LOCK = 0x7A6E_0003
# Options of a connection that only reads, and sees one moment.
SNAPSHOT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
# How the server lists the connections of brokers; those of single commands have another name.
APPLICATION_NAME = "gsd-review-broker"
_NAME_FOR_A_MOMENT = f"{APPLICATION_NAME} (command)"


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
