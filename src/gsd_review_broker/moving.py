"""Moves a whole database between SQLite and PostgreSQL: a rehearsal beside the running broker, then a short cut-over.

The target counts as unfinished, and no broker starts on it, until its rows were compared with the source's. A move that
is interrupted at any moment leaves the source as it was; the next one starts over.
"""

import asyncio
import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.errors import StartError
from gsd_review_broker.files.private import make_private_folder, open_private
from gsd_review_broker.maintenance import as_file
from gsd_review_broker.settings.database import Database
from gsd_review_broker.store.sqlite import verification
from gsd_review_broker.store.sqlite.lock import DatabaseLock

_RESTART = " The broker was stopped: start it again with `tandem up`."


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    events: int
    reviews: int
    # How long no broker could write: from the broker's stop until the target could be used.
    cut_over_seconds: float


def move(source: Database, target: Database, *, stop_broker: Callable[[], None] | None = None) -> Moved:
    """The source is left as it is. A broker that runs on it is stopped by `stop_broker`, after the rehearsal."""
    if stop_broker is None:
        with as_file(source) as file:
            _verify(file, source)
    else:
        _rehearse(source, target)
    began = time.monotonic()
    if stop_broker is not None:
        stop_broker()
    try:
        with _alone_on(source), as_file(source) as file, _copied(file, target) as copy:
            _refuse_used(source)
            _finish(target)
            seconds = time.monotonic() - began
            report = _verified(copy if target.url is not None else target.path, target)
    except StartError as error:
        raise StartError(f"{error}{_RESTART if stop_broker else ''}") from error
    return Moved(events=report.events, reviews=report.reviews, cut_over_seconds=seconds)


def _rehearse(source: Database, target: Database) -> None:
    """Whatever can fail is tried with a copy of this moment, while the broker goes on."""
    with tempfile.TemporaryDirectory(prefix="tandem-move-") as folder, as_file(source) as file:
        frozen = Path(folder) / "source.sqlite3"
        _back_up(file, frozen)
        _verify(frozen, source)
        with _copied(frozen, target):
            pass


def _verify(file: Path, source: Database) -> None:
    report = verification.verify(file)
    if report.problems:
        raise StartError(f"the database {source} is not whole ({report.problems[0]}); nothing was copied.")


def _verified(copy: Path, target: Database) -> verification.VerificationReport:
    report = verification.verify(copy)
    if report.problems:
        raise StartError(f"the database {target} has the same rows, and is not whole ({report.problems[0]}).")
    return report


@contextlib.contextmanager
def _alone_on(source: Database) -> Generator[None]:
    """No broker on this machine starts meanwhile."""
    make_private_folder(source.path.parent)
    lock = DatabaseLock(source)
    lock.acquire()
    try:
        _refuse_used(source)
        yield
    finally:
        lock.release()


def _refuse_used(source: Database) -> None:
    """On PostgreSQL, brokers on other machines may write; they are looked for before and after the copy."""
    if source.url is None:
        return
    from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - an extra

    if sessions := asyncio.run(copying.sessions(source)):
        raise StartError(
            f"brokers have {sessions} connections to the database {source}; stop all of them, and copy again."
        )


@contextlib.contextmanager
def _copied(file: Path, target: Database) -> Generator[Path]:
    """What the target holds after the copy, as a SQLite file: compared, row by row."""
    _copy(file, target)
    with _as_copied(target) as copy:
        if different := verification.differing_tables(file, copy):
            raise StartError(f"the copy {target} differs in {', '.join(different)}; copy again.")
        yield copy


def _copy(file: Path, target: Database) -> None:
    if target.url is not None:
        from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - an extra

        asyncio.run(copying.load(file, target))
        return
    if target.path.exists():
        raise StartError(f"{target} exists already; give a new file's path.")
    make_private_folder(target.path.parent)
    draft = _draft(target)
    draft.unlink(missing_ok=True)
    try:
        os.close(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        _back_up(file, draft)
    except (OSError, sqlite3.Error) as error:
        raise StartError(f"{target} cannot be written: {error}.") from error


def _back_up(file: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as source,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)
        # One file, until a broker opens it.
        copy.execute("PRAGMA journal_mode=DELETE")


def _draft(target: Database) -> Path:
    """A file gets its name when it is complete."""
    return target.path.with_name(f"{target.path.name}.unfinished")


@contextlib.contextmanager
def _as_copied(target: Database) -> Generator[Path]:
    if target.url is None:
        yield _draft(target)
        return
    with as_file(target) as file:
        yield file


def _finish(target: Database) -> None:
    if target.url is not None:
        from gsd_review_broker.store.postgres import copying  # noqa: PLC0415 - an extra

        asyncio.run(copying.finish(target))
    else:
        _draft(target).replace(target.path)
