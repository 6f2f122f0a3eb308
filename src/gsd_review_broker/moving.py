"""Moves a whole database between SQLite and PostgreSQL while its brokers run; they hold their writes for the cut-over.

1. Beside the running brokers: a copy of this moment is verified, loaded into the target and compared row by row. Then
   the target follows what has changed meanwhile.
2. The writes are held. The target follows once more, so that it has every row that the source has.
3. The source is marked as moved, which decides: before it nothing has happened, after it no broker writes there.
4. The target is finished: a broker may start on it. It is verified once more.

The hold ends with the mover's process. If that dies before step 3, the brokers go on as if nothing had been. If it dies
between 3 and 4, neither database takes writes, and the next run moves it again.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gsd_review_broker.errors import StartError
from gsd_review_broker.maintenance import verify
from gsd_review_broker.settings.state_files import Database
from gsd_review_broker.store.changes import Changes, DifferentError
from gsd_review_broker.store.sqlite import verification
from gsd_review_broker.store.sqlite.moving import SqliteSource, SqliteTarget, follow_in_file

# Whatever happens, writes are not held longer.
LONGEST_HOLD_SECONDS = 60.0
# What is stored while a copy is made is copied next, which takes less time each time, until there is little left.
_ROUNDS = 10
_FEW = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    events: int
    reviews: int
    # How long no broker could write: from the beginning of the hold until the target could be used.
    cut_over_seconds: float


class Source(Protocol):
    async def moved_to(self) -> str | None: ...

    async def reopen(self) -> None: ...

    async def copy_to(self, base: Path) -> None:
        """One moment of it, into a new SQLite file. The copy must be known as `base` to `changes_since`."""
        ...

    async def changes_since(self, base: Path) -> Changes:
        """Of all rows. The caller makes the same changes to the base."""
        ...

    def held(self) -> AbstractAsyncContextManager[None]:
        """No broker commits meanwhile; reads go on."""
        ...

    async def mark_moved(self, to: str) -> None:
        """While its writes are held. From now on no broker commits here, and each says where the reviews are."""
        ...


class Target(Protocol):
    def reserved(self) -> AbstractAsyncContextManager[None]: ...

    async def is_unfinished(self) -> bool: ...

    async def load(self, base: Path) -> None:
        """Starts over if it is unfinished; anything else that it holds is refused."""
        ...

    async def differing(self, base: Path) -> list[str]: ...

    async def follow(self, changes: Changes) -> None:
        """All of them or none. Every row is read again and compared."""
        ...

    async def finish(self) -> None:
        """From now on, a broker may start."""
        ...


def move(source: Database, target: Database, *, when_moved: Callable[[], None] = lambda: None) -> Moved:
    """Brokers may run on the source, here and elsewhere. Raises StartError.

    `when_moved` is called as soon as the target can be used, before it is verified once more.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-move-") as folder:
            seconds = asyncio.run(_Move(source, target, Path(folder) / "base.sqlite3").run())
    except TimeoutError as error:
        raise StartError(f"the cut-over took longer than {LONGEST_HOLD_SECONDS:g} s; nothing was moved.") from error
    except (OSError, sqlite3.Error) as error:
        raise StartError(f"the database {source} cannot be copied to {target}: {error}.") from error
    when_moved()
    verified = verify(target)
    if verified.problems:
        raise StartError(
            f"the database {target} has the rows of {source}, and is not whole ({verified.problems[0]}). `tandem db "
            "reopen` opens the old one again."
        )
    return Moved(events=verified.events, reviews=verified.reviews, cut_over_seconds=seconds)


def reopen(database: Database) -> str | None:
    """Writes are accepted again. Returns where the reviews had been moved to, if they had."""

    async def run() -> str | None:
        source = _source_of(database)
        to = await source.moved_to()
        await source.reopen()
        return to

    return asyncio.run(run())


class _Move:
    def __init__(self, source: Database, target: Database, base: Path) -> None:
        self._names = source, target
        self._source = _source_of(source)
        self._target = _target_of(target)
        # The source as the target has it.
        self._base = base

    async def run(self) -> float:
        await self._refuse_moved()
        async with self._target.reserved():
            await self._prepare()
            async with asyncio.timeout(LONGEST_HOLD_SECONDS), self._source.held():
                began = time.monotonic()
                await self._follow()
                await self._source.mark_moved(str(self._names[1]))
                await self._target.finish()
                return time.monotonic() - began

    async def _refuse_moved(self) -> None:
        """A move that died just before its target was finished is done again."""
        source, target = self._names
        to = await self._source.moved_to()
        if to is None:
            return
        if to != str(target) or not await self._target.is_unfinished():
            raise StartError(
                f"the database {source} was moved to {to} already; move that one, or open this one again with `tandem "
                "db reopen`."
            )
        await self._source.reopen()

    async def _prepare(self) -> None:
        """Beside the running brokers: whatever takes long, and whatever can fail."""
        source, target = self._names
        await self._source.copy_to(self._base)
        report = verification.verify(self._base)
        if report.problems:
            raise StartError(f"the database {source} is not whole ({report.problems[0]}); nothing was copied.")
        await self._target.load(self._base)
        if different := await self._target.differing(self._base):
            raise StartError(f"the copy {target} differs in {', '.join(different)}; copy again.")
        for _ in range(_ROUNDS):
            changes = await self._follow()
            follow_in_file(self._base, changes)
            if changes.size < _FEW:
                break

    async def _follow(self) -> Changes:
        changes = await self._source.changes_since(self._base)
        try:
            await self._target.follow(changes)
        except DifferentError as error:
            raise StartError(f"the copy {self._names[1]} differs in {error}; copy again.") from error
        return changes


def _source_of(database: Database) -> Source:
    if database.url is None:
        return SqliteSource(database)
    from gsd_review_broker.store.postgres.moving import PostgresSource  # noqa: PLC0415 - an extra

    return PostgresSource(database)


def _target_of(database: Database) -> Target:
    if database.url is None:
        return SqliteTarget(database)
    from gsd_review_broker.store.postgres.moving import PostgresTarget  # noqa: PLC0415 - an extra

    return PostgresTarget(database)
