"""Work on a whole database: verifying, exporting, pruning, making tokens, moving it to another place."""

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gsd_review_broker.errors import StartError
from gsd_review_broker.files import make_private_folder, open_private, sync_folder
from gsd_review_broker.service.wire.broker import Pruned
from gsd_review_broker.settings.config import Configuration
from gsd_review_broker.settings.state_files import Database, draft_path
from gsd_review_broker.store import lock, verification

if TYPE_CHECKING:
    from gsd_review_broker.service.broker import Broker
    from gsd_review_broker.service.commands.tokens import Tokens
    from gsd_review_broker.store.postgres.copying import PostgresTarget

T = TypeVar("T")


def verify(database: Database, archives: Sequence[Path] = ()) -> verification.VerificationReport:
    with as_file(database) as path:
        return verification.verify(path, archives)


def export(database: Database) -> Iterator[dict[str, Any]]:
    with as_file(database) as path:
        yield from verification.export(path)


@contextlib.contextmanager
def as_file(database: Database) -> Generator[Path]:
    """Return the SQLite file; of a PostgreSQL database, a copy of one snapshot."""
    if database.url is None:
        yield database.path
        return
    from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - only some commands need it

    with tempfile.TemporaryDirectory(prefix="tandem-snapshot-") as folder:
        copy = Path(folder) / database.name
        asyncio.run(copying.snapshot(database, copy))
        yield copy


def prune(configuration: Configuration, closed_before: str, report: Callable[[Pruned], None]) -> None:
    """Prune as a broker without clients: it takes the database's lock, so a running broker is never disturbed."""

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
    """Work on tokens. A missing database is made: tokens may come before the first start."""
    return _as_broker(configuration, lambda broker: do(broker.tokens))


def _as_broker(configuration: Configuration, do: "Callable[[Broker], Awaitable[T]]") -> T:
    from gsd_review_broker.app import Application  # noqa: PLC0415 - only some commands need it

    async def run() -> T:
        application = Application(configuration, port=0)
        application.store.open()
        try:
            return await do(application.broker)
        finally:
            await application.store.close()

    return asyncio.run(run())


# Moving. The mark on the source decides: before it nothing has happened, after it no broker opens the source.


class MoveReport(NamedTuple):
    events: int
    reviews: int


class _SourceAtRest(NamedTuple):
    # A SQLite file with its rows.
    file: Path
    mark_moved: Callable[[str], Awaitable[None]]


def move(source: Database, target: Database) -> MoveReport:
    """Copy a database that no broker uses, compare and verify the copy, and mark the source. Raises StartError."""
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-move-") as folder:
            return asyncio.run(_move(source, target, Path(folder)))
    except (OSError, sqlite3.Error) as error:
        raise StartError(f"the database {source} cannot be copied to {target}: {error}.") from error


def reopen(database: Database) -> str | None:
    """Let brokers use a database again. Returns where its reviews had been moved to, if they had."""

    async def run() -> str | None:
        to = await _moved_to(database)
        await _reopen(database)
        return to

    return asyncio.run(run())


async def _move(source: Database, target: Database, folder: Path) -> MoveReport:
    if source.url is None and not source.path.is_file():
        raise StartError(f"there is no database {source}; give its path with --db.")
    async with _locked(source):
        await _refuse_moved(source, target)
        async with _target_of(target) as place, _at_rest(source, folder) as rest:
            await place.load(rest.file)
            copy = await place.copied(folder)
            if different := verification.differing_tables(rest.file, copy):
                raise StartError(f"the copy {target} differs in {', '.join(different)}; run this again.")
            report = verification.verify(copy)
            if report.problems:
                raise StartError(f"the database {source} is not whole ({report.problems[0]}); nothing was moved.")
            await rest.mark_moved(str(target))
            await place.finish()
    return MoveReport(events=report.events, reviews=report.reviews)


@contextlib.asynccontextmanager
async def _locked(database: Database) -> AsyncGenerator[None]:
    """Keep brokers of this machine and other moves from the database meanwhile."""
    make_private_folder(database.path.parent)
    held = lock.DatabaseLock(database)
    held.acquire(advice="stop it with `tandem down`, and run this again.")
    try:
        yield
    finally:
        held.release()


async def _refuse_moved(source: Database, target: Database) -> None:
    """Refuse a database that was moved. A move that died after it marked the source is done again."""
    to = await _moved_to(source)
    if to is None:
        return
    if to != str(target) or not await _is_unfinished(target):
        raise StartError(
            f"the database {source} was moved to {to} already; move that one, or open this one again with `tandem db "
            "reopen`."
        )
    await _reopen(source)


async def _moved_to(database: Database) -> str | None:
    if database.url is None:
        return lock.moved_to(database)
    from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - an extra

    return await copying.moved_to(database)


async def _is_unfinished(target: Database) -> bool:
    if target.url is None:
        return draft_path(target).exists()
    from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - an extra

    return await copying.is_unfinished(target)


async def _reopen(database: Database) -> None:
    if database.url is None:
        lock.reopen(database)
        return
    from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - an extra

    await copying.reopen(database)


@contextlib.asynccontextmanager
async def _at_rest(database: Database, folder: Path) -> AsyncGenerator[_SourceAtRest]:
    if database.url is None:

        async def mark(to: str) -> None:
            lock.mark_moved(database, to)

        yield _SourceAtRest(database.path, mark)
        return
    from gsd_review_broker.service.pool_records import SILENCE_MILLISECONDS  # noqa: PLC0415 - only PostgreSQL
    from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - an extra

    copy = folder / "source.sqlite3"
    async with copying.at_rest(database, copy, silence_milliseconds=SILENCE_MILLISECONDS) as mark_moved:
        yield _SourceAtRest(copy, mark_moved)


@contextlib.asynccontextmanager
async def _target_of(database: Database) -> "AsyncGenerator[_FileTarget | PostgresTarget]":
    if database.url is not None:
        from gsd_review_broker.store.postgres.copying import PostgresTarget  # noqa: PLC0415 - an extra

        yield PostgresTarget(database)
        return
    async with _locked(database):
        if database.path.exists():
            raise StartError(f"{database} exists already; give a new file's path.")
        yield _FileTarget(database)


class _FileTarget:
    """A new file, which gets its name last."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._draft = draft_path(database)

    async def load(self, source: Path) -> None:
        self._draft.unlink(missing_ok=True)
        os.close(open_private(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        with verification.opened(source) as rows, contextlib.closing(sqlite3.connect(self._draft)) as copy:
            rows.backup(copy)
            # One file, until a broker opens it.
            copy.execute("PRAGMA journal_mode=DELETE")

    async def copied(self, _folder: Path) -> Path:
        return self._draft

    async def finish(self) -> None:
        """Give the file its name. An earlier database of this name may have been moved away: clear that mark."""
        lock.reopen(self._database)
        self._draft.replace(self._database.path)
        sync_folder(self._database.path.parent)
