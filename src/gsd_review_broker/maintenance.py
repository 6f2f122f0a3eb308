"""Work on a whole database, with or without a broker: verifying, exporting, pruning, making tokens."""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gsd_review_broker.errors import StartError
from gsd_review_broker.service.wire.broker import Pruned
from gsd_review_broker.settings.config import Configuration
from gsd_review_broker.settings.database import Database
from gsd_review_broker.store.sqlite import verification

if TYPE_CHECKING:
    from gsd_review_broker.service.broker import Broker
    from gsd_review_broker.service.commands.tokens import Tokens

T = TypeVar("T")


def verify(database: Database, archives: Sequence[Path] = ()) -> verification.VerificationReport:
    with as_file(database) as path:
        return verification.verify(path, archives)


def export(database: Database) -> Iterator[dict[str, Any]]:
    with as_file(database) as path:
        yield from verification.export(path)


@contextlib.contextmanager
def as_file(database: Database) -> Generator[Path]:
    """The SQLite file; of a PostgreSQL database, a copy of one snapshot of it."""
    if database.url is None:
        yield database.path
        return
    # Imported here: on SQLite it is not needed, and need not be installed.
    from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - only some commands need it

    with tempfile.TemporaryDirectory(prefix="tandem-snapshot-") as folder:
        copy = Path(folder) / database.name
        asyncio.run(copying.snapshot(database, copy))
        yield copy


def prune(configuration: Configuration, closed_before: str, report: Callable[[Pruned], None]) -> None:
    """Takes the database's lock, as a broker that serves nobody, so a running broker is never disturbed."""

    async def run(broker: "Broker") -> None:
        more = True
        while more:
            turn = await broker.retention.prune(closed_before)
            report(turn)
            more = turn["more"]

    database = configuration.database
    if database.url is None and not database.path.is_file():
        raise StartError(f"there is no database {database}; give its path with --db.")
    _as_broker(configuration, run)


def with_tokens(configuration: Configuration, do: "Callable[[Tokens], Awaitable[T]]") -> T:
    """The same. A database that does not exist yet is made: tokens may come before the first start."""
    return _as_broker(configuration, lambda broker: do(broker.tokens))


def _as_broker(configuration: Configuration, do: "Callable[[Broker], Awaitable[T]]") -> T:
    # Imported here: verifying and exporting need no server.
    from gsd_review_broker.app import Application  # noqa: PLC0415 - only some commands need it

    async def run() -> T:
        application = Application(configuration, port=0)
        application.store.open()
        try:
            return await do(application.broker)
        finally:
            await application.store.close()

    return asyncio.run(run())
